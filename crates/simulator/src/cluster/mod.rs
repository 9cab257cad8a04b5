//! A cluster: several nodes over one simulated database. Each node runs the production code of a standby, of a takeover, of the
//! append protocol and of the engine; the database, the network between the nodes, their clocks and their processes are
//! simulated.

mod absence;
mod bug;
mod config;
mod database;
mod edge;
mod membership;
mod message;
mod node;
mod owner;
mod reader;
mod server;
mod standby;
mod statement;
mod stream;
mod take_over;
mod trouble;
mod world;

pub use bug::ClusterBug;
pub(crate) use config::ClusterConfig;
pub(crate) use world::ClusterWorld;

use message::Message;
use statement::{Outcome, Sent};

pub(crate) type NodeId = usize;

/// What happens in a cluster. An event of a life of a node that has ended since is not seen.
pub(crate) enum ClusterEvent {
    /// A process is started on this machine.
    Start { node: NodeId },
    /// A standby looks at the database. An earlier look takes the place of one that is planned for later.
    Look { node: NodeId, life: u64, planned: u64 },
    /// The driver of an owner looks at the clock.
    Wake { node: NodeId, life: u64, planned: u64 },
    /// An owner says that it lives.
    Beat { node: NodeId, life: u64 },
    /// What an owner says about itself reaches the database.
    BeatArrives { node: NodeId, life: u64, epoch: u64, time_ms: u64 },
    /// A statement reaches the database. It is executed also if nobody waits for it any more.
    Execute { sent: Sent, is_awaited: bool },
    /// The answer to a statement reaches its node.
    Answer { id: u64, node: NodeId, life: u64, outcome: Option<Outcome> },
    /// The replica of this server has everything before a position.
    Replicated { primary: usize, next: authority::Position },
    /// A message reaches another node.
    Deliver { from: (NodeId, u64), to: (NodeId, u64), message: Message },
    /// A node notices that its connections with another one are lost, if they are older than `lost_at`.
    LinkLost { node: NodeId, life: u64, peer: NodeId, lost_at: u64 },
    /// An edge looks at what it holds.
    Edge { node: NodeId, life: u64 },
}
