//! The tasks part of the contract, for people and services. One endpoint to a file.

pub mod batch;
pub mod cancel;
pub mod get;
pub mod history;
pub mod list;
pub mod redrive;
pub mod submit;
