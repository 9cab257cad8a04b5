//! The authority beside the most obvious model that could be written: no indexes, no events, a list of tasks
//! that every command walks through. After each command of a random history both give the same answer, and
//! every task is in the same state.

mod model;
mod notebook;

use authority::Command;

use crate::support::{Actor, World, same_state};
use notebook::Model;

#[test]
fn a_naive_model_gives_the_same_answers_over_random_histories() {
    for seed in 0..400 {
        live_through(seed, 250);
    }
}

#[test]
fn a_naive_model_gives_the_same_answers_over_long_histories() {
    for seed in 10_000..10_010 {
        live_through(seed, 4_000);
    }
}

fn live_through(seed: u64, steps: usize) {
    let (mut world, mut model, mut actor) = (World::new(), Model::default(), Actor::new(seed));
    for step in 0..steps {
        let when = actor.when(&world.state, world.now);
        world.at(when.0);
        let command = actor.command();
        if let (Command::LeaseTasks(asked), 0) = (&command, step % 3) {
            world.state.index_worker_profile(&asked.scope, &asked.queues, &asked.properties);
        }
        let answer = world.run(command.clone());
        let before = model.turns();
        let place = || format!("seed {seed}, step {step}, at {when}: {command:?}");
        if let Err(what) = model.follow(&command, &answer, when) {
            panic!("{}\n answered {answer:?}\n but {what}", place());
        }
        model.adopt_order(&world.state, before);
        if let Err(what) = model.compare(&world.state) {
            panic!("{}\n {what}", place());
        }
        actor.see(&command, &answer);
    }
    let replayed = World::replayed(&world.log, world.now);
    same_state(&world.state, &replayed.state).unwrap_or_else(|what| panic!("seed {seed}, replayed: {what}"));
}
