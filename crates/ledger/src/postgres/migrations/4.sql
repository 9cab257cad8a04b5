-- Version 4: compressed bodies of up to 8 KiB stay in the rows of the ledger.
ALTER TABLE lessor.batch SET (toast_tuple_target = 8160);
