-- What the embedded store asks of SQLite. The rows of one thread in `inbox` and `log` are those with places between
-- thread << 32 and (thread + 1) << 32.


-- Threads

-- name: find_threads
-- The names come as bytes, since as texts they would end at a NUL.
SELECT id, thread_id, status, lane, rank, wake,
    (SELECT max(place) FROM inbox WHERE place > thread.id << 32 AND place < (thread.id + 1) << 32)
FROM carray(?1) CROSS JOIN thread ON thread_id = CAST(value AS TEXT) WHERE ?2 IS NULL OR tenant = ?2;

-- name: find_claimed
SELECT id, lane, version, status, continues, tenant FROM thread WHERE thread_id = ?1 AND token = ?2 AND lane > 0;

-- name: held
-- The names come as bytes, since as texts they would end at a NUL.
SELECT id, thread_id, token, lane, version, tenant FROM carray(?1) CROSS JOIN thread
ON thread_id = CAST(value AS TEXT) WHERE lane > 0;

-- name: find_parent
SELECT id, coalesce(root, id), tenant FROM thread WHERE thread_id = ?1;

-- name: add_thread
INSERT INTO thread (thread_id, tenant, created, updated, parent, root, fork_of, token)
VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6, (SELECT token FROM deleted)) ON CONFLICT DO NOTHING RETURNING id;

-- name: add_head
INSERT INTO head (thread, head) VALUES (?1, ?2);

-- name: set_head
UPDATE head SET head = ?2 WHERE thread = ?1;

-- name: add_config
INSERT INTO config (digest, body) VALUES (?1, ?2) ON CONFLICT DO NOTHING;

-- name: add_blob
INSERT INTO blob (digest, data) VALUES (?1, ?2) ON CONFLICT DO NOTHING;

-- name: add_commit
INSERT INTO log (place, page, packed, receipt) VALUES ((?1 << 32) + ?2, ?3, ?4, ?5);


-- Inboxes

-- name: learn_message
INSERT INTO known (thread, digest, place) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING;

-- name: is_known
SELECT 1 FROM known WHERE thread = ?1 AND digest = ?2;

-- name: add_message
INSERT INTO inbox (place, due, rank, urgency, accepted, message_id, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7);

-- name: remove_message
DELETE FROM inbox WHERE place = (SELECT place FROM known WHERE thread = ?1 AND digest = ?2) AND message_id = ?3;

-- name: forget_message
DELETE FROM known WHERE thread = ?1 AND digest = ?2;

-- name: defer_message
UPDATE inbox SET rank = rank - due + ?4, due = ?4, deferred = 1
WHERE place = (SELECT place FROM known WHERE thread = ?1 AND digest = ?2) AND message_id = ?3;

-- name: rewrite_message
UPDATE inbox SET body = ?4
WHERE place = (SELECT place FROM known WHERE thread = ?1 AND digest = ?2) AND message_id = ?3;

-- name: near_moments
-- The messages of many threads in the first ?2 places; beyond the first 64, `far_moments` has the first of each urgency.
SELECT value, due, rank, urgency FROM carray(?1) CROSS JOIN inbox
WHERE place > value << 32 AND place <= (value << 32) + ?2;

-- name: far_moments
SELECT due, rank, urgency FROM inbox
WHERE place >> 32 = ?1 AND (place & 4294967295) > 64 AND urgency = ?2 ORDER BY due LIMIT 1;

-- name: first_place
SELECT min(place) FROM inbox WHERE place > ?1 << 32 AND place < (?1 + 1) << 32;

-- name: count_waiting
SELECT count(*) FROM (SELECT 1 FROM inbox WHERE place > ?1 << 32 AND place < (?1 + 1) << 32 LIMIT ?2);

-- name: first_messages
-- The messages of many threads, as far as they stand in the first ?3 places.
SELECT value, message_id, accepted, body, due FROM carray(?1) CROSS JOIN inbox
WHERE place > value << 32 AND place <= (value << 32) + ?3 AND (due <= ?2 OR deferred) ORDER BY place;

-- name: long_inboxes
-- Those among many threads that have messages in further places.
SELECT value FROM carray(?1)
WHERE EXISTS (SELECT 1 FROM inbox WHERE place > (value << 32) + ?2 AND place < (value + 1) << 32);

-- name: near_places
-- What a claim may hand over from the first 64 places.
SELECT place, due, urgency FROM inbox
WHERE place > ?1 << 32 AND place <= (?1 << 32) + 64 AND (due <= ?2 OR deferred) ORDER BY place;

-- name: far_due_places
SELECT place, due, urgency FROM inbox
WHERE place >> 32 = ?1 AND (place & 4294967295) > 64 AND urgency = ?2 AND due <= ?3 ORDER BY due, place LIMIT ?4;

-- name: far_deferred_places
SELECT place, due, urgency FROM inbox
WHERE place > (?1 << 32) + 64 AND place < (?1 + 1) << 32 AND deferred = 1 AND (place & 4294967295) > 64
ORDER BY place LIMIT ?2;

-- name: messages_at
SELECT message_id, accepted, body, due FROM inbox WHERE place IN carray(?1) ORDER BY place;


-- The queue

-- name: set_lane
UPDATE thread SET lane = ?2, rank = ?3, wake = ?4 WHERE id = ?1;

-- name: finish_commit
UPDATE thread
SET lane = ?2, rank = ?3, wake = ?4, version = ?5, status = ?6, tries = ?7, updated = ?8, continues = ?9,
    asking = ?10
WHERE id = ?1;

-- name: overdue
SELECT id, status, continues FROM thread WHERE lane = -1 AND rank <= ?1;

-- name: ready
-- A thread's rank is at most ?3 (the greatest penalty) above its wake, so nobody beyond that is ready.
SELECT rank, id, thread_id, token, tries, version, status FROM thread
WHERE lane = ?1 AND rank <= ?2 + ?3 AND wake <= ?2 AND (?5 IS NULL OR tenant = ?5) ORDER BY rank LIMIT ?4;

-- name: ready_among
-- The names come as bytes, since as texts they would end at a NUL.
-- A root stands for its whole tree.
SELECT rank, id, thread_id, token, tries, version, status, lane FROM thread
WHERE thread_id IN (SELECT CAST(value AS TEXT) FROM carray(?1)) AND lane IS NOT NULL AND wake <= ?2
AND (?3 IS NULL OR tenant = ?3)
UNION
SELECT rank, id, thread_id, token, tries, version, status, lane FROM thread
WHERE root IN (SELECT id FROM thread WHERE thread_id IN (SELECT CAST(value AS TEXT) FROM carray(?1)))
AND root IS NOT NULL AND status < 3 AND lane IS NOT NULL AND wake <= ?2 AND (?3 IS NULL OR tenant = ?3);

-- name: grant
UPDATE thread SET lane = ?1, token = token + 1, tries = tries + 1 WHERE id IN carray(?2);

-- name: heads
SELECT thread, head FROM head WHERE thread IN carray(?1);

-- name: first_wake
-- The first moment after ?2 at which a thread of a lane wakes. A rank is between its wake and ?3 above it, so those
-- from the first rank on that is not ready, and no further than ?3 above it, hold the answer.
SELECT min(wake) FROM thread WHERE lane = ?1 AND wake > ?2 AND rank > ?2 AND rank <= ?3 + (
    SELECT rank FROM thread WHERE lane = ?1 AND rank > ?2 AND wake > ?2 ORDER BY rank LIMIT 1
);

-- name: first_return
SELECT min(wake) FROM thread WHERE lane = ?1 AND wake > ?2;


-- Engines

-- name: beat
INSERT INTO engine (engine_id, process, beat) VALUES (?1, ?2, ?3)
ON CONFLICT (engine_id) DO UPDATE SET beat = excluded.beat, gone = 0 RETURNING id;

-- name: engines
SELECT engine_id, process, beat, gone FROM engine ORDER BY id;

-- name: find_engine
SELECT id, beat, gone FROM engine WHERE engine_id = ?1;

-- name: claimants
-- The engines that have claims, each found by one step through the queue's index.
WITH RECURSIVE held (lane) AS (
    SELECT min(lane) FROM thread WHERE lane > 0
    UNION ALL
    SELECT (SELECT min(lane) FROM thread WHERE lane > held.lane) FROM held WHERE held.lane IS NOT NULL
)
SELECT held.lane, engine.process, engine.beat, coalesce(engine.gone, 1) FROM held LEFT JOIN engine ON engine.id = held.lane
WHERE held.lane IS NOT NULL;

-- name: performers
-- The engines that hold effects which are not accepted.
WITH RECURSIVE held (engine) AS (
    SELECT min(engine) FROM outbox WHERE state < 2
    UNION ALL
    SELECT (SELECT min(engine) FROM outbox WHERE state < 2 AND engine > held.engine) FROM held
    WHERE held.engine IS NOT NULL
)
SELECT held.engine, engine.process, engine.beat, coalesce(engine.gone, 1) FROM held LEFT JOIN engine ON engine.id = held.engine
WHERE held.engine IS NOT NULL;

-- name: claimed_by
SELECT id, status, continues, thread_id FROM thread WHERE lane = ?1;

-- name: leave
UPDATE engine SET gone = 1 WHERE id = ?1;

-- name: forget_engines
DELETE FROM engine WHERE beat < ?1
AND NOT EXISTS (SELECT 1 FROM thread WHERE lane = engine.id)
AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.engine = engine.id AND state < 2);


-- The outbox

-- name: add_effect
INSERT INTO outbox (engine, thread, created, request_id, effect, cancels) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT DO NOTHING;

-- name: pending_among
-- The names come as bytes, since as texts they would end at a NUL.
SELECT outbox.id, request_id FROM carray(?1) CROSS JOIN outbox ON request_id = CAST(value AS TEXT)
WHERE state = 0 AND engine = (SELECT id FROM engine WHERE engine_id = ?2);

-- name: start_effects
UPDATE outbox SET state = 1 WHERE id IN carray(?1);

-- name: accept_effect
UPDATE outbox SET state = 2 WHERE request_id = ?1;

-- name: settle_effect
DELETE FROM outbox WHERE request_id = ?1;

-- name: settle_effect_of
DELETE FROM outbox WHERE request_id = ?1 AND thread = ?2;

-- name: unfinished_effects
SELECT outbox.id, effect, thread_id, state, '', outbox.created FROM outbox JOIN thread ON thread.id = outbox.thread
WHERE engine = ?1 AND state < 2 AND lane IS NOT -2 AND (?3 IS NULL OR tenant = ?3) ORDER BY outbox.id LIMIT ?2;

-- name: unfinished_effects_among
-- Those of some threads; a root stands for its whole tree.
SELECT outbox.id, effect, thread.thread_id, state, '', outbox.created
FROM outbox JOIN thread ON thread.id = outbox.thread LEFT JOIN thread AS top ON top.id = thread.root
WHERE engine = ?1 AND state < 2 AND thread.lane IS NOT -2
AND coalesce(top.thread_id, thread.thread_id) IN (SELECT CAST(value AS TEXT) FROM carray(?4))
AND (?3 IS NULL OR thread.tenant = ?3)
ORDER BY outbox.id LIMIT ?2;

-- name: adopt_effect
UPDATE outbox SET engine = ?2 WHERE id = ?1;


-- Reading

-- name: read_thread
SELECT thread_id, tenant, status, head, created, updated,
    (SELECT count(*) FROM inbox WHERE place > thread.id << 32 AND place < (thread.id + 1) << 32),
    (SELECT thread_id FROM thread AS other WHERE other.id = thread.parent),
    (SELECT thread_id FROM thread AS other WHERE other.id = thread.root), asking, lane IS -2
FROM thread JOIN head ON head.thread = thread.id WHERE thread_id = ?1;

-- name: read_heads
-- The names come as bytes, since as texts they would end at a NUL.
SELECT thread_id, status, head FROM thread JOIN head ON head.thread = thread.id
WHERE thread_id IN (SELECT CAST(value AS TEXT) FROM carray(?1));

-- name: read_log
SELECT place & 4294967295, page, receipt, packed FROM log
WHERE place > (SELECT (id << 32) + ?2 FROM thread WHERE thread_id = ?1)
AND place < (SELECT (id + 1) << 32 FROM thread WHERE thread_id = ?1)
ORDER BY place LIMIT ?3;

-- name: read_inbox
SELECT message_id, accepted, body, due FROM inbox
WHERE place > (SELECT id << 32 FROM thread WHERE thread_id = ?1)
AND place < (SELECT (id + 1) << 32 FROM thread WHERE thread_id = ?1)
ORDER BY place;

-- name: read_effects
SELECT outbox.id, effect, thread_id, state, engine_id, outbox.created
FROM outbox JOIN thread ON thread.id = outbox.thread LEFT JOIN engine ON engine.id = outbox.engine
ORDER BY outbox.id;

-- name: read_effects_of_thread
SELECT outbox.id, effect, thread_id, state, engine_id, outbox.created
FROM thread JOIN outbox ON outbox.thread = thread.id LEFT JOIN engine ON engine.id = outbox.engine
WHERE thread_id = ?1 ORDER BY outbox.id;

-- name: accepted_effects
SELECT outbox.id, effect, thread_id, state, engine_id, outbox.created
FROM outbox JOIN thread ON thread.id = outbox.thread LEFT JOIN engine ON engine.id = outbox.engine
WHERE state = 2 AND outbox.created < ?1 AND request_id > ?2 AND (?4 IS NULL OR tenant = ?4)
ORDER BY request_id LIMIT ?3;

-- name: cancellations
-- An "invoke" has the id of its call.
SELECT outbox.id, outbox.effect, thread_id, outbox.state, engine_id, outbox.created
FROM outbox INDEXED BY outbox_cancels
JOIN outbox AS work ON work.request_id = outbox.cancels AND work.thread = outbox.thread
JOIN thread ON thread.id = outbox.thread LEFT JOIN engine ON engine.id = outbox.engine
WHERE outbox.cancels IS NOT NULL AND work.engine = (SELECT id FROM engine WHERE engine_id = ?1) ORDER BY outbox.id;

-- name: read_config
SELECT body FROM config WHERE digest = ?1;

-- name: read_blob
SELECT data FROM blob WHERE digest = ?1;

-- name: next_tenant
SELECT min(tenant) FROM thread WHERE root IS NULL AND tenant > ?1;

-- name: first_tenant
-- A tree has the tenant of its root.
SELECT min(tenant) FROM thread WHERE root IS NULL;

-- name: list_roots
SELECT updated, thread_id, id FROM thread
WHERE root IS NULL AND tenant = ?1 AND updated <= ?2 AND updated >= ?4 AND (updated, thread_id) < (?2, ?3)
ORDER BY updated DESC, thread_id DESC LIMIT ?5;

-- name: list_descendants
SELECT updated, thread_id, id FROM thread
WHERE root IS NOT NULL AND tenant = ?1 AND updated <= ?2 AND updated >= ?4 AND (updated, thread_id) < (?2, ?3)
ORDER BY updated DESC, thread_id DESC LIMIT ?5;

-- name: read_threads
SELECT thread_id, tenant, status, head, created, updated,
    (SELECT count(*) FROM inbox WHERE place > thread.id << 32 AND place < (thread.id + 1) << 32),
    (SELECT thread_id FROM thread AS other WHERE other.id = thread.parent),
    (SELECT thread_id FROM thread AS other WHERE other.id = thread.root), asking, lane IS -2
FROM thread JOIN head ON head.thread = thread.id WHERE id IN carray(?1) ORDER BY updated DESC, thread_id DESC;

-- name: read_in_order
SELECT id, thread_id, tenant, status, head, created, updated,
    (SELECT count(*) FROM inbox WHERE place > thread.id << 32 AND place < (thread.id + 1) << 32),
    (SELECT thread_id FROM thread AS other WHERE other.id = thread.parent),
    (SELECT thread_id FROM thread AS other WHERE other.id = thread.root), asking, lane IS -2
FROM thread JOIN head ON head.thread = thread.id WHERE id IN carray(?1);

-- name: asking
SELECT id FROM thread WHERE asking > 0 ORDER BY updated, thread_id LIMIT ?1;

-- name: asking_of_tenant
SELECT id FROM thread WHERE asking > 0 AND tenant = ?1 ORDER BY updated, thread_id LIMIT ?2;

-- name: asking_of_tree
SELECT id FROM (
    SELECT id, updated, thread_id FROM thread
    WHERE thread_id = ?1 AND root IS NULL AND asking > 0 AND (?2 IS NULL OR tenant = ?2)
    UNION ALL
    SELECT id, updated, thread_id FROM thread INDEXED BY thread_asking_of_tree
    WHERE root = (SELECT id FROM thread WHERE thread_id = ?1) AND asking > 0 AND (?2 IS NULL OR tenant = ?2)
) ORDER BY updated, thread_id LIMIT ?3;


-- Trees

-- name: find_root
SELECT id, status FROM thread WHERE thread_id = ?1 AND root IS NULL AND (?2 IS NULL OR tenant = ?2);

-- name: descendants
SELECT id FROM thread WHERE root = ?1 ORDER BY id;

-- name: living_descendants
SELECT id FROM thread WHERE root = ?1 AND status < 3 ORDER BY id;

-- name: forks
SELECT thread_id FROM thread WHERE fork_of IN carray(?1) ORDER BY id;

-- name: count_living
SELECT count(*) FROM thread WHERE root = (SELECT id FROM thread WHERE thread_id = ?1) AND status < 3;

-- name: trees_with_closed
SELECT DISTINCT coalesce(root, id) FROM thread WHERE status = 3 AND updated < ?1 AND (?2 IS NULL OR tenant = ?2);

-- name: members
-- Whether each is closed, and whether it might go.
SELECT id, parent, status = 3, status = 3 AND updated < ?2 AND asking = 0
    AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.thread = thread.id)
    AND NOT EXISTS (SELECT 1 FROM thread AS fork WHERE fork.fork_of = thread.id)
FROM thread WHERE id = ?1
UNION ALL
SELECT id, parent, status = 3, status = 3 AND updated < ?2 AND asking = 0
    AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.thread = thread.id)
    AND NOT EXISTS (SELECT 1 FROM thread AS fork WHERE fork.fork_of = thread.id)
FROM thread WHERE root = ?1
ORDER BY 1;

-- name: heads_after
SELECT thread, head FROM head WHERE thread > ?1 ORDER BY thread LIMIT ?2;

-- name: inbox_after
SELECT place, body FROM inbox WHERE place > ?1 AND place < ?2 AND instr(body, x'C420') ORDER BY place LIMIT ?3;

-- name: log_after
SELECT place, page FROM log WHERE place > ?1 AND place < ?2 AND NOT packed AND instr(page, x'C420') ORDER BY place
LIMIT ?3;

-- name: whole_log_after
-- In the order in which the file has them.
SELECT id, page FROM log WHERE id > ?1 AND NOT packed AND instr(page, x'C420') ORDER BY id LIMIT ?2;

-- name: has_blobs
SELECT EXISTS (SELECT 1 FROM blob);

-- name: blobs_of
SELECT digest FROM blob WHERE digest IN carray(?1);

-- name: configs_of
SELECT digest FROM config WHERE digest IN carray(?1);

-- name: delete_blob
DELETE FROM blob WHERE digest = ?1;

-- name: delete_config
DELETE FROM config WHERE digest = ?1;

-- name: raise_tokens
UPDATE deleted SET token = max(token, (SELECT max(token) FROM thread WHERE id IN carray(?1)));

-- name: delete_threads
DELETE FROM thread WHERE id IN carray(?1);

-- name: delete_heads
DELETE FROM head WHERE thread IN carray(?1);

-- name: delete_effects
DELETE FROM outbox WHERE thread IN carray(?1);

-- name: delete_views
DELETE FROM view WHERE thread IN carray(?1);

-- name: delete_known
DELETE FROM known WHERE thread = ?1;

-- name: delete_inbox
DELETE FROM inbox WHERE place > ?1 << 32 AND place < (?1 + 1) << 32;

-- name: delete_log
DELETE FROM log WHERE place > ?1 << 32 AND place < (?1 + 1) << 32;


-- Beside the conversations

-- name: find_status
SELECT id, status FROM thread WHERE thread_id = ?1;

-- name: read_view
SELECT content FROM view WHERE thread = ?1 AND view_type = ?2;

-- name: count_views
SELECT count(*) FROM view WHERE thread = ?1;

-- name: put_view
INSERT INTO view (thread, view_type, content, updated) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (thread, view_type) DO UPDATE SET content = excluded.content, updated = excluded.updated;

-- name: read_views
SELECT view_type, content, updated FROM view WHERE thread = (SELECT id FROM thread WHERE thread_id = ?1)
ORDER BY view_type;

-- name: knows
SELECT 1 FROM known WHERE thread = (SELECT id FROM thread WHERE thread_id = ?1) AND digest = ?2;

-- name: write_note
INSERT INTO note (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: read_note
SELECT value FROM note WHERE key = ?1;

-- name: add_count
INSERT INTO counted (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value;

-- name: keep_greatest
INSERT INTO counted (name, value) VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value);

-- name: read_counted
SELECT name, value FROM counted;

-- name: count_statuses
SELECT status, count(*) FROM thread GROUP BY status;

-- name: count_lanes
SELECT lane, count(*) FROM thread WHERE lane IS NOT NULL GROUP BY lane;

-- name: count_ready
SELECT count(*), min(wake) FROM thread WHERE lane = ?1 AND rank <= ?2 + ?3 AND wake <= ?2;

-- name: count_inbox
SELECT count(*) FROM inbox;

-- name: count_effects
SELECT state, count(*) FROM outbox GROUP BY state;


-- Moving trees

-- name: freeze
UPDATE thread SET lane = -2, rank = NULL, wake = NULL, tries = 0 WHERE id IN carray(?1) AND lane IS NOT -2;

-- name: orphan_pending
-- No engine has the number 0.
UPDATE outbox SET engine = 0 WHERE state = 0 AND thread IN carray(?1);

-- name: frozen
SELECT id, status, continues, thread_id FROM thread WHERE id IN carray(?1) AND lane = -2 ORDER BY id;

-- name: not_frozen
SELECT thread_id FROM thread WHERE id IN carray(?1) AND lane IS NOT -2 ORDER BY id LIMIT 1;

-- name: begun
-- What certain engines have begun for a thread.
SELECT effect FROM outbox WHERE thread = ?1 AND state = 1 AND engine NOT IN carray(?2) AND engine > 0 ORDER BY id;

-- name: export_threads
SELECT id, (SELECT thread_id FROM thread AS other WHERE other.id = thread.fork_of),
    thread_id, tenant, (SELECT thread_id FROM thread AS other WHERE other.id = thread.parent),
    (SELECT thread_id FROM thread AS other WHERE other.id = thread.root),
    created, updated, version, status, continues, asking, head
FROM thread JOIN head ON head.thread = thread.id WHERE id IN carray(?1) ORDER BY id;

-- name: export_log
SELECT place & 4294967295, page, receipt, packed FROM log
WHERE place > (?1 << 32) + ?2 AND place < (?1 + 1) << 32 ORDER BY place LIMIT ?3;

-- name: export_inbox
SELECT message_id, accepted, due, urgency, deferred, body FROM inbox
WHERE place > ?1 << 32 AND place < (?1 + 1) << 32 ORDER BY place;

-- name: export_known
SELECT digest FROM known WHERE thread = ?1 ORDER BY digest;

-- name: export_effects
SELECT request_id, state, created, coalesce(cancels, ''), effect FROM outbox WHERE thread = ?1 ORDER BY id;

-- name: export_views
SELECT view_type, content, updated FROM view WHERE thread = ?1 ORDER BY view_type;

-- name: existing_thread
-- The names come as bytes, since as texts they would end at a NUL.
SELECT thread_id FROM thread WHERE thread_id IN (SELECT CAST(value AS TEXT) FROM carray(?1)) LIMIT 1;

-- name: existing_effect
SELECT request_id FROM outbox WHERE request_id IN (SELECT CAST(value AS TEXT) FROM carray(?1)) LIMIT 1;

-- name: import_thread
INSERT INTO thread (
    thread_id, tenant, created, updated, version, status, continues, asking, parent, root, token, lane
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, (SELECT token FROM deleted), -2) RETURNING id;

-- name: set_fork
UPDATE thread SET fork_of = ?2 WHERE id = ?1;

-- name: import_message
INSERT INTO inbox (place, due, rank, urgency, deferred, accepted, message_id, body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8);

-- name: import_effect
INSERT INTO outbox (engine, thread, state, created, request_id, cancels, effect) VALUES (0, ?1, ?2, ?3, ?4, ?5, ?6);

-- name: old_secrets
SELECT value FROM meta WHERE name LIKE 'old secret %' ORDER BY name;

-- name: keep_secret
INSERT INTO meta (name, value) VALUES ('old secret ' || ?1, ?2) ON CONFLICT DO NOTHING;


-- The store itself

-- name: read_meta
SELECT value FROM meta WHERE name = ?1;

-- name: add_meta
INSERT INTO meta (name, value) VALUES (?1, ?2);


-- The file

-- name: data_version
PRAGMA data_version;

-- name: read_migrations
SELECT number, name, checksum FROM migration ORDER BY number;

-- name: make_migrations
CREATE TABLE IF NOT EXISTS migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum BLOB NOT NULL) STRICT;

-- name: add_migration
INSERT INTO migration (number, name, checksum) VALUES (?1, ?2, ?3);
