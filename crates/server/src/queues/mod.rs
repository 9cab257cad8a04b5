//! The queues part of the contract. One endpoint to a file.

pub mod answer;
pub mod get;
pub mod list;
pub mod put;
