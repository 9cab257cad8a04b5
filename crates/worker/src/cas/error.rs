//! Errors of the content store. A missing blob is not an error.

use crate::Failure;
use wire::grpc::ErrorCategory;

#[derive(Clone, Debug, thiserror::Error)]
pub enum CasError {
    /// It may work later: no connection, a time-out, a store that is full or about to stop.
    #[error("the content store is unavailable: {0}")]
    Unavailable(String),
    /// It would be refused again.
    #[error("the content store refuses: {0}")]
    Refused(String),
    /// The worker's own file failed.
    #[error("a file of the worker failed: {0}")]
    File(String),
}

impl From<CasError> for Failure {
    fn from(error: CasError) -> Failure {
        let message = error.to_string();
        match error {
            CasError::File(_) => Failure::broken(message),
            CasError::Unavailable(_) => {
                Failure::new(Failure::CAS_UNAVAILABLE, ErrorCategory::Infrastructure, message).retryable()
            }
            CasError::Refused(_) => {
                Failure::new(Failure::CAS_UNAVAILABLE, ErrorCategory::Infrastructure, message)
            }
        }
    }
}
