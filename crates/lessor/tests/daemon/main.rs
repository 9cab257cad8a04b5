//! Workers in processes of their own, against the real server: what they are told, what they run, and how they end.

mod check;
mod command_tasks;
mod configured;
mod cut_off;
mod execute;
mod full_disk;
mod stopping;
mod support_worker;

#[path = "../support/mod.rs"]
mod support;
