//! The names of the limits that a tenant may have: each is the key of its setting.

/// A limit of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Requests,
    Connections,
    Polls,
    Streams,
    Executions,
    OpenTasks,
    StateBytes,
    BlobBytes,
}

impl Limit {
    /// The key of the setting, which problems and metrics name.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Requests => "requests_per_second",
            Limit::Connections => "connections",
            Limit::Polls => "polls",
            Limit::Streams => "streams",
            Limit::Executions => "executions",
            Limit::OpenTasks => "open_tasks",
            Limit::StateBytes => "state_mib",
            Limit::BlobBytes => "blob_mib",
        }
    }
}
