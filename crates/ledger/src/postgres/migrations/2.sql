-- Version 2: a process holds the name of its node, is fed by the owner, and leaves; software of an
-- earlier version may use a later schema. Databases of version 1 that were created by
-- a development version may have these columns.
ALTER TABLE lessor.node
    ADD COLUMN IF NOT EXISTS instance int8 NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS fed bool NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS draining bool NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS connections int8 NOT NULL DEFAULT 0;
ALTER TABLE lessor.cluster ADD COLUMN usable_from int NOT NULL DEFAULT 2;
