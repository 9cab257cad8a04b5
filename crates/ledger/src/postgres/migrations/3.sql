-- Version 3: which nodes can take over at once, and what each holds after a failover of the database.
ALTER TABLE lessor.node
    ADD COLUMN hot bool NOT NULL DEFAULT false,
    ADD COLUMN held_epoch int8 NOT NULL DEFAULT 0,
    ADD COLUMN held int8 NOT NULL DEFAULT 0,
    ADD COLUMN held_on int8 NOT NULL DEFAULT 0;
ALTER TABLE lessor.shard_owner ADD COLUMN server int8 NOT NULL DEFAULT 0;
