//! The worker from outside: its actions, its agent, and all of it together.

mod actions;
mod agent;
mod cost;
mod executors;
mod missing_outputs;
mod whole;
