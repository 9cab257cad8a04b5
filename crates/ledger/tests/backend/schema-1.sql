-- The schema of the PostgreSQL backend, version 1.

CREATE SCHEMA lessor;

CREATE TABLE lessor.cluster (
    one bool PRIMARY KEY DEFAULT true CHECK (one),
    id bytea NOT NULL,
    shards int NOT NULL,
    -- The version of this schema.
    schema_version int NOT NULL,
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
) WITH (fillfactor = 100, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
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
    address text NOT NULL DEFAULT '',
    version text NOT NULL DEFAULT '',
    -- The newest record format that the node reads.
    format int NOT NULL DEFAULT 1,
    -- The position of the record that a standby applies next.
    applied int8 NOT NULL DEFAULT 0,
    -- The time of an owner when it last said that it lives.
    beat int8 NOT NULL DEFAULT 0,
    seen timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- A hint for routing; the ledger is authoritative.
CREATE TABLE lessor.shard_owner (
    shard int PRIMARY KEY,
    node text NOT NULL,
    address text NOT NULL,
    epoch int8 NOT NULL,
    reason text NOT NULL,
    since timestamptz NOT NULL DEFAULT now()
);

-- Tables for users: tasks and attempts as rows, and the way to enqueue a task in a transaction of one's own.
-- docs/tables.md describes them. The coordinator never reads what it writes here.

CREATE TABLE lessor.jobs (
    id uuid PRIMARY KEY,
    shard int NOT NULL,
    tenant text NOT NULL,
    workspace text NOT NULL,
    queue text NOT NULL,
    state text NOT NULL,
    reason text,
    reason_detail text,
    attempt int NOT NULL,
    used_attempts int NOT NULL,
    max_attempts int,
    priority int NOT NULL,
    payload jsonb,
    result jsonb,
    error_category text,
    error_code text,
    error_message text,
    stack_trace text,
    metrics jsonb,
    partial_progress jsonb,
    cancelled_during_phase text,
    properties jsonb,
    dedup_key text,
    run_id text,
    asset_id text,
    task_key text,
    resources jsonb,
    created_at timestamptz NOT NULL,
    not_before timestamptz,
    deadline timestamptz,
    timeout_ms int8,
    finished_at timestamptz,
    worker text,
    contract text,
    fencing_token int8,
    granted_at timestamptz,
    expires_at timestamptz,
    started_by text,
    cancel_reason text,
    cancel_requested_at timestamptz,
    cancel_grace_until timestamptz,
    redrive_of uuid,
    position int8 NOT NULL
-- Every task is updated a few times: updates find space on the page of the row, and touch no index.
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

COMMENT ON TABLE lessor.jobs IS 'One row for each task that is kept, as the API shows it.';
COMMENT ON COLUMN lessor.jobs.id IS 'The task id.';
COMMENT ON COLUMN lessor.jobs.shard IS 'The shard of the ledger that records the task.';
COMMENT ON COLUMN lessor.jobs.tenant IS 'The tenant of the queue.';
COMMENT ON COLUMN lessor.jobs.workspace IS 'The workspace of the queue.';
COMMENT ON COLUMN lessor.jobs.queue IS 'The name of the queue.';
COMMENT ON COLUMN lessor.jobs.state IS 'WAITING, LEASED, COMPLETED, FAILED or DEAD.';
COMMENT ON COLUMN lessor.jobs.reason IS 'Why the task is DEAD, or the category of the error of a FAILED one.';
COMMENT ON COLUMN lessor.jobs.reason_detail IS 'The words of whoever asked for the end, or of the worker that failed.';
COMMENT ON COLUMN lessor.jobs.attempt IS 'How often the task was leased.';
COMMENT ON COLUMN lessor.jobs.used_attempts IS 'How many of these leases count: all but those that were given back.';
COMMENT ON COLUMN lessor.jobs.max_attempts IS 'How many attempts the task has; null where its queue decides.';
COMMENT ON COLUMN lessor.jobs.priority IS 'Lower is sooner.';
COMMENT ON COLUMN lessor.jobs.payload IS 'What the worker gets; null above tables_payload_kib, or where jsonb cannot hold it.';
COMMENT ON COLUMN lessor.jobs.result IS 'What the worker reported with its completion; null as for payload.';
COMMENT ON COLUMN lessor.jobs.error_category IS 'The category of the newest failure of a task that has not completed.';
COMMENT ON COLUMN lessor.jobs.error_code IS 'The worker''s code of that failure.';
COMMENT ON COLUMN lessor.jobs.error_message IS 'The worker''s words about that failure.';
COMMENT ON COLUMN lessor.jobs.stack_trace IS 'The stack trace of that failure.';
COMMENT ON COLUMN lessor.jobs.metrics IS 'The metrics of the newest report; null as for payload.';
COMMENT ON COLUMN lessor.jobs.partial_progress IS 'What the next attempt receives from a failed one; null as for payload.';
COMMENT ON COLUMN lessor.jobs.cancelled_during_phase IS 'Where an attempt was when it stopped because of a cancel.';
COMMENT ON COLUMN lessor.jobs.properties IS 'What a worker must offer to get the task.';
COMMENT ON COLUMN lessor.jobs.dedup_key IS 'The dedup key.';
COMMENT ON COLUMN lessor.jobs.run_id IS 'The run that the submitter named.';
COMMENT ON COLUMN lessor.jobs.asset_id IS 'The asset that the submitter named.';
COMMENT ON COLUMN lessor.jobs.task_key IS 'The task key that the submitter named.';
COMMENT ON COLUMN lessor.jobs.resources IS 'A JSON object for the worker; null as for payload.';
COMMENT ON COLUMN lessor.jobs.created_at IS 'When the task was accepted.';
COMMENT ON COLUMN lessor.jobs.not_before IS 'A waiting task is not leased before this time.';
COMMENT ON COLUMN lessor.jobs.deadline IS 'When the task is dead, or asked to stop, unless it is done.';
COMMENT ON COLUMN lessor.jobs.timeout_ms IS 'How long one attempt may take.';
COMMENT ON COLUMN lessor.jobs.finished_at IS 'When the task became final.';
COMMENT ON COLUMN lessor.jobs.worker IS 'Who holds the lease, while the task is LEASED.';
COMMENT ON COLUMN lessor.jobs.contract IS 'The contract through which the lease was granted.';
COMMENT ON COLUMN lessor.jobs.fencing_token IS 'The position of the lease''s record.';
COMMENT ON COLUMN lessor.jobs.granted_at IS 'When the lease was granted.';
COMMENT ON COLUMN lessor.jobs.expires_at IS 'When the lease ends unless it is extended.';
COMMENT ON COLUMN lessor.jobs.started_by IS 'Who really began the attempt, where a contract says so.';
COMMENT ON COLUMN lessor.jobs.cancel_reason IS 'Why the task was asked to stop.';
COMMENT ON COLUMN lessor.jobs.cancel_requested_at IS 'When the task was asked to stop.';
COMMENT ON COLUMN lessor.jobs.cancel_grace_until IS 'When the task is dead, whatever its worker does.';
COMMENT ON COLUMN lessor.jobs.redrive_of IS 'The dead letter that this task does again.';
COMMENT ON COLUMN lessor.jobs.position IS 'The position of the task''s newest record.';

CREATE TABLE lessor.job_attempts (
    job_id uuid,
    attempt int,
    tenant text NOT NULL,
    workspace text NOT NULL,
    queue text NOT NULL,
    worker text NOT NULL,
    contract text,
    fencing_token int8 NOT NULL,
    granted_at timestamptz NOT NULL,
    started_by text,
    ended_at timestamptz NOT NULL,
    outcome text NOT NULL,
    reason text,
    error_category text,
    error_code text,
    error_message text,
    position int8 NOT NULL,
    PRIMARY KEY (job_id, attempt)
);

COMMENT ON TABLE lessor.job_attempts IS 'One row for each attempt that is over, as long as its task is kept.';
COMMENT ON COLUMN lessor.job_attempts.job_id IS 'The task id.';
COMMENT ON COLUMN lessor.job_attempts.attempt IS 'The number of the attempt, from 1.';
COMMENT ON COLUMN lessor.job_attempts.tenant IS 'The tenant of the queue.';
COMMENT ON COLUMN lessor.job_attempts.workspace IS 'The workspace of the queue.';
COMMENT ON COLUMN lessor.job_attempts.queue IS 'The name of the queue.';
COMMENT ON COLUMN lessor.job_attempts.worker IS 'Who held the lease.';
COMMENT ON COLUMN lessor.job_attempts.contract IS 'The contract through which the lease was granted.';
COMMENT ON COLUMN lessor.job_attempts.fencing_token IS 'The position of the lease''s record.';
COMMENT ON COLUMN lessor.job_attempts.granted_at IS 'When the lease was granted.';
COMMENT ON COLUMN lessor.job_attempts.started_by IS 'Who really began the attempt, where a contract says so.';
COMMENT ON COLUMN lessor.job_attempts.ended_at IS 'When the attempt ended.';
COMMENT ON COLUMN lessor.job_attempts.outcome IS 'COMPLETED, FAILED, EXPIRED, RELEASED, or DEAD when its task was cancelled or killed.';
COMMENT ON COLUMN lessor.job_attempts.reason IS 'Why the attempt is EXPIRED, RELEASED or DEAD.';
COMMENT ON COLUMN lessor.job_attempts.error_category IS 'The category of the error that its worker reported.';
COMMENT ON COLUMN lessor.job_attempts.error_code IS 'The worker''s code of the error.';
COMMENT ON COLUMN lessor.job_attempts.error_message IS 'The worker''s words about the error.';
COMMENT ON COLUMN lessor.job_attempts.position IS 'The position of the record that ended the attempt.';

CREATE VIEW lessor.job_leases AS
SELECT id AS job_id, attempt, tenant, workspace, queue, worker, contract, fencing_token, granted_at, expires_at, started_by
FROM lessor.jobs WHERE state = 'LEASED';
COMMENT ON VIEW lessor.job_leases IS 'The leases that are held now.';

CREATE VIEW lessor.job_attempts_all AS
SELECT job_id, attempt, tenant, workspace, queue, worker, contract, fencing_token, granted_at, started_by, ended_at,
    outcome, reason, error_category, error_code, error_message FROM lessor.job_attempts
UNION ALL
SELECT job_id, attempt, tenant, workspace, queue, worker, contract, fencing_token, granted_at, started_by,
    NULL, NULL, NULL, NULL, NULL, NULL FROM lessor.job_leases;
COMMENT ON VIEW lessor.job_attempts_all IS 'All attempts; an attempt without an outcome is not over.';

CREATE VIEW lessor.dead_letters AS SELECT * FROM lessor.jobs WHERE state IN ('FAILED', 'DEAD');
COMMENT ON VIEW lessor.dead_letters IS 'The tasks that ended without a result.';

-- How far the tables are. A row changes when an owner begins, not with every batch.
CREATE TABLE lessor.table_state (
    shard int PRIMARY KEY,
    -- Every batch from this position on was committed with its changes; null while batches come without.
    since int8,
    -- The tables hold every record up to here. With `complete`, they hold every record.
    position int8 NOT NULL DEFAULT 0,
    complete bool NOT NULL DEFAULT false
) WITH (fillfactor = 50);

CREATE VIEW lessor.projected AS
SELECT shard, CASE WHEN complete THEN ledger.position ELSE tables.position END AS position,
    ledger.position AS ledger_position, complete
FROM lessor.table_state AS tables CROSS JOIN LATERAL (
    SELECT next - 1 AS position FROM lessor.batch WHERE batch.shard = tables.shard ORDER BY first DESC LIMIT 1
) AS ledger;
COMMENT ON VIEW lessor.projected IS 'How far the tables are: position equals ledger_position when they lack nothing.';

-- Tasks that were enqueued and are not recorded yet.
CREATE TABLE lessor.inbox (
    id uuid PRIMARY KEY,
    shard int NOT NULL,
    tenant text NOT NULL,
    workspace text NOT NULL,
    queue text NOT NULL,
    payload jsonb NOT NULL CHECK (octet_length(payload::text) <= 1048576),
    options jsonb NOT NULL CHECK (octet_length(options::text) <= 65536),
    enqueued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Why the task is not accepted yet, and when it is tried again.
    refused text,
    retry_at timestamptz NOT NULL DEFAULT '-infinity'
);
COMMENT ON TABLE lessor.inbox IS 'Tasks that were enqueued and are not recorded yet.';

-- The task exists when the caller's transaction commits. Its id is a UUID of version 7, with the shard in the 12 bits
-- after the version.
CREATE FUNCTION lessor.enqueue(queue text, payload jsonb, options jsonb DEFAULT '{}') RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job uuid := (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::int8), 12, '0') || '7000'
        || substr(replace(gen_random_uuid()::text, '-', ''), 17))::uuid;
    tenant text := coalesce(options->>'tenant', 'default');
    workspace text := coalesce(options->>'workspace', 'default');
BEGIN
    IF enqueue.queue IS NULL OR octet_length(enqueue.queue) NOT BETWEEN 1 AND 512
        OR enqueue.queue ~ '[\u0001-\u001f\u007f-\u009f]' THEN
        RAISE EXCEPTION 'queue: must have 1 to 512 bytes and no control characters' USING ERRCODE = '22023';
    END IF;
    IF octet_length(tenant) NOT BETWEEN 1 AND 128 OR octet_length(workspace) NOT BETWEEN 1 AND 128
        OR tenant || workspace ~ '[\u0001-\u001f\u007f-\u009f]' THEN
        RAISE EXCEPTION 'tenant, workspace: must have 1 to 128 bytes and no control characters' USING ERRCODE = '22023';
    END IF;
    IF jsonb_typeof(coalesce(enqueue.options, '{}')) <> 'object' THEN
        RAISE EXCEPTION 'options: must be a JSON object' USING ERRCODE = '22023';
    END IF;
    INSERT INTO lessor.inbox (id, shard, tenant, workspace, queue, payload, options)
    VALUES (job, 0, tenant, workspace, enqueue.queue, coalesce(enqueue.payload, 'null'),
        coalesce(enqueue.options, '{}') - 'tenant' - 'workspace');
    PERFORM pg_notify('lessor_inbox', '');
    RETURN job;
END
$$;
REVOKE ALL ON FUNCTION lessor.enqueue(text, jsonb, jsonb) FROM PUBLIC;
COMMENT ON FUNCTION lessor.enqueue(text, jsonb, jsonb) IS 'Submits a task with the caller''s transaction, and returns its id.';
