-- What was ever counted of the store: sums, and greatest values, by name.

CREATE TABLE counted (
    name TEXT PRIMARY KEY NOT NULL,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
