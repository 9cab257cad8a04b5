//! Conversions from the authority's types to the wire's, for tools that render them without a server.

pub use crate::convert::push_target::shown as push_target;
pub use crate::convert::task_json::{json, state, task};
pub use crate::convert::time::shown as time;
