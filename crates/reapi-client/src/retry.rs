//! Repeats calls that fail on the way. All of them are idempotent.

use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable};

use crate::CasError;

/// The delays are short, so that a server that is back is soon noticed.
const DELAYS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(50))
    .with_max_delay(Duration::from_millis(250))
    .without_max_times();

/// Repeats a call until it is answered or `patience` is over.
pub(crate) async fn retried<T, F>(patience: Duration, call: impl Fn() -> F) -> Result<T, CasError>
where
    F: Future<Output = Result<T, CasError>>,
{
    let begun = Instant::now();
    call.retry(DELAYS)
        .when(is_retryable)
        .adjust(|_, delay| delay.filter(|delay| begun.elapsed() + *delay <= patience))
        .notify(|error, _| tracing::debug!(%error, "a call is repeated"))
        .await
}

/// Whether a later call may succeed.
pub(crate) fn is_retryable(error: &CasError) -> bool {
    matches!(error, CasError::Unavailable(_) | CasError::Exhausted(_))
}
