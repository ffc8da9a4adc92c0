-- Whether a page is packed (see stores/packing.py) or stands as it is. One that may refer to a blob stands as it is.

ALTER TABLE log ADD COLUMN packed INTEGER NOT NULL DEFAULT 0;
