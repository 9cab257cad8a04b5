//! Errors that prevent or end the work of a worker. An error of one attempt is a [`crate::Failure`].

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Setup(String),
    #[error("another process works under the id {worker_id}: it holds {}", lock.display())]
    InUse { worker_id: String, lock: PathBuf },
    #[error("another session of {worker_id} has registered since, so this one has stopped")]
    Superseded { worker_id: String },
    #[error("the coordinator refuses this worker: {0}")]
    Refused(String),
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: impl Into<std::io::Error>) -> Error {
        Error::Io { what: what.into(), source: source.into() }
    }
}
