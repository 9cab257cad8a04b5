//! Tests workers in processes of their own against the real server: configuration, execution and shutdown.

mod check;
mod command_tasks;
mod configured;
mod cut_off;
mod document_worker;
mod documented_files;
mod documented_worker;
mod execute;
mod full_disk;
mod operator_orders;
mod scheduler_calls;
mod server_log;
mod stopping;
mod support_worker;
mod tls;
mod worker_key;

#[path = "../support/mod.rs"]
mod support;
