//! S0-27: workers that repeat, replay, come late, forge, act for others, mix up attempts, contradict themselves and speak
//! out of order, through every contract. One table: its rows are what a hostile worker does, its columns the contracts.
//! Each cell runs against a real server; nothing is accepted that must not be, and the task ends right, once.

mod across;
mod cell;
mod expected_messages;
mod grpc;
mod held;
#[path = "../http/support/mod.rs"]
mod support;
mod table;
