//! The tasks part of the contract, for people and services. One endpoint to a file.

pub(crate) mod batch;
mod call;
pub(crate) mod cancel;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod list;
pub(crate) mod redrive;
pub(crate) mod submit;
