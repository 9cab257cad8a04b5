//! Remote execution as its clients meet it: over real gRPC and HTTP, with a real coordinator and a real store behind it.

mod caching;
mod executing;
mod http_cache;
mod inputs;
mod merging;
mod operations;
mod support;
