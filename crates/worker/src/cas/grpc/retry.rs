//! Retries calls to the content store. All of them are idempotent.

use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable};
use tonic::{Code, Status};

use crate::cas::CasError;

/// The delays are short, so that a store that is back is soon noticed.
const DELAYS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(50))
    .with_max_delay(Duration::from_millis(250))
    .without_max_times();

/// Makes a call until it is answered, or has failed for so long that the store is taken for gone.
pub(super) async fn retried<T, F>(patience: Duration, call: impl Fn() -> F) -> Result<T, CasError>
where
    F: Future<Output = Result<T, Status>>,
{
    let begun = Instant::now();
    call.retry(DELAYS)
        .when(|status| is_transient(status.code()))
        .adjust(|_, delay| delay.filter(|delay| begun.elapsed() + *delay <= patience))
        .notify(|status, _| tracing::debug!(%status, "a call to the content store is repeated"))
        .await
        .map_err(|status| to_cas_error(&status))
}

pub(super) fn to_cas_error(status: &Status) -> CasError {
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
