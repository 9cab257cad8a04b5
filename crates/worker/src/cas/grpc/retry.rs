//! Repeats of calls to the content store: all of them can be made again without harm.

use std::time::Duration;

use tonic::{Code, Status};

use crate::cas::CasError;

const MAX_TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Makes a call until it is answered, or has failed often enough. The pauses add up to about one and a half seconds,
/// in which a store can be restarted.
pub async fn retried<T, F>(call: impl Fn() -> F) -> Result<T, CasError>
where
    F: Future<Output = Result<T, Status>>,
{
    let mut pause = FIRST_PAUSE;
    for _ in 1..MAX_TRIES {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(status) if !is_transient(status.code()) => return Err(told(&status)),
            Err(status) => tracing::debug!(%status, "a call to the content store is repeated"),
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    call().await.map_err(|status| told(&status))
}

pub fn told(status: &Status) -> CasError {
    let why = format!("{:?}: {}", status.code(), status.message());
    if is_transient(status.code()) { CasError::Unavailable(why) } else { CasError::Refused(why) }
}

fn is_transient(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::ResourceExhausted
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::Internal
            | Code::Unknown
            | Code::Cancelled
    )
}
