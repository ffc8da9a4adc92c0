-- Commits in the order in which they were written, whoever's they are, so that many threads' commits fill pages of the
-- file one after the other. Kept in the order of their places, each was written into the middle of the table, where
-- every third had several pages written anew.

CREATE TABLE log_in_order (
    id INTEGER PRIMARY KEY,
    place INTEGER NOT NULL UNIQUE,
    packed INTEGER NOT NULL,
    page BLOB NOT NULL,
    receipt BLOB NOT NULL
) STRICT;

INSERT INTO log_in_order (place, packed, page, receipt) SELECT place, packed, page, receipt FROM log ORDER BY place;

DROP TABLE log;

ALTER TABLE log_in_order RENAME TO log;
