//! The coordinator: the single writer around the authority.
//!
//! It takes everything that has arrived since the last batch, decides and applies each, makes the records durable
//! with one sync, and only then lets the answers out.

mod clock;
mod driver;
mod effects;
pub mod engine;
mod follower;
mod handle;
mod history;
mod journal_line;
mod metrics;
mod request;
mod tally;
mod waiting;

pub use clock::{Clock, first_time, wall};
pub use driver::{Failure, INBOX_REQUESTS, Options, Running, StartError, StartReport, start, start_on};
pub use effects::Effect;
pub use engine::{Activity, Liveness, Registered, Registration, Registry, WorkerStatus};
pub use follower::Follower;
pub use handle::Handle;
pub use history::{History, HistoryError, HistoryReader, HistoryRecord, MAX_HISTORY_RECORDS};
pub use journal_line::JournalLine;
pub use ledger::file::ClusterId;
pub use metrics::Metrics;
pub use request::{
    Answers, Batch, BatchItem, Depth, Progress, Read, Reply, Request, Status, TaskDetail, Unavailable,
    WaitCondition, WorkerView,
};
pub use tally::Tally;
