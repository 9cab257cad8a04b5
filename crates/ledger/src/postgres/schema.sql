-- The schema of the PostgreSQL backend, in the version of `SCHEMA_VERSION`. Whoever changes it adds a migration.

CREATE SCHEMA lessor;

CREATE TABLE lessor.cluster (
    one bool PRIMARY KEY DEFAULT true CHECK (one),
    id bytea NOT NULL,
    shards int NOT NULL,
    -- The version of this schema.
    schema_version int NOT NULL,
    -- The oldest version whose software can use this schema.
    usable_from int NOT NULL DEFAULT 2,
    -- The record format that nodes may write.
    format int NOT NULL,
    -- A fingerprint of the cluster key; a node with another key is refused.
    key_print bytea NOT NULL
);

-- The ledger. Each row names its batch by a link that depends on all batches before it. The row
-- before the first batch of a shard holds no record; the first trim removes it.
CREATE TABLE lessor.batch (
    shard int,
    first int8,
    next int8 NOT NULL CHECK (next > first),
    at int8 NOT NULL,
    epoch int8 NOT NULL,
    link bytea NOT NULL,
    -- 0: as it is, 1: zstd.
    codec int2 NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (shard, first)
) WITH (fillfactor = 100, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
    -- Bodies that fit stay in the row: out of line they would be several rows of another table.
    toast_tuple_target = 8160);
-- Bodies are compressed already.
ALTER TABLE lessor.batch ALTER body SET STORAGE EXTERNAL;

-- Written last: makes the blocks a snapshot.
CREATE TABLE lessor.snapshot (
    shard int,
    id uuid,
    begin_ int8 NOT NULL,
    end_ int8 NOT NULL,
    blocks int NOT NULL,
    bytes int8 NOT NULL,
    PRIMARY KEY (shard, id)
);

CREATE TABLE lessor.snapshot_block (
    shard int,
    id uuid,
    n int,
    crc int8 NOT NULL,
    body bytea NOT NULL,
    made timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (shard, id, n)
);
ALTER TABLE lessor.snapshot_block ALTER body SET STORAGE EXTERNAL;

CREATE TABLE lessor.projection_offset (
    shard int,
    projection text,
    at int8 NOT NULL,
    epoch int8 NOT NULL,
    PRIMARY KEY (shard, projection)
);

-- The nodes of the cluster. A commit to a node's own row is also its barrier: it returns only when everything before it is
-- as durable as the server promises.
CREATE TABLE lessor.node (
    node text PRIMARY KEY,
    -- The process that holds the name; 0: nobody.
    instance int8 NOT NULL DEFAULT 0,
    address text NOT NULL DEFAULT '',
    version text NOT NULL DEFAULT '',
    -- The newest record format that the node reads.
    format int NOT NULL DEFAULT 1,
    -- The position of the record that a standby applies next.
    applied int8 NOT NULL DEFAULT 0,
    -- Whether the owner sends its batches to the node.
    fed bool NOT NULL DEFAULT false,
    -- Whether a standby could take over at once.
    hot bool NOT NULL DEFAULT false,
    -- The last batch that a standby holds, and the server on which it has said so.
    held_epoch int8 NOT NULL DEFAULT 0,
    held int8 NOT NULL DEFAULT 0,
    held_on int8 NOT NULL DEFAULT 0,
    -- The time of an owner when it last said that it lives.
    beat int8 NOT NULL DEFAULT 0,
    -- The node leaves: it owns nothing while a node lives that stays. An operator sets it to make the node leave.
    draining bool NOT NULL DEFAULT false,
    -- The connections of clients that are open.
    connections int8 NOT NULL DEFAULT 0,
    seen timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- A hint for routing; the ledger is authoritative.
CREATE TABLE lessor.shard_owner (
    shard int PRIMARY KEY,
    node text NOT NULL,
    address text NOT NULL,
    epoch int8 NOT NULL,
    reason text NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    -- The server that held everything which an owner knew to be durable, by the time of its start.
    server int8 NOT NULL DEFAULT 0
);
