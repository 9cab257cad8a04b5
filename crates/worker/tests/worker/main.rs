//! The worker from outside: its actions, its agent, its way to the content store, and all of it together.

mod actions;
mod agent;
mod cas;
mod cost;
mod executors;
mod whole;
