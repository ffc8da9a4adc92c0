-- One file holds everything. A thread is known inside by a small number (thread.id); rows that belong to one and
-- have an order stand under thread.id << 32 | number, so that they lie together and need no index of their own.

-- What is true of the whole store, such as its secret.
CREATE TABLE meta (
    name TEXT PRIMARY KEY NOT NULL,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Launch configurations by their SHA-256.
CREATE TABLE config (
    digest BLOB PRIMARY KEY NOT NULL,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Engines that gave a sign of life. A number is never given twice: threads and effects keep it after the row is gone.
CREATE TABLE engine (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    engine_id TEXT NOT NULL UNIQUE,
    process TEXT NOT NULL,
    beat INTEGER NOT NULL,
    gone INTEGER NOT NULL DEFAULT 0
) STRICT;

-- lane: NULL at rest (nothing to do, whatever time it is); 0 in the queue; -1 held back until the moment in `rank`;
--       else the engine that has the claim.
-- wake: the first moment at which there is something to do, if there is.
-- rank: its place among those that have something to do: the least (moment + penalty) of what there is to do.
-- continues: the moment of the last commit, if that one said that the thread continues.
CREATE TABLE thread (
    id INTEGER PRIMARY KEY,
    lane INTEGER,
    rank INTEGER,
    wake INTEGER,
    token INTEGER NOT NULL DEFAULT 0,
    tries INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT 0,
    status INTEGER NOT NULL DEFAULT 0,
    continues INTEGER,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    thread_id TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL
) STRICT;

CREATE INDEX thread_queue ON thread (lane, rank, wake) WHERE lane IS NOT NULL;
CREATE INDEX thread_listing ON thread (tenant, updated);

-- Heads stand apart: the queue is written far more often than they are.
CREATE TABLE head (
    thread INTEGER PRIMARY KEY,
    head BLOB NOT NULL
) STRICT;

-- Messages that are not consumed, at thread << 32 | number. rank is due + penalty.
CREATE TABLE inbox (
    place INTEGER PRIMARY KEY,
    due INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    urgency INTEGER NOT NULL,
    deferred INTEGER NOT NULL DEFAULT 0,
    accepted INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    body BLOB NOT NULL
) STRICT;

-- Every message that was ever accepted (dropped timers excepted), by BLAKE2b-128 of its id, with its place in the
-- inbox. The place is given again once the message is consumed, so whoever follows it compares the message id.
CREATE TABLE known (
    thread INTEGER NOT NULL,
    digest BLOB NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (thread, digest)
) STRICT, WITHOUT ROWID;

-- Commits, at thread << 32 | version.
CREATE TABLE log (
    place INTEGER PRIMARY KEY,
    page BLOB NOT NULL,
    receipt BLOB NOT NULL
) STRICT;

-- Effects that are not settled. state: 0 pending, 1 sent, 2 accepted.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY,
    state INTEGER NOT NULL DEFAULT 0,
    engine INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    created INTEGER NOT NULL,
    request_id TEXT NOT NULL UNIQUE,
    effect BLOB NOT NULL
) STRICT;

CREATE INDEX outbox_of_thread ON outbox (thread);
CREATE INDEX outbox_of_engine ON outbox (engine) WHERE state < 2;

-- Bytes by their SHA-256.
CREATE TABLE blob (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    data BLOB NOT NULL
) STRICT;
