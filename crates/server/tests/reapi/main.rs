//! Remote execution as its clients meet it: over real gRPC and HTTP, with a real coordinator and a real store behind it.

mod batches;
mod caching;
mod commands;
mod content_server;
mod cut_off;
mod digests;
mod executing;
mod full_store;
mod http_cache;
mod inputs;
mod merging;
mod missing_outputs;
mod operations;
mod slow_checks;
#[path = "../../../blobs/tests/common/small_disk.rs"]
mod small_disk;
mod stalling;
#[path = "../support/store_server.rs"]
mod store_server;
mod support;
mod trees;
mod uploads;
