//! The server as its users and its enemies meet it: over real HTTP, with a real coordinator behind it.

mod admission;
mod bad_calls;
mod bad_input;
mod bad_reports;
mod callback_hostility;
mod callback_tokens;
mod callbacks;
mod claims;
mod client_certificates;
mod connection_reuse;
mod connections;
mod floods;
mod openapi;
mod push;
mod push_config;
mod push_failures;
mod report_details;
mod support;
mod tasks;
mod tenants;
mod tls;
mod verdicts;
mod worker_orders;
