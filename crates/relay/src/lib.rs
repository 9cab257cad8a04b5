//! The relay: calls from any node of a cluster to the node that owns the ledger, over connections that both sides
//! authenticate with the key of the cluster.
//!
//! A node listens for others with [`serve`] and reaches them by a [`RemotePeer`], which a `coordinator::Router` is given as
//! the route to the owner.

mod client;
mod codec;
mod connected;
mod connection;
mod frame;
mod service;
mod tail;
mod tls;

pub use client::RemotePeer;
pub use codec::DecodeError;
pub use connected::ConnectedNodes;
pub use service::serve;
pub use tls::{ClusterTls, MIN_KEY_BYTES, TlsError};
