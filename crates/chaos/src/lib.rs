//! The real binary under fire.
//!
//! Clients and workers talk HTTP to a `lessor up` process while it is killed, stopped, starved of disk or given
//! another clock. Every answer that they receive is kept as a fact. In the end the faults stop, honest workers
//! drain the queue, and an auditor asks the server about everything that it ever said.
//!
//! Nothing of the product is used here but its HTTP contract: a checker that shared code with what it checks
//! would share its mistakes. Used by tests only.

mod api;
mod auditor;
mod crew;
mod evidence;
mod facts;
mod full_disk;
mod history;
mod plan;
mod scenario;
mod server;
mod stage;
mod submitter;
mod tmpfs;
mod worker;
mod world;

pub use plan::{Form, Plan};
pub use scenario::{Scenario, run};
