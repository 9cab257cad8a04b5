//! Starts the servers of others that tests use, each in a directory and on a port of its own. They end with the test.

pub mod network;
pub mod postgres;
pub mod redis;
mod spawn;
