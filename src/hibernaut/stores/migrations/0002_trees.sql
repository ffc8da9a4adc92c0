-- Threads form trees, ask people, and go; inboxes may be long.

-- parent, root: numbers of threads; NULL for a root. asking: its questions that wait for a person.
ALTER TABLE thread ADD COLUMN parent INTEGER;
ALTER TABLE thread ADD COLUMN root INTEGER;
ALTER TABLE thread ADD COLUMN asking INTEGER NOT NULL DEFAULT 0;

-- Every thread stands in one of two listings, so that roots are listed without passing over their descendants.
DROP INDEX thread_listing;
CREATE INDEX thread_roots ON thread (tenant, updated) WHERE root IS NULL;
CREATE INDEX thread_descendants ON thread (tenant, updated) WHERE root IS NOT NULL;

-- A tree, in the order in which its threads were made; those of it that are not closed (status 3); what may be pruned.
CREATE INDEX thread_tree ON thread (root) WHERE root IS NOT NULL;
CREATE INDEX thread_living ON thread (root) WHERE root IS NOT NULL AND status < 3;
CREATE INDEX thread_closed ON thread (updated) WHERE status = 3;

CREATE INDEX thread_asking ON thread (updated, thread_id) WHERE asking > 0;
CREATE INDEX thread_asking_of_tenant ON thread (tenant, updated, thread_id) WHERE asking > 0;
CREATE INDEX thread_asking_of_tree ON thread (root, updated, thread_id) WHERE asking > 0 AND root IS NOT NULL;

-- The greatest token that a deleted thread had: a thread made again under its name begins above it, so that an old
-- claim stays lost.
CREATE TABLE deleted (
    token INTEGER NOT NULL
) STRICT;

INSERT INTO deleted VALUES (0);

-- Messages beyond the first 64 places of an inbox, by when they are due; and those of them that are deferred, by place.
CREATE INDEX inbox_far ON inbox (place >> 32, urgency, due) WHERE (place & 4294967295) > 64;
CREATE INDEX inbox_far_deferred ON inbox (place) WHERE deferred = 1 AND (place & 4294967295) > 64;

-- The call that a "cancel" is about; NULL for an "invoke". Those of format 1 have the call's id in their own, and
-- their kind in the packed effect.
ALTER TABLE outbox ADD COLUMN cancels TEXT;

UPDATE outbox SET cancels = substr(request_id, 1, length(request_id) - length(':cancel'))
WHERE request_id LIKE '%:cancel' AND instr(effect, x'A663616E63656C') > 0;

CREATE INDEX outbox_cancels ON outbox (id) WHERE cancels IS NOT NULL;
