-- Roots that begin with a part of another thread's history, which has to stay as long as they do.

-- fork_of: number of that thread; NULL for one that shares nothing.
ALTER TABLE thread ADD COLUMN fork_of INTEGER;

CREATE INDEX thread_forks ON thread (fork_of) WHERE fork_of IS NOT NULL;
