//! The edge of the server: it accepts connections, limits what a peer may use, and receives and parses requests, for all
//! protocol adapters alike. It knows no adapter.

pub(crate) mod address_guard;
pub mod audit_trail;
pub(crate) mod auth;
pub(crate) mod bodies;
pub(crate) mod compute;
mod connection_task;
mod connections;
pub(crate) mod consistency;
pub(crate) mod fallback;
pub(crate) mod grpc_guard;
mod guarded_io;
pub(crate) mod host;
pub(crate) mod json;
pub(crate) mod jwt;
pub(crate) mod limits;
pub(crate) mod listener;
pub(crate) mod operator;
mod origin;
pub(crate) mod paced_stream;
mod panics;
pub mod permissions;
pub(crate) mod receiving;
mod requests;
pub(crate) mod responses;
mod stream;
pub(crate) mod tls;
mod unread_body;

pub(crate) use consistency::Reads;
pub(crate) use json::{In, InOrDefault, InPath, InQuery, Out};
pub(crate) use responses::{Fails, failures};
