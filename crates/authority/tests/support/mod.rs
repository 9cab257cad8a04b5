//! Test support: a world that runs commands and watches every event, and short ways to write commands.

mod actor;
mod auditor;
pub(crate) mod commands;
pub(crate) mod events;
mod prng;
mod world;

pub(crate) use actor::Actor;
pub(crate) use prng::Prng;
pub(crate) use world::{Stopped, World, replay, same_state};
