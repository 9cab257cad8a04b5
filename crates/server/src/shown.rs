//! The authority's facts in the shapes of the wire, for tools that show them without a server.

pub use crate::ids::parse_task_id;
pub use crate::push::target::shown as push_target;
pub use crate::tasks::answer::{json, state, task};
pub use crate::time::shown as time;
