//! The server as its users and its enemies meet it: over real HTTP, with a real coordinator behind it.

mod bad_calls;
mod bad_input;
mod claim_hostility;
mod claims;
mod connections;
mod floods;
mod openapi;
mod support;
mod tasks;
mod verdicts;
