-- The tables of one project, version 2. They are created in the first schema of the search path.
-- Columns whose names end in crc have the checksums of others (checksums.py).

-- One row: the id of the journal, and the highest node id and tree number that were reserved.
CREATE TABLE journal (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id text NOT NULL,
    version integer NOT NULL,
    node bigint NOT NULL DEFAULT 0,
    number bigint NOT NULL DEFAULT 0
);
INSERT INTO journal (id, version) VALUES (replace(gen_random_uuid()::text, '-', ''), 2);

-- A process that may own drives. It counts as dead when it was not seen for its lease. A server is known
-- by when it was started, and lost grows when the process may have lost drives.
CREATE TABLE workers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    host text NOT NULL,
    process bigint NOT NULL,
    functions json NOT NULL,
    queues json NOT NULL,
    lease interval NOT NULL,
    seen timestamptz NOT NULL,
    server timestamptz NOT NULL,
    lost bigint NOT NULL DEFAULT 0,
    drain boolean NOT NULL DEFAULT false,
    load json NOT NULL DEFAULT '{}'
);

-- Whatever is owned on its own: a whole tree (node = tree), or a call that runs elsewhere.
-- The row of a whole tree also counts the places of its entries, those of other drives included:
-- with two rows an append would update one more.
CREATE TABLE drives (
    node bigint PRIMARY KEY,
    tree bigint NOT NULL,
    epoch integer NOT NULL DEFAULT 0,
    written bigint NOT NULL DEFAULT 0,
    last bigint NOT NULL DEFAULT 0,
    owner bigint,
    attempts integer NOT NULL DEFAULT 0,
    wanted timestamptz,
    wake_at timestamptz,
    queue text NOT NULL,
    priority integer NOT NULL
) WITH (fillfactor = 70); -- room for updates that leave the indexes alone
-- By when they are due, and since when they are wanted, so that neither those that sleep nor those that
-- have an owner are read, and of the others a page: in all queues, and in some.
CREATE INDEX drives_due ON drives (coalesce(wake_at, '-infinity'), wanted, node)
WHERE wanted IS NOT NULL AND owner IS NULL;
CREATE INDEX drives_due_in_queue ON drives (queue, coalesce(wake_at, '-infinity'), wanted, node)
WHERE wanted IS NOT NULL AND owner IS NULL;
CREATE INDEX drives_owned ON drives (owner) WHERE owner IS NOT NULL;
CREATE INDEX drives_below ON drives (tree) WHERE node <> tree;

-- The journal itself. A place is counted within its tree, under a lock, so a reader that continues
-- after the last place it knows misses nothing.
CREATE TABLE events (
    tree bigint NOT NULL,
    place bigint NOT NULL,
    node bigint NOT NULL,
    n integer NOT NULL,
    kind text NOT NULL,
    body text NOT NULL,
    at double precision,
    state text,
    question text,
    settled text,
    crc bigint NOT NULL,
    PRIMARY KEY (tree, place),
    UNIQUE (node, n)
);

-- The current state, derived from the events. A top-level call has the parent 0, the number of its
-- tree as its number, and as its source the tree that was forked, if it is a fork.
CREATE TABLE nodes (
    id bigint PRIMARY KEY,
    tree bigint NOT NULL,
    drive bigint NOT NULL,
    parent bigint NOT NULL,
    call_key text NOT NULL,
    number bigint NOT NULL,
    function text NOT NULL,
    idles boolean NOT NULL,
    source bigint NOT NULL,
    inherited bigint NOT NULL,
    state text NOT NULL,
    open boolean NOT NULL,
    started double precision,
    ended double precision,
    crc bigint NOT NULL,
    state_crc bigint NOT NULL,
    started_crc bigint,
    UNIQUE (parent, call_key)
) WITH (fillfactor = 80);
CREATE INDEX nodes_open ON nodes (tree) WHERE open;
CREATE INDEX nodes_top ON nodes (id) WHERE parent = 0;
CREATE INDEX nodes_numbered ON nodes (number) WHERE parent = 0;
CREATE INDEX nodes_forked ON nodes (source) WHERE source > 0;
CREATE INDEX nodes_forks ON nodes (id) WHERE source > 0;
-- Not by the state: an update of a column that an index has anything to do with changes all indexes.
CREATE INDEX nodes_past ON nodes (function, ended) WHERE idles AND NOT open;

-- Long texts, once in each tree: two trees with the same text cannot get in each other's way when
-- one is deleted. As bytes, because a text of PostgreSQL has no NUL and no lone surrogate.
CREATE TABLE texts (
    tree bigint NOT NULL,
    hash bytea NOT NULL,
    text bytea NOT NULL,
    crc bigint NOT NULL,
    PRIMARY KEY (tree, hash)
);

-- The pending questions, and the calls that sleep, which ask nobody; their text is in the event.
-- A row is due when its question expires or somebody else is asked, or a sleep ends.
CREATE TABLE questions (
    id text PRIMARY KEY,
    node bigint NOT NULL,
    tree bigint NOT NULL,
    place bigint NOT NULL,
    asks boolean NOT NULL,
    in_doubt boolean NOT NULL,
    due double precision,
    crc bigint NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY
);
CREATE INDEX questions_asked ON questions (number) WHERE asks;
CREATE INDEX questions_in_doubt ON questions (number) WHERE in_doubt; -- these are counted
CREATE INDEX questions_due ON questions (due) WHERE due IS NOT NULL;
CREATE INDEX questions_by_node ON questions (node);
CREATE INDEX questions_by_tree ON questions (tree);

-- Messages for the owner of a drive. The token identifies a message that is sent again after a
-- lost connection. The server computes the hash: a role that may only answer must not be able to
-- post what looks like damage.
CREATE TABLE inbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    drive bigint NOT NULL,
    body text NOT NULL,
    question text UNIQUE,
    token uuid NOT NULL UNIQUE,
    hash bytea NOT NULL
);
CREATE INDEX inbox_by_drive ON inbox (drive);

-- Broadcasts, for a minute, and only while somebody reads them. An id is the time in microseconds,
-- or the next number: a crash of the server empties these tables, and sequences of theirs.
CREATE UNLOGGED TABLE live (
    id bigint PRIMARY KEY,
    text text NOT NULL
);
CREATE UNLOGGED TABLE watched (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    until timestamptz NOT NULL
);

-- Saved chats: linked lists of exchanges, as in a SQLite file.
CREATE TABLE entries (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    previous bigint REFERENCES entries (id) CHECK (previous < id),
    exchange text NOT NULL
);
CREATE INDEX entries_by_previous ON entries (previous);
CREATE TABLE sessions (
    name text PRIMARY KEY,
    head bigint REFERENCES entries (id),
    length bigint NOT NULL DEFAULT 0,
    unsent text NOT NULL DEFAULT '[]',
    model text NOT NULL,
    preview text NOT NULL,
    created double precision NOT NULL,
    updated double precision NOT NULL
);
CREATE INDEX sessions_by_head ON sessions (head);

-- How many requests each worker has under way that fall under a limit. They count as long as the worker
-- is alive, whatever happens to its connections, and again if it lives again. A turn counts what the
-- worker has said, so that a statement that was lost on the way and arrives late changes nothing.
CREATE TABLE slots (
    name text NOT NULL,
    worker bigint NOT NULL,
    taken integer NOT NULL,
    turn bigint NOT NULL,
    PRIMARY KEY (name, worker)
) WITH (fillfactor = 50); -- room for updates that leave the index alone

-- Requests and tokens that may be sent just now, for each rate. A crash of the server fills them.
CREATE UNLOGGED TABLE buckets (
    name text PRIMARY KEY,
    requests double precision NOT NULL,
    tokens double precision NOT NULL,
    at timestamptz NOT NULL
);

-- What was spent of each budget that several workers spend; tree is 0 for one that outlives trees.
CREATE TABLE accounts (
    name text PRIMARY KEY,
    tree bigint NOT NULL,
    calls bigint NOT NULL,
    tokens bigint NOT NULL,
    usd numeric NOT NULL
);
CREATE INDEX accounts_by_tree ON accounts (tree) WHERE tree > 0;

-- What is reserved in accounts for requests under way: all that one may take, or only its least if it
-- is excused. If the worker dies, the request is charged with that, and the row is kept as lost: the
-- worker may only have been slow, and charge what it took after all.
CREATE TABLE holds (
    id uuid NOT NULL,
    account text NOT NULL,
    worker bigint,
    tokens bigint NOT NULL,
    usd numeric NOT NULL,
    excused boolean NOT NULL,
    lost boolean NOT NULL DEFAULT false,
    PRIMARY KEY (id, account)
);
CREATE INDEX holds_under_way ON holds (account) WHERE NOT lost;
CREATE INDEX holds_lost ON holds (account) WHERE lost;

-- The trees whose earlier spending is part of an account.
CREATE TABLE histories (
    account text NOT NULL,
    tree bigint NOT NULL,
    PRIMARY KEY (account, tree)
);

-- lz4 takes a fraction of the time of the default; not every server is built with it.
DO $$
BEGIN
    ALTER TABLE texts ALTER COLUMN text SET COMPRESSION lz4;
    ALTER TABLE events ALTER COLUMN body SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN
    NULL;
END
$$;
