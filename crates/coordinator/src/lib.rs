//! The coordinator: the single writer around the authority.
//!
//! It takes everything that has arrived since the last batch, decides and applies each, makes the records durable
//! with one sync, and only then lets the answers out.

mod batch_stats;
mod clock;
mod driver;
pub mod engine;
mod handle;
mod history;
mod journal_line;
mod log_budget;
mod metrics;
mod projection;
mod projection_runner;
mod purged;
mod replica;
mod request;
mod rules;
mod standby;
mod waiting;

pub use batch_stats::BatchStats;
pub use clock::{Clock, wall};
pub use driver::{
    EMBEDDED_NODE, Failure, INBOX_REQUESTS, Options, ProjectionsEnded, Running, StartError, StartReport,
    start,
};
pub use engine::{
    Activity, ChargeUpload, FindHeld, HeldLeases, LeaseHolder, LeaseKey, Liveness, Registered, Registration,
    Registry, UploadCharge, WorkerStatus,
};
pub use handle::{
    BoxFuture, Call, CallReply, ConfigurationFollower, Consistency, DEFAULT_FAILOVER_WAIT, EARLY_MS, Handle,
    Inbound, NodeAddress, Notice, NoticeSource, Notices, OwnerHint, Peer, PeerError, RegistryCall,
    RegistryReply, Router, RouterOptions, answer_to_repeat,
};
pub use history::{History, HistoryError, HistoryReader, MAX_HISTORY_RECORDS};
pub use journal_line::JournalLine;
pub use ledger::HistoryRecord;
pub use ledger::postgres::{Inbox, InboxRow};
pub use log_budget::LogBudget;
pub use metrics::{Metrics, limited_counter};
pub use projection::Projection;
pub use projection_runner::ProjectionRunner;
pub use purged::PurgedTask;
pub use replica::Replica;
pub use request::{
    Answers, Batch, BatchItem, Depth, Order, OrderRefusal, OrderWorker, Progress, Read, Reply, Request,
    Status, TaskDetail, TenantStatus, TenantWorker, Unavailable, WaitCondition, WorkerView,
};
pub use rules::first_time;
pub use standby::{Owner, Standby};
