//! Conversions from the authority's types to the wire's, for tools that render them without a server.

pub use crate::convert::push_target::to_wire as push_target;
pub use crate::convert::task_json::{state_to_wire as state, to_json as json, to_wire as task};
pub use crate::convert::time::to_timestamp as time;
