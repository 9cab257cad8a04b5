//! The ways to run a command, with real processes, sandboxes and engines: what every one of them must do, what each
//! contains, and what is left when a worker is killed.

mod common;
mod contained;
mod engines;
mod leftovers;
mod limits;
mod remains;
mod support;
mod usage;
