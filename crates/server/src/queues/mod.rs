//! The queues part of the contract. One endpoint to a file.

pub(crate) mod answer;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod put;
