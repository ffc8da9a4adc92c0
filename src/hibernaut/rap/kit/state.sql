-- name: make_meta
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;

-- name: make_calls
-- `state` is accepted, running, deferred, subscribed or over; `ended` is 0 until it is over.
CREATE TABLE call (
    key TEXT PRIMARY KEY,
    thread_id TEXT NOT NULL,
    call_id TEXT NOT NULL,
    invocation BLOB NOT NULL,
    callback_url TEXT NOT NULL,
    base TEXT NOT NULL,
    token TEXT NOT NULL,
    state TEXT NOT NULL,
    accepted INTEGER NOT NULL,
    ended INTEGER NOT NULL DEFAULT 0,
    last_event_id TEXT NOT NULL DEFAULT '',
    last_sequence INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- name: make_calls_by_name
CREATE INDEX call_by_name ON call (thread_id, call_id);

-- name: make_calls_by_token
CREATE UNIQUE INDEX call_by_token ON call (token);

-- name: make_calls_by_end
CREATE INDEX call_by_end ON call (ended);

-- name: make_callbacks
-- What ends a call stays when it is `sent` (1), for repeats of the call; the rest is deleted then.
CREATE TABLE callback (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    body BLOB NOT NULL,
    made INTEGER NOT NULL,
    sent INTEGER NOT NULL DEFAULT 0
) STRICT;

-- name: make_callbacks_by_call
CREATE INDEX callback_by_call ON callback (key, sent, number);

-- name: make_questions
-- `selected` is below 0 until there is an answer.
CREATE TABLE question (
    key TEXT NOT NULL,
    number INTEGER NOT NULL,
    secret TEXT NOT NULL,
    choices INTEGER NOT NULL,
    due INTEGER NOT NULL,
    selected INTEGER NOT NULL DEFAULT -1,
    PRIMARY KEY (key, number)
) STRICT, WITHOUT ROWID;

-- name: make_questions_by_secret
CREATE INDEX question_by_secret ON question (secret);

-- name: add_meta
INSERT INTO meta VALUES (?1, ?2);

-- name: read_meta
SELECT value FROM meta WHERE name = ?1;

-- name: read_call
SELECT key, thread_id, call_id, invocation, callback_url, base, token, state, accepted, last_event_id, last_sequence
FROM call WHERE key = ?1;

-- name: read_call_by_token
SELECT key, thread_id, call_id, invocation, callback_url, base, token, state, accepted, last_event_id, last_sequence
FROM call WHERE token = ?1;

-- name: read_open_calls
SELECT key, thread_id, call_id, invocation, callback_url, base, token, state, accepted, last_event_id, last_sequence
FROM call WHERE ended = 0 ORDER BY accepted, key;

-- name: find_unfinished
SELECT key FROM call WHERE thread_id = ?1 AND (?2 = '' OR call_id = ?2)
AND (ended = 0 OR EXISTS (SELECT 1 FROM callback WHERE callback.key = call.key AND sent = 0));

-- name: read_alive
SELECT EXISTS (
    SELECT 1 FROM call WHERE thread_id = ?1 AND call_id = ?2
    AND (ended = 0 OR EXISTS (SELECT 1 FROM callback WHERE callback.key = call.key AND sent = 0))
);

-- name: add_call
INSERT INTO call (key, thread_id, call_id, invocation, callback_url, base, token, state, accepted)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'accepted', ?8);

-- name: read_callback_url
SELECT callback_url FROM call WHERE key = ?1;

-- name: set_callback_url
UPDATE call SET callback_url = ?2 WHERE key = ?1;

-- name: set_state
UPDATE call SET state = ?2 WHERE key = ?1 AND ended = 0;

-- name: set_last_event
UPDATE call SET last_event_id = ?2, last_sequence = ?3 WHERE key = ?1;

-- name: end_call
UPDATE call SET state = 'over', ended = ?2 WHERE key = ?1 AND ended = 0;

-- name: add_callback
INSERT INTO callback (key, kind, body, made) VALUES (?1, ?2, ?3, ?4);

-- name: read_waiting
SELECT callback.key, count(*), call.callback_url FROM callback JOIN call ON call.key = callback.key
WHERE sent = 0 GROUP BY callback.key ORDER BY min(number);

-- name: read_next_callback
SELECT number, kind, body, made FROM callback WHERE key = ?1 AND sent = 0 ORDER BY number LIMIT 1;

-- name: keep_sent_callback
UPDATE callback SET sent = 1 WHERE number = ?1;

-- name: delete_callback
DELETE FROM callback WHERE number = ?1;

-- name: send_again
UPDATE callback SET sent = 0, made = ?2 WHERE key = ?1 AND sent = 1;

-- name: count_waiting
SELECT count(*) FROM callback WHERE key = ?1 AND sent = 0;

-- name: read_question
SELECT selected, due FROM question WHERE key = ?1 AND number = ?2;

-- name: find_question
SELECT question.key, number, choices, selected, call_id FROM question JOIN call ON call.key = question.key
WHERE secret = ?1 AND (call.ended = 0 OR selected >= 0) ORDER BY (selected >= 0), number LIMIT 1;

-- name: add_question
INSERT INTO question (key, number, secret, choices, due) VALUES (?1, ?2, ?3, ?4, ?5);

-- name: answer_question
UPDATE question SET selected = ?3 WHERE key = ?1 AND number = ?2 AND selected < 0;

-- name: delete_questions
DELETE FROM question WHERE key = ?1;

-- name: find_forgotten
SELECT key FROM call WHERE ended > 0
AND (ended < ?1 OR ended <= (SELECT ended FROM call WHERE ended > 0 ORDER BY ended DESC LIMIT 1 OFFSET ?2))
AND NOT EXISTS (SELECT 1 FROM callback WHERE callback.key = call.key AND sent = 0) LIMIT ?3;

-- name: delete_call
DELETE FROM call WHERE key = ?1;

-- name: delete_callbacks
DELETE FROM callback WHERE key = ?1;
