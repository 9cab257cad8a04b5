//! Actions with real processes: what the remote execution protocol asks of a worker, one test for each requirement.

mod environment;
mod hostile;
mod inputs;
mod limits;
mod outputs;
mod reuse;
pub(crate) mod support;
