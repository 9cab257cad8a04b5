//! Parses the queues that a worker polls.

use std::sync::Arc;

use authority::limits::MAX_POLL_QUEUES;

use crate::convert::names::{counted, name};
use crate::convert::problem::Problem;

/// The queue of a worker that names none, which is what the workers of the remote execution plan do.
const DEFAULT_QUEUE: &str = execution::EXECUTION_QUEUE;

pub(super) fn parse(queues: &[String]) -> Result<Vec<Arc<str>>, Problem> {
    if queues.is_empty() {
        return Ok(vec![Arc::from(DEFAULT_QUEUE)]);
    }
    counted("queues", queues.len(), 1..=MAX_POLL_QUEUES)?;
    queues.iter().enumerate().map(|(n, queue)| name(&format!("queues[{n}]"), queue)).collect()
}
