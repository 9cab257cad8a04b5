//! What the tests share: a world that runs commands and watches every event, and short ways to write commands.

mod actor;
mod auditor;
pub mod commands;
pub mod events;
mod prng;
mod world;

pub use actor::Actor;
pub use prng::Prng;
pub use world::{Stopped, World, replay, same_state};
