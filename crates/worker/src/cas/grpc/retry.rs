//! Repeats of calls to the content store: all of them can be made again without harm.

use std::time::{Duration, Instant};

use tonic::{Code, Status};

use crate::cas::CasError;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause: a store that is back is soon noticed.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// Makes a call until it is answered, or has failed for so long that the store is taken for gone.
pub async fn retried<T, F>(patience: Duration, call: impl Fn() -> F) -> Result<T, CasError>
where
    F: Future<Output = Result<T, Status>>,
{
    let begun = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(status) if !is_transient(status.code()) || begun.elapsed() + pause > patience => {
                return Err(told(&status));
            }
            Err(status) => tracing::debug!(%status, "a call to the content store is repeated"),
        }
        tokio::time::sleep(pause).await;
        pause = MAX_PAUSE.min(pause * 2);
    }
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
