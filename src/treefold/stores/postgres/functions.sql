-- All writing: one call of a function is one statement and one transaction, so that a client that
-- is stopped in the middle holds no lock.
--
-- They run with the rights of the owner of the tables and a fixed search path; roles.py says who may
-- call which. Errors that the client tells apart have a code that begins with TF.

-- Whether a worker is alive. What another server has seen says nothing as long as this one, which was
-- started, or has taken its place, has got no heartbeat: nobody could have sent one.
CREATE OR REPLACE FUNCTION lives(one workers) RETURNS boolean
LANGUAGE sql AS $$
    SELECT one.server <> pg_postmaster_start_time() OR one.seen + one.lease > clock_timestamp()
$$;

-- A worker leaves only when nothing that gives it a drive is under way: a drive whose owner has left
-- would never be owed.
CREATE OR REPLACE FUNCTION presence_of(worker bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT hashtextextended(current_schema() || ' worker ' || worker, 0)
$$;

CREATE OR REPLACE FUNCTION is_alive(worker bigint) RETURNS boolean
LANGUAGE sql AS $$
    SELECT EXISTS (SELECT 1 FROM workers WHERE id = worker AND lives(workers))
$$;

-- Whether a worker may act on the death of others. If the clock was set forward since its last
-- heartbeat, they may only seem to be dead: its next one corrects their leases.
CREATE OR REPLACE FUNCTION may_judge(worker bigint) RETURNS boolean
LANGUAGE sql AS $$
    SELECT EXISTS (
        SELECT 1 FROM workers WHERE id = worker AND (
            server <> pg_postmaster_start_time() OR seen + lease / 2 > clock_timestamp()
        )
    )
$$;

-- What is owed: wanted, due, and without a living owner; also for people and autoscalers. Who may read
-- it need not be allowed to call functions. What living workers have is not read; the two parts are
-- views, so that each can be read in the order of an index.
CREATE OR REPLACE VIEW unowned AS
SELECT node, tree, queue, priority, wake_at, greatest(wanted, wake_at) AS since,
    coalesce(wake_at, '-infinity') AS due, wanted
FROM drives
-- An index is used for this time, and is not for that of the clock, which goes on meanwhile.
WHERE owner IS NULL AND wanted IS NOT NULL
    AND coalesce(wake_at, '-infinity') <= statement_timestamp();

CREATE OR REPLACE VIEW orphaned AS
SELECT node, tree, queue, priority, wake_at,
    greatest(wanted, wake_at, workers.seen + workers.lease) AS since,
    coalesce(wake_at, '-infinity') AS due, wanted
FROM workers CROSS JOIN LATERAL (
    SELECT * FROM drives WHERE drives.owner = workers.id AND wanted IS NOT NULL OFFSET 0
) AS drives
WHERE coalesce(wake_at, '-infinity') <= statement_timestamp()
    AND workers.server = pg_postmaster_start_time()
    AND workers.seen + workers.lease <= clock_timestamp();

CREATE OR REPLACE VIEW owed AS SELECT * FROM unowned UNION ALL SELECT * FROM orphaned;

-- For autoscalers: what waits for a worker in each queue, what living workers have (what only
-- waits included), and for how many seconds the first has waited.
CREATE OR REPLACE VIEW depth AS
SELECT queue, count(since) AS owed, count(*) - count(since) AS running,
    coalesce(extract(epoch FROM clock_timestamp() - min(since)), 0)::double precision AS oldest
FROM (
    SELECT queue, since FROM owed
    UNION ALL
    SELECT drives.queue, NULL FROM drives JOIN workers ON workers.id = drives.owner
    WHERE workers.seen + workers.lease > clock_timestamp()
) AS either
GROUP BY queue;

-- The messages as they were posted. One that is damaged stays in the table, for people to look at,
-- and counts for nothing else: no worker could execute it, so it would keep its drive wanted for
-- ever, and its question closed.
CREATE OR REPLACE VIEW whole_messages AS
SELECT * FROM inbox
WHERE hash = sha256(convert_to(concat(drive, ' ', question, ' ', body), 'UTF8'));

-- Whether a call of the drive has not ended.
CREATE OR REPLACE FUNCTION is_open(one drives) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM nodes WHERE nodes.open AND nodes.tree = one.tree AND nodes.drive = one.node
    )
$$;

CREATE OR REPLACE FUNCTION has_messages(one drives) RETURNS boolean
LANGUAGE sql STABLE AS $$
    -- With OFFSET 0 it is looked up by its index, and not joined with all messages.
    SELECT EXISTS (SELECT 1 FROM whole_messages AS message WHERE message.drive = one.node OFFSET 0)
$$;

-- Want the drive that a remote call was made in, now that the call is over: it may have been parked
-- while the call waited for a person. The drive of a call is always locked before that of its caller.
CREATE OR REPLACE FUNCTION wake_caller(one drives) RETURNS void
LANGUAGE sql AS $$
    -- Also if it has an owner, who may be parking it just now: an UPDATE would not wait for that.
    SELECT 1 FROM drives JOIN nodes AS caller ON caller.drive = drives.node
    JOIN nodes AS call ON call.parent = caller.id
    WHERE one.node <> one.tree AND call.id = one.node FOR NO KEY UPDATE OF drives;
    UPDATE drives SET wanted = clock_timestamp(), wake_at = NULL
    FROM nodes AS call JOIN nodes AS caller ON caller.id = call.parent
    WHERE one.node <> one.tree AND call.id = one.node AND drives.node = caller.drive
        AND drives.owner IS NULL AND (drives.wanted IS NULL OR drives.wake_at IS NOT NULL)
        AND is_open(drives)
$$;

-- The drive of a node; ids that a fork shares belong to the fork, and follow its own.
CREATE OR REPLACE FUNCTION drive_of(wanted bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT drive FROM nodes WHERE id = wanted
    UNION ALL
    SELECT id FROM (
        SELECT id, inherited FROM nodes WHERE source > 0 AND id < wanted ORDER BY id DESC LIMIT 1
    ) AS fork
    WHERE wanted <= id + inherited
    LIMIT 1
$$;

-- Write entries of several drives, all or none. The client has sorted out what goes where:
--   locks     the drives to lock before anything else, if there are several
--   sources   trees that must exist, because a new tree is a fork of them
--   created   new drives of whole trees: node, count, owner (null for none), wanted, queue ...
--   batches   known drives: node, epoch, written before, count, how far their tree advances, and
--             whether a call ends, which is what counts as progress here
--   others    trees whose own drive is not among the batches, and how far they advance
--   tickets   calls that become drives of their own
--   reopened  calls with drives of their own that had ended, and are to be run once more
--   events    with places counted from 1 within this call, for each tree
--   texts     hash, and where the text is in the blob
-- Returns the place that each tree had reached before.
--
-- This, adopt and release find rows by their keys, however few rows there are, or seem to be: the
-- server keeps their plans, and takes any JSON for a hundred rows.
CREATE OR REPLACE FUNCTION append(
    worker bigint,
    locks bigint[],
    sources bigint[],
    created json,
    batches json,
    others json,
    tickets json,
    reopened bigint[],
    new_events json,
    calls json,
    changes json,
    new_texts json,
    blob bytea,
    closed bigint[],
    settled_ids json,
    asked json,
    OUT trees bigint[],
    OUT bases bigint[]
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    touched bigint;
BEGIN
    IF sources IS NOT NULL THEN
        -- Not while the source is deleted.
        PERFORM 1 FROM drives WHERE node = ANY (sources) FOR KEY SHARE;
        GET DIAGNOSTICS touched = ROW_COUNT;
        IF touched <> cardinality(sources) THEN
            RAISE EXCEPTION 'the source of a fork is missing' USING ERRCODE = 'TF003';
        END IF;
    END IF;
    IF reopened IS NOT NULL THEN
        -- Before the drive of the caller is locked. Who has run the call may not have released it yet,
        -- and must not park it then.
        UPDATE drives
        SET epoch = epoch + (owner IS NOT NULL)::integer, owner = NULL,
            wanted = clock_timestamp(), wake_at = NULL
        WHERE node = ANY (reopened);
    END IF;
    IF locks IS NOT NULL THEN
        -- Two workers that write to the same trees lock them in the same order.
        PERFORM 1 FROM drives WHERE node = ANY (locks) ORDER BY node FOR NO KEY UPDATE;
    END IF;
    IF created IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock_shared(presence_of(worker));
        INSERT INTO drives (node, tree, epoch, written, last, owner, wanted, wake_at, queue, priority)
        SELECT node, node, CASE WHEN owner IS NULL THEN 0 ELSE 1 END, count, advance,
            -- A worker that was forgotten meanwhile owns nothing: nobody would notice its death.
            (SELECT workers.id FROM workers WHERE workers.id = new.owner),
            CASE WHEN wanted THEN clock_timestamp() END, to_timestamp(not_before), queue, priority
        FROM json_to_recordset(created) AS new (
            node bigint, count bigint, advance bigint, owner bigint, wanted boolean,
            not_before double precision, queue text, priority integer
        );
    END IF;
    IF batches IS NOT NULL THEN
        WITH fenced AS (
            UPDATE drives
            SET written = drives.written + batch.count, last = drives.last + batch.advance,
                attempts = CASE WHEN batch.progress THEN 0 ELSE drives.attempts END
            FROM json_to_recordset(batches) AS batch (
                node bigint, epoch integer, written bigint, count bigint, advance bigint,
                progress boolean
            )
            WHERE drives.node = batch.node AND drives.epoch = batch.epoch
                AND drives.written = batch.written AND drives.owner = worker
            RETURNING drives.node, drives.last - batch.advance AS base
        )
        SELECT array_agg(node), array_agg(base) INTO trees, bases FROM fenced;
        IF coalesce(cardinality(trees), 0) <> json_array_length(batches) THEN
            RAISE EXCEPTION 'a drive is not owned, or was written to' USING ERRCODE = 'TF001';
        END IF;
    END IF;
    IF others IS NOT NULL THEN
        WITH advanced AS (
            UPDATE drives SET last = last + advance
            FROM json_to_recordset(others) AS other (tree bigint, advance bigint)
            WHERE drives.node = other.tree RETURNING drives.node, last - advance AS base
        )
        SELECT trees || array_agg(node), bases || array_agg(base) INTO trees, bases FROM advanced;
    END IF;
    IF tickets IS NOT NULL THEN
        INSERT INTO drives (node, tree, wanted, wake_at, queue, priority)
        SELECT node, tree, clock_timestamp(), to_timestamp(not_before), queue, priority
        FROM json_to_recordset(tickets) AS ticket (
            node bigint, tree bigint, not_before double precision, queue text, priority integer
        );
    END IF;
    INSERT INTO events (tree, place, node, n, kind, body, at, state, question, settled, crc)
    SELECT tree, coalesce(bases[array_position(trees, tree)], 0) + place,
        node, n, kind, body, at, state, question, settled, crc
    FROM json_to_recordset(new_events) AS event (
        tree bigint, place bigint, node bigint, n integer, kind text, body text,
        at double precision, state text, question text, settled text, crc bigint
    );
    IF calls IS NOT NULL THEN
        INSERT INTO nodes (
            id, tree, drive, parent, call_key, number, function, idles, source, inherited, crc,
            state, open, ended, state_crc, started, started_crc
        )
        SELECT id, tree, drive, parent, call_key, number, function, idles, source, inherited, crc,
            state, open, ended, state_crc, started, started_crc
        FROM json_to_recordset(calls) AS call (
            id bigint, tree bigint, drive bigint, parent bigint, call_key text, number bigint,
            function text, idles boolean, source bigint, inherited bigint, crc bigint,
            state text, open boolean, ended double precision, state_crc bigint,
            started double precision, started_crc bigint
        );
    END IF;
    IF changes IS NOT NULL THEN
        UPDATE nodes
        SET state = change.state, open = change.open, ended = change.ended,
            state_crc = change.state_crc, started = coalesce(nodes.started, change.started),
            started_crc = coalesce(nodes.started_crc, change.started_crc)
        FROM json_to_recordset(changes) AS change (
            id bigint, state text, open boolean, ended double precision, state_crc bigint,
            started double precision, started_crc bigint
        )
        WHERE nodes.id = change.id;
        GET DIAGNOSTICS touched = ROW_COUNT;
        IF touched <> json_array_length(changes) THEN
            RAISE EXCEPTION 'the first entry of a node has no call' USING ERRCODE = 'TF002';
        END IF;
    END IF;
    IF new_texts IS NOT NULL THEN
        INSERT INTO texts (tree, hash, text, crc)
        SELECT tree, decode(hash, 'hex'), substring(blob FROM start FOR length), crc
        FROM json_to_recordset(new_texts) AS new (
            tree bigint, hash text, start integer, length integer, crc bigint
        )
        ON CONFLICT DO NOTHING;
    END IF;
    IF closed IS NOT NULL THEN
        DELETE FROM questions WHERE node = ANY (closed);
    END IF;
    IF settled_ids IS NOT NULL THEN
        DELETE FROM questions WHERE id IN (SELECT json_array_elements_text(settled_ids));
    END IF;
    IF asked IS NOT NULL THEN
        -- One that is asked again is listed last.
        DELETE FROM questions
        WHERE id IN (SELECT new.id FROM json_to_recordset(asked) AS new (id text));
        INSERT INTO questions (id, node, tree, place, asks, in_doubt, due, crc)
        SELECT id, node, tree, coalesce(bases[array_position(trees, tree)], 0) + place, asks,
            in_doubt, due, crc
        FROM json_to_recordset(asked) AS new (
            id text, node bigint, tree bigint, place bigint, asks boolean, in_doubt boolean,
            due double precision, crc bigint
        );
    END IF;
END
$$;

-- Write long texts before the entries that reference them, because together they are too large for
-- one call.
CREATE OR REPLACE FUNCTION add_text(
    its_tree bigint, its_hash bytea, its_text bytea, its_crc bigint
)
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    INSERT INTO texts (tree, hash, text, crc) VALUES (its_tree, its_hash, its_text, its_crc)
    ON CONFLICT DO NOTHING
$$;

-- Node ids and tree numbers that nobody else gets; returns the first of each.
CREATE OR REPLACE FUNCTION reserve(nodes bigint, trees bigint, OUT node bigint, OUT number bigint)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    UPDATE journal SET node = journal.node + nodes, number = journal.number + trees
    RETURNING journal.node - nodes + 1, journal.number - trees + 1
$$;

-- Workers

-- Have the leases last as long as they were meant to, after the clock was set forward by so much, or
-- back, or the server was started again, or another one has taken its place, which may lack what was
-- written last. One process at a time does so, because it waits for the heartbeats of all.
CREATE OR REPLACE FUNCTION correct_leases(jump interval) RETURNS void
LANGUAGE sql AS $$
    UPDATE workers SET server = pg_postmaster_start_time(), lost = lost + 1, seen = CASE
        WHEN server = pg_postmaster_start_time() THEN least(seen + jump, clock_timestamp())
        ELSE clock_timestamp()
    END
    WHERE server <> pg_postmaster_start_time() OR seen > clock_timestamp() OR jump > '0'
$$;

CREATE OR REPLACE FUNCTION one_corrects() RETURNS void
LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' workers', 0))
$$;

CREATE OR REPLACE FUNCTION join_workers(
    its_name text, its_host text, its_process bigint, its_functions json, its_queues json,
    its_lease double precision
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    joined bigint;
BEGIN
    PERFORM one_corrects();
    PERFORM correct_leases('0');
    INSERT INTO workers (name, host, process, functions, queues, lease, seen, server)
    VALUES (
        its_name, its_host, its_process, its_functions, its_queues,
        make_interval(secs => its_lease), clock_timestamp(), pg_postmaster_start_time()
    )
    RETURNING id INTO joined;
    RETURN joined;
END
$$;

-- A worker that counted as dead lives again, without the drives that others have adopted. Returns
-- nothing if it was forgotten. It says how many seconds have passed, by a clock that nobody sets, since
-- its last heartbeat; and how often it may have lost drives, as far as it knows: only if that is wrong
-- are those listed that it owns.
CREATE OR REPLACE FUNCTION beat(
    worker bigint, its_load json, passed double precision, known bigint,
    OUT draining boolean, OUT at double precision, OUT losses bigint, OUT messages bigint[],
    OUT nodes bigint[], OUT epochs integer[]
) RETURNS SETOF record
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    own workers;
    jump interval;
    corrects boolean := false;
BEGIN
    LOOP
        SELECT * INTO own FROM workers WHERE id = worker;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        jump := clock_timestamp() - own.seen - make_interval(secs => passed);
        -- A heartbeat may be late by less.
        EXIT WHEN own.server = pg_postmaster_start_time()
            AND jump BETWEEN -own.lease / 2 AND own.lease / 2;
        IF corrects THEN
            PERFORM correct_leases(greatest(jump, '0'));
            EXIT;
        END IF;
        PERFORM one_corrects();
        corrects := true;
    END LOOP;
    -- This waits for those who are adopting something of it.
    PERFORM 1 FROM workers WHERE id = worker FOR NO KEY UPDATE;
    UPDATE workers
    SET seen = clock_timestamp(), load = its_load, lost = lost + (NOT lives(workers))::integer
    WHERE id = worker
    RETURNING drain, extract(epoch FROM seen), lost INTO draining, at, losses;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT array_agg(DISTINCT message.drive) INTO messages
    FROM whole_messages AS message JOIN drives ON drives.node = message.drive
    WHERE drives.owner = worker;
    -- A server that has taken the place of another one may lack what was written last.
    IF losses <> known OR own.server <> pg_postmaster_start_time() THEN
        SELECT coalesce(array_agg(node), '{}'), coalesce(array_agg(epoch), '{}') INTO nodes, epochs
        FROM drives WHERE owner = worker;
    END IF;
    RETURN NEXT;
END
$$;

-- Forget the workers that died long ago, and whose drives have others adopted. Who asks for it has been
-- a worker for a lease: so each living one has sent a heartbeat meanwhile, and leases are correct.
CREATE OR REPLACE FUNCTION forget_workers() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    DELETE FROM workers
    WHERE seen + greatest(10 * lease, interval '1 hour') < clock_timestamp()
        AND NOT EXISTS (SELECT 1 FROM drives WHERE drives.owner = workers.id);
    DELETE FROM slots WHERE NOT EXISTS (SELECT 1 FROM workers WHERE workers.id = slots.worker)
$$;

CREATE OR REPLACE FUNCTION leave_workers(worker bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    remote drives[];
BEGIN
    PERFORM pg_advisory_xact_lock(presence_of(worker));
    PERFORM 1 FROM drives WHERE owner = worker ORDER BY node DESC FOR NO KEY UPDATE;
    SELECT array_agg(drives) INTO remote FROM drives WHERE owner = worker AND node <> tree;
    UPDATE drives
    SET owner = NULL, attempts = 0,
        wanted = CASE WHEN is_open(drives) OR has_messages(drives) THEN clock_timestamp() END
    WHERE owner = worker;
    PERFORM wake_caller(one) FROM unnest(remote) AS one WHERE NOT is_open(one);
    DELETE FROM slots WHERE slots.worker = leave_workers.worker;
    DELETE FROM workers WHERE id = worker;
END
$$;

CREATE OR REPLACE FUNCTION drain_worker(worker bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE workers SET drain = true WHERE id = worker;
    RETURN FOUND;
END
$$;

-- Become the owner of a drive, and reserve so many node ids for it. A worker that owns it already
-- gets a new epoch: it may not have heard that it does.
CREATE OR REPLACE FUNCTION adopt(
    worker bigint, its_node bigint, ids bigint, OUT its_tree bigint, OUT its_epoch integer,
    OUT its_written bigint, OUT its_attempts integer, OUT messages boolean, OUT first_id bigint
) RETURNS SETOF record
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
DECLARE
    found drives;
    dead integer;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(presence_of(worker));
    SELECT * INTO found FROM drives WHERE node = its_node FOR NO KEY UPDATE;
    -- Only now: getting the lock may have taken a while.
    IF NOT is_alive(worker) THEN
        RAISE EXCEPTION 'this worker counts as dead' USING ERRCODE = 'TF004';
    END IF;
    IF found.node IS NULL THEN
        RETURN;
    END IF;
    IF found.owner <> worker THEN
        IF NOT may_judge(worker) THEN
            RETURN;
        END IF;
        -- Its next heartbeat comes before this, and then it is alive, or hears of the loss.
        PERFORM 1 FROM workers WHERE id = found.owner AND NOT lives(workers) FOR SHARE;
        GET DIAGNOSTICS dead = ROW_COUNT;
        IF dead = 0 AND is_alive(found.owner) THEN
            RETURN;
        END IF;
    END IF;
    messages := has_messages(found);
    IF NOT messages AND NOT is_open(found) THEN
        UPDATE drives SET owner = NULL, wanted = NULL, wake_at = NULL
        WHERE node = its_node AND (owner IS NOT NULL OR wanted IS NOT NULL);
        -- Its last owner may have died before it could.
        PERFORM wake_caller(found);
        RETURN;
    END IF;
    UPDATE drives
    SET epoch = epoch + 1, owner = worker, wake_at = NULL,
        wanted = coalesce(wanted, clock_timestamp()),
        attempts = attempts + CASE WHEN found.owner <> worker THEN 1 ELSE 0 END
    WHERE node = its_node
    RETURNING tree, epoch, written, attempts INTO its_tree, its_epoch, its_written, its_attempts;
    -- Damaged messages do not keep it open, but its owner reads them, to report them.
    messages := messages OR EXISTS (SELECT 1 FROM inbox WHERE drive = its_node);
    UPDATE journal SET node = journal.node + ids WHERE ids > 0
    RETURNING journal.node - ids + 1 INTO first_id;
    RETURN NEXT;
END
$$;

-- Give up a drive; false if it should be parked and there is news: messages, or the end of an
-- awaited call. The lock is the one that ``post`` and ``wake_caller`` take, so what happens either
-- is seen here or finds the drive without an owner. An open drive is wanted again after so many
-- seconds, if any are given.
CREATE OR REPLACE FUNCTION release(
    worker bigint, its_node bigint, its_epoch integer, parked boolean, awaited bigint[],
    wake_in double precision
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
DECLARE
    found drives;
BEGIN
    SELECT * INTO found FROM drives
    WHERE node = its_node AND epoch = its_epoch AND owner = worker FOR NO KEY UPDATE;
    IF found.node IS NULL THEN
        RETURN true; -- another worker has it, or this was sent twice
    END IF;
    IF parked AND EXISTS (SELECT 1 FROM nodes WHERE id = ANY (awaited) AND NOT open) THEN
        RETURN false;
    END IF;
    IF has_messages(found) THEN
        IF parked THEN
            RETURN false;
        END IF;
        found.wanted := clock_timestamp();
    ELSIF NOT is_open(found) OR (parked AND wake_in IS NULL) THEN
        found.wanted := NULL;
    ELSE
        found.wanted := clock_timestamp();
        -- An interval has its limits, and timeouts have none.
        found.wake_at := CASE
            WHEN parked THEN clock_timestamp() + make_interval(secs => least(wake_in, 1e9))
        END;
    END IF;
    UPDATE drives SET owner = NULL, attempts = 0, wanted = found.wanted, wake_at = found.wake_at
    WHERE node = its_node;
    IF its_node <> found.tree AND NOT is_open(found) THEN
        PERFORM wake_caller(found);
    END IF;
    RETURN true;
END
$$;

-- Messages

CREATE OR REPLACE FUNCTION post(its_node bigint, its_body text, its_question text, its_token uuid)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    its_drive bigint := drive_of(its_node);
BEGIN
    PERFORM 1 FROM drives WHERE node = its_drive FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no such node' USING ERRCODE = 'TF005';
    END IF;
    IF EXISTS (SELECT 1 FROM inbox WHERE token = its_token) THEN
        RETURN true;
    END IF;
    IF its_question IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM questions WHERE id = its_question AND drive_of(node) = its_drive
    ) THEN
        RETURN false;
    END IF;
    -- A damaged answer is none: it gives way to this one.
    UPDATE inbox SET question = NULL
    WHERE question = its_question AND NOT EXISTS (
        SELECT 1 FROM whole_messages AS message WHERE message.id = inbox.id
    );
    INSERT INTO inbox (drive, body, question, token, hash)
    VALUES (
        its_drive, its_body, its_question, its_token,
        sha256(convert_to(concat(its_drive, ' ', its_question, ' ', its_body), 'UTF8'))
    )
    ON CONFLICT (question) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE drives SET wanted = coalesce(wanted, clock_timestamp()), wake_at = NULL
    WHERE node = its_drive AND (wanted IS NULL OR wake_at IS NOT NULL);
    RETURN true;
END
$$;

-- Answer a question. Who may not post commands may post nothing else than an answer to it.
CREATE OR REPLACE FUNCTION answer(its_question text, its_body text, its_token uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    its_node bigint;
    -- jsonb refuses lone surrogates and NUL, which are escaped in the text of an answer.
    readable text := regexp_replace(
        its_body, '\\u(0000|[dD][89a-fA-F][0-9a-fA-F]{2})', '\\ufffd', 'g'
    );
BEGIN
    IF NOT has_function_privilege(session_user, 'post(bigint, text, text, uuid)', 'EXECUTE') AND (
        readable::jsonb ->> 'do' IS DISTINCT FROM 'answer'
        OR readable::jsonb ->> 'id' IS DISTINCT FROM its_question
    ) THEN
        RAISE EXCEPTION 'it is not an answer' USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT node INTO its_node FROM questions WHERE id = its_question;
    IF NOT FOUND THEN
        -- It may have been posted, and handled, before the reply was lost.
        RETURN EXISTS (SELECT 1 FROM inbox WHERE token = its_token);
    END IF;
    RETURN post(its_node, its_body, its_question, its_token);
END
$$;

-- Remove a message, unless this worker does not own its drive any more. Nor may it when nobody does:
-- another one may have owned it meanwhile, and asked what the message answers.
CREATE OR REPLACE FUNCTION done(worker bigint, message bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    DELETE FROM inbox USING drives
    WHERE inbox.id = message AND drives.node = inbox.drive
        AND drives.owner = worker
$$;

-- Broadcasts

CREATE OR REPLACE FUNCTION watch() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    INSERT INTO watched (until) VALUES (clock_timestamp() + interval '10 s')
    ON CONFLICT (one) DO UPDATE SET until = excluded.until
$$;

-- Returns false, and keeps nothing, if nobody watches.
CREATE OR REPLACE FUNCTION broadcast(lines json) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
BEGIN
    -- One at a time, so that a reader that continues after the last id misses nothing.
    PERFORM 1 FROM watched WHERE until > clock_timestamp() FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO live (id, text)
    SELECT greatest(now, (SELECT max(id) FROM live)) + number, line
    FROM json_array_elements_text(lines) WITH ORDINALITY AS new (line, number);
    DELETE FROM live WHERE id < now - 60000000;
    RETURN true;
END
$$;

-- Trees

CREATE OR REPLACE FUNCTION delete_tree(its_tree bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM 1 FROM drives WHERE node = its_tree AND tree = its_tree FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no such tree' USING ERRCODE = 'TF005';
    END IF;
    IF EXISTS (SELECT 1 FROM nodes WHERE open AND tree = its_tree) THEN
        RAISE EXCEPTION 'the tree is open' USING ERRCODE = 'TF006';
    END IF;
    IF EXISTS (SELECT 1 FROM nodes WHERE source > 0 AND source = its_tree) THEN
        RAISE EXCEPTION 'the tree was forked' USING ERRCODE = 'TF007';
    END IF;
    -- Numbers of deleted rows are not used again.
    UPDATE journal SET
        node = greatest(
            journal.node,
            (SELECT max(nodes.id) FROM nodes),
            (
                SELECT nodes.id + nodes.inherited FROM nodes WHERE source > 0
                ORDER BY nodes.id DESC LIMIT 1
            )
        ),
        number = greatest(journal.number, (SELECT max(nodes.number) FROM nodes WHERE parent = 0));
    DELETE FROM inbox WHERE drive = its_tree;
    DELETE FROM inbox WHERE drive = ANY (
        ARRAY(SELECT node FROM drives WHERE node <> tree AND tree = its_tree)
    );
    UPDATE workers SET lost = lost + 1
    WHERE id IN (
        SELECT owner FROM drives WHERE node = its_tree OR (node <> tree AND tree = its_tree)
    );
    DELETE FROM questions WHERE tree = its_tree;
    DELETE FROM nodes WHERE id IN (SELECT node FROM events WHERE tree = its_tree AND n = 1);
    DELETE FROM events WHERE tree = its_tree;
    DELETE FROM texts WHERE tree = its_tree;
    DELETE FROM drives WHERE node = its_tree OR (node <> tree AND tree = its_tree);
    -- There is an index of each kind of hold.
    DELETE FROM holds WHERE lost AND account = ANY (
        ARRAY(SELECT name FROM accounts WHERE tree > 0 AND tree = its_tree)
    );
    DELETE FROM holds WHERE NOT lost AND account = ANY (
        ARRAY(SELECT name FROM accounts WHERE tree > 0 AND tree = its_tree)
    );
    DELETE FROM histories WHERE account = ANY (
        ARRAY(SELECT name FROM accounts WHERE tree > 0 AND tree = its_tree)
    );
    DELETE FROM accounts WHERE tree > 0 AND tree = its_tree;
END
$$;

-- Limits

-- Set how many slots of each limit a worker has, all or none. Where a limit says what all living workers
-- may have at most, the worker itself has to be alive, without doubt, and there have to be enough left:
-- otherwise return false. What is sent again with the same turn is set once, and what arrives after a
-- later turn is not set any more: a client that does not know whether a call arrived says with the next
-- how many slots it has.
CREATE OR REPLACE FUNCTION set_slots(its_worker bigint, its_turn bigint, its_slots json)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    key bigint;
    latest bigint;
BEGIN
    -- Those who want more take their turns, in one order.
    FOR key IN
        SELECT hashtextextended(current_schema() || ' ' || name, 0)
        FROM json_to_recordset(its_slots) AS given (name text, most integer)
        WHERE most IS NOT NULL ORDER BY 1
    LOOP
        PERFORM pg_advisory_xact_lock(key);
    END LOOP;
    SELECT max(turn) INTO latest
    FROM slots JOIN json_to_recordset(its_slots) AS given (name text) USING (name)
    WHERE worker = its_worker;
    IF latest >= its_turn THEN
        RETURN latest = its_turn;
    END IF;
    IF EXISTS (
        SELECT 1
        FROM json_to_recordset(its_slots) AS given (name text, taken integer, most integer)
        WHERE most IS NOT NULL AND (
            NOT may_judge(its_worker)
            OR taken + (
                SELECT coalesce(sum(slots.taken), 0) FROM slots
                WHERE slots.name = given.name AND worker <> its_worker AND slots.taken > 0
                    AND is_alive(worker)
            ) > most
        )
    ) THEN
        RETURN false;
    END IF;
    INSERT INTO slots (name, worker, taken, turn)
    SELECT name, its_worker, taken, its_turn
    FROM json_to_recordset(its_slots) AS given (name text, taken integer)
    WHERE EXISTS (SELECT 1 FROM workers WHERE id = its_worker)
    ORDER BY name
    ON CONFLICT (name, worker) DO UPDATE SET taken = excluded.taken, turn = excluded.turn
    WHERE slots.turn < excluded.turn;
    RETURN true;
END
$$;

-- Take a request with so many tokens out of each bucket, or none: then return for how many seconds
-- to wait. A request that is larger than a bucket needs a full one, and leaves a debt.
CREATE OR REPLACE FUNCTION take_rates(rates json, its_tokens double precision)
RETURNS double precision
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    now timestamptz;
    seconds double precision;
BEGIN
    INSERT INTO buckets (name, requests, tokens, at)
    SELECT name, requests, tokens, clock_timestamp()
    FROM json_to_recordset(rates) AS rate (
        name text, requests double precision, tokens double precision
    )
    ORDER BY name ON CONFLICT DO NOTHING;
    PERFORM 1 FROM buckets
    WHERE name IN (SELECT rate.name FROM json_to_recordset(rates) AS rate (name text))
    ORDER BY name FOR UPDATE;
    now := clock_timestamp();
    UPDATE buckets
    SET requests = least(
            rate.requests,
            buckets.requests + rate.rpm * greatest(extract(epoch FROM now - at), 0) / 60
        ),
        tokens = least(
            rate.tokens,
            buckets.tokens + rate.tpm * greatest(extract(epoch FROM now - at), 0) / 60
        ),
        at = now
    FROM json_to_recordset(rates) AS rate (
        name text, rpm double precision, tpm double precision, requests double precision,
        tokens double precision
    )
    WHERE buckets.name = rate.name;
    SELECT max(greatest(
        0,
        (1 - buckets.requests) * 60 / nullif(rate.rpm, 0),
        (least(its_tokens, rate.tokens) - buckets.tokens) * 60 / nullif(rate.tpm, 0)
    )) INTO seconds
    FROM buckets JOIN json_to_recordset(rates) AS rate (
        name text, rpm double precision, tpm double precision, tokens double precision
    ) ON buckets.name = rate.name;
    IF seconds > 0 THEN
        RETURN seconds;
    END IF;
    UPDATE buckets SET requests = requests - 1, tokens = tokens - its_tokens
    WHERE name IN (SELECT rate.name FROM json_to_recordset(rates) AS rate (name text));
    RETURN 0;
END
$$;

-- Take more tokens out of buckets, or put some back, when it is known how many a request took.
CREATE OR REPLACE FUNCTION charge_rates(names json, more double precision) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM 1 FROM buckets WHERE name IN (SELECT json_array_elements_text(names))
    ORDER BY name FOR UPDATE;
    UPDATE buckets SET tokens = tokens - more
    WHERE name IN (SELECT json_array_elements_text(names));
END
$$;

-- Reserve a request in each account, or in none: then return the first that refuses it, or else the
-- first in which it has to wait, and what was spent and reserved there. All that it may take has to be
-- left; but one request at a time in each account is excused, and needs only its least (see ``Account``).
-- The client says what each account allows.
CREATE OR REPLACE FUNCTION set_aside(
    its_id uuid, its_drive bigint, its_epoch integer, its_accounts json, its_tokens bigint,
    its_usd numeric, its_least_tokens bigint, its_least_usd numeric,
    OUT refused text, OUT its_calls bigint, OUT used bigint, OUT paid numeric, OUT must_wait boolean
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    one record;
    excuses text[] := '{}';
BEGIN
    IF EXISTS (SELECT 1 FROM holds WHERE id = its_id) THEN
        RETURN; -- this was sent twice
    END IF;
    INSERT INTO accounts (name, tree, calls, tokens, usd)
    SELECT name, tree, 0, 0, 0
    FROM json_to_recordset(its_accounts) AS given (name text, tree bigint)
    ORDER BY name ON CONFLICT DO NOTHING;
    PERFORM 1 FROM accounts
    WHERE name IN (SELECT given.name FROM json_to_recordset(its_accounts) AS given (name text))
    ORDER BY name FOR UPDATE;
    WITH given AS (
        SELECT * FROM json_to_recordset(its_accounts) AS given (
            name text, history bigint, calls bigint, tokens bigint, usd numeric
        )
    ), added AS (
        INSERT INTO histories (account, tree) SELECT name, history FROM given WHERE history > 0
        ON CONFLICT DO NOTHING RETURNING account
    )
    UPDATE accounts
    SET calls = accounts.calls + given.calls, tokens = accounts.tokens + given.tokens,
        usd = accounts.usd + given.usd
    FROM added JOIN given ON given.name = added.account WHERE accounts.name = added.account;
    -- Requests of workers that are dead: nobody knows what they took, so they are charged with what was
    -- reserved. A worker that lives will charge what it took, also if it has given up the drive.
    WITH lost AS (
        UPDATE holds SET lost = true
        WHERE NOT lost AND is_alive(worker) IS NOT TRUE
            AND account IN (
                SELECT given.name FROM json_to_recordset(its_accounts) AS given (name text)
            )
        RETURNING holds.account, holds.tokens, holds.usd
    ), sums AS (
        SELECT account, count(*) AS calls, sum(tokens) AS tokens, sum(usd) AS usd
        FROM lost GROUP BY account
    )
    UPDATE accounts
    SET calls = accounts.calls + sums.calls, tokens = accounts.tokens + sums.tokens,
        usd = accounts.usd + sums.usd
    FROM sums WHERE accounts.name = sums.account;
    FOR one IN
        SELECT given.name, most_calls, most_tokens, most_usd, held.excused,
            accounts.tokens, accounts.usd, accounts.calls + held.calls AS all_calls,
            accounts.tokens + held.tokens AS all_tokens, accounts.usd + held.usd AS all_usd
        FROM json_to_recordset(its_accounts) AS given (
            name text, place integer, most_calls bigint, most_tokens bigint, most_usd numeric
        )
        JOIN accounts ON accounts.name = given.name
        CROSS JOIN LATERAL (
            SELECT count(*) AS calls, coalesce(bool_or(holds.excused), false) AS excused,
                coalesce(sum(holds.tokens), 0) AS tokens, coalesce(sum(holds.usd), 0) AS usd
            FROM holds
            WHERE holds.account = given.name AND NOT holds.lost
        ) AS held
        ORDER BY place
    LOOP
        IF one.all_calls >= one.most_calls OR one.tokens + its_least_tokens > one.most_tokens
            OR one.usd + its_least_usd > one.most_usd
        THEN
            refused := one.name;
            its_calls := one.all_calls;
            used := one.tokens;
            paid := one.usd;
            must_wait := false;
            RETURN;
        END IF;
        -- What is not limited is null, and so is every comparison with it.
        CONTINUE WHEN (one.all_tokens + its_tokens > one.most_tokens
            OR one.all_usd + its_usd > one.most_usd) IS NOT TRUE;
        IF NOT one.excused AND (one.all_tokens + its_least_tokens > one.most_tokens
            OR one.all_usd + its_least_usd > one.most_usd) IS NOT TRUE
        THEN
            excuses := excuses || one.name;
        ELSIF refused IS NULL THEN
            refused := one.name;
            its_calls := one.all_calls;
            used := one.all_tokens;
            paid := one.all_usd;
            must_wait := true;
        END IF;
    END LOOP;
    IF refused IS NOT NULL THEN
        RETURN;
    END IF;
    INSERT INTO holds (id, account, worker, tokens, usd, excused)
    SELECT its_id, name, (SELECT owner FROM drives WHERE node = its_drive AND epoch = its_epoch),
        CASE WHEN name = ANY (excuses) THEN its_least_tokens ELSE its_tokens END,
        CASE WHEN name = ANY (excuses) THEN its_least_usd ELSE its_usd END,
        name = ANY (excuses)
    FROM json_to_recordset(its_accounts) AS given (name text);
END
$$;

-- Replace a reservation, or what a lost request was charged with, by what the request took; nothing if
-- it was charged already.
CREATE OR REPLACE FUNCTION charge(its_id uuid, its_calls bigint, its_tokens bigint, its_usd numeric)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM 1 FROM accounts WHERE name IN (SELECT account FROM holds WHERE id = its_id)
    ORDER BY name FOR UPDATE;
    WITH over AS (
        DELETE FROM holds WHERE id = its_id RETURNING account, lost::integer AS lost, tokens, usd
    )
    UPDATE accounts
    SET calls = accounts.calls + its_calls - over.lost,
        tokens = accounts.tokens + its_tokens - over.lost * over.tokens,
        usd = accounts.usd + its_usd - over.lost * over.usd
    FROM over WHERE accounts.name = over.account;
END
$$;
