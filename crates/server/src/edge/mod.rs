//! The edge of the server: it accepts connections, limits what a peer may use, and receives and parses requests, for all
//! protocol adapters alike. It knows no adapter.

pub mod address_guard;
pub mod bodies;
pub mod fallback;
pub mod grpc_guard;
mod guarded_io;
pub mod json;
pub mod listener;
pub mod origin;
pub mod paced_stream;
pub mod panics;
pub mod receiving;
pub mod strict_json;
