//! Malformed, oversized, slow (byte by byte) and half-closed requests on each endpoint: a clear error or a closed
//! connection, nothing changes, and another client is served meanwhile.
//!
//! The endpoints are taken from the OpenAPI document, and those of gRPC from descriptors and generated dispatchers, so that a
//! new one cannot be forgotten. The bounds on time are short here; what they are for real is in `server::Receiving` and
//! `server::Limits`.

mod api_keys;
mod audit;
mod cache;
mod ended_keys;
mod endpoints;
mod farm;
mod foreign_content;
mod foreign_tenants;
mod foreign_workers;
mod grpc;
mod guarded;
mod hostile_keys;
#[path = "../../src/edge/jwt/hostile_tokens.rs"]
mod hostile_tokens;
mod http_bodies;
mod http_heads;
mod key_limits;
mod keyed;
mod peer;
mod permissions;
mod refused_everywhere;
mod remote;
mod served_calls;
#[path = "../support/store_server.rs"]
mod store_server;
#[path = "../http/support/mod.rs"]
mod support;
mod task_tokens;
mod tenant_limits;
mod tokens;
mod unknown_callers;
mod worker_content;
mod worker_identities;
mod worker_orders;
mod worker_properties;
mod worker_uploads;
