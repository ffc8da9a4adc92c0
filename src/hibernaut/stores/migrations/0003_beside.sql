-- What is kept beside the conversation: what people see of a thread, and what an engine knows again after a restart.

CREATE TABLE view (
    id INTEGER PRIMARY KEY,
    thread INTEGER NOT NULL,
    view_type TEXT NOT NULL,
    content TEXT NOT NULL,
    updated INTEGER NOT NULL,
    UNIQUE (thread, view_type)
) STRICT;

CREATE TABLE note (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    value BLOB NOT NULL
) STRICT;
