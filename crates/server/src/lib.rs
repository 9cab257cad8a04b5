//! The server: protocol adapters that translate a wire request into commands for the coordinator, and its answers back.
//! They check what comes from outside, and decide nothing.
//!
//! `edge` receives requests and limits peers, `convert` holds the conversions that adapters share, and each protocol has
//! a folder of its own. No adapter imports another; `app`, `router` and `serve` put everything together.

mod admin;
mod app;
mod cache;
mod callbacks;
mod claims;
mod convert;
mod edge;
#[doc(hidden)]
pub mod fuzzing;
mod grpc;
pub mod inbox;
mod keys;
mod leases;
mod metrics;
mod push;
mod queues;
pub mod reapi;
mod redis_streams;
#[cfg(test)]
mod request_memory;
mod router;
mod serve;
mod tasks;
pub mod to_wire;

pub use admin::openapi;
pub use app::{App, Options};
pub use convert::ids::parse_task_id;
pub use convert::scope::fault_of_scope_name;
pub use convert::task_token::TOKEN_TTL_SECONDS;
pub use edge::audit_trail;
pub use edge::auth::{AuthMode, CertificateAttribute, CertificateRule, Grants, NewKey, Secret};
pub use edge::jwt::{ALGORITHMS, Algorithm, ClaimRule, IssuerOptions, Issuers, KeySource};
pub use edge::limits::{LimitsByTenant, TenantLimits};
pub use edge::listener::{Drained, Limits, Listener};
pub use edge::permissions;
pub use edge::receiving::Receiving;
pub use edge::tls::{Tls, TlsError, TlsFiles};
pub use grpc::Scheduler;
pub use metrics::{MAX_NAMED_QUEUES, Metrics};
pub use push::{PushOptions, fault_of_callback_url, task_envelope};
pub use redis_streams::{RedisOptions, RedisStreams, fault_of_redis_url};
pub use router::{document, router};
pub use serve::{serve, serve_with};
