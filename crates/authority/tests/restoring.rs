//! Invariant 8: a snapshot taken in slices while the work goes on, and the records since it was begun, give the
//! state that replaying everything gives. So does every prefix of a ledger, wherever a crash cut it.

use std::sync::Arc;

use authority::command::{RotateTokenKey, TakeOver};
use authority::{
    Command, Owner, Position, QueueConfig, QueueKey, Restore, State, StoredKey, Task, TaskState, Time,
    TokenKey,
};

use crate::support::{Actor, Prng, World, commands, same_state};

/// What a snapshot holds, collected a few slots at a time.
struct Snapshot {
    begin: Position,
    time: Time,
    next_slot: u32,
    tasks: Vec<(Arc<QueueKey>, Task)>,
    settings: Option<Settings>,
}

#[derive(Clone)]
struct Settings {
    queues: Vec<(Arc<QueueKey>, QueueConfig, Position)>,
    owner: Option<Owner>,
    token_key: Option<TokenKey>,
    keys: Vec<StoredKey>,
}

impl Snapshot {
    fn begin(state: &State) -> Snapshot {
        Snapshot {
            begin: state.position(),
            time: state.time(),
            next_slot: 0,
            tasks: Vec::new(),
            settings: None,
        }
    }

    fn take_slice(&mut self, state: &State, slots: u32) {
        for slot in self.next_slot..(self.next_slot + slots).min(state.slots()) {
            self.tasks.extend(state.in_slot(slot).map(|(queue, task)| (queue.clone(), task.clone())));
        }
        self.next_slot += slots;
    }

    fn take_settings(&mut self, state: &State) {
        self.settings = Some(Settings {
            queues: state
                .configured_queues()
                .map(|(key, config, at)| (key.clone(), config.clone(), at))
                .collect(),
            owner: state.owner().cloned(),
            token_key: state.token_key().cloned(),
            keys: state.keys().cloned().collect(),
        });
    }

    fn restore(&self, end: Position) -> State {
        let mut restore = Restore::new(self.begin, self.time);
        for (queue, task) in &self.tasks {
            restore.task(queue, task.clone()).expect("each task is in the snapshot once");
        }
        let settings = self.settings.clone().expect("the settings are part of the snapshot");
        for (key, config, configured) in &settings.queues {
            restore.queue(key, config.clone(), *configured);
        }
        settings.owner.into_iter().for_each(|owner| restore.owner(owner));
        settings.token_key.into_iter().for_each(|key| restore.token_key(key));
        for key in settings.keys {
            restore.key(key).expect("each key is in the snapshot once");
        }
        restore.finish(end)
    }
}

#[test]
fn a_sliced_snapshot_and_its_tail_equal_the_whole_replay() {
    for seed in 0..300 {
        snapshot_during(seed);
    }
}

fn snapshot_during(seed: u64) {
    let (mut world, mut actor, mut prng) = (World::new(), Actor::new(seed), Prng::new(seed ^ 0xabcd));
    let begin_at = prng.below(200);
    let slice = 1 + prng.below(4) as u32;
    let settings_after = prng.below(10);
    let mut running: Option<Snapshot> = None;
    let mut taken: Option<(Snapshot, Position)> = None;
    for step in 0..400 {
        if step == begin_at {
            running = Some(Snapshot::begin(&world.state));
        }
        if let Some(snapshot) = &mut running {
            snapshot.take_slice(&world.state, slice);
            if step - begin_at >= settings_after && snapshot.settings.is_none() {
                snapshot.take_settings(&world.state);
            }
        }
        let done = |snapshot: &mut Snapshot| {
            snapshot.next_slot >= world.state.slots() && snapshot.settings.is_some()
        };
        if let Some(snapshot) = running.take_if(done) {
            taken = Some((snapshot, world.state.position()));
        }
        let when = actor.when(&world.state, world.now);
        world.at(when.0);
        let command = match prng.below(40) {
            0 => Command::TakeOver(TakeOver { node: Arc::from("n"), audit_head: None }),
            1 => Command::RotateTokenKey(RotateTokenKey {
                key_id: Arc::from(format!("k{}", prng.below(3))),
                by: None,
            }),
            2 | 3 => {
                let id = format!("key-{}", prng.below(4));
                commands::create_key(&id, &id)
            }
            4 => commands::revoke_key(&format!("key-{}", prng.below(4))),
            _ => actor.command(),
        };
        let answer = world.run(command.clone());
        actor.see(&command, &answer);
    }
    let (snapshot, end) = taken.expect("the snapshot came to its end");
    let mut restored = snapshot.restore(end);
    for (time, event) in &world.log[snapshot.begin.0 as usize..] {
        let applied = restored.apply(*time, event);
        assert!(applied.is_ok(), "seed {seed}: {applied:?}: {event:?}");
        if restored.position() >= end {
            restored.check_invariants().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        }
    }
    restored.advance(world.now);
    same_state(&world.state, &restored).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
}

/// A crash between two records of one batch leaves a ledger that ends anywhere; the first tick after the start
/// ends what has to end, and no cut leaves a task that nothing would ever look at again.
#[test]
fn a_ledger_cut_after_any_record_goes_on() {
    for seed in 0..30 {
        let (mut world, mut actor) = (World::new(), Actor::new(seed));
        for _ in 0..120 {
            actor.step(&mut world);
        }
        for cut in 0..world.log.len() {
            let mut survivor = World::replayed(&world.log[..cut], world.log[cut].0);
            survivor.run(commands::tick());
            let due = survivor.state.next_due();
            assert!(due.is_none_or(|due| due > survivor.now), "seed {seed}, cut {cut}: still due at {due:?}");
            let tasks = (0..survivor.state.slots()).filter_map(|slot| survivor.state.in_slot(slot));
            let stuck = tasks.map(|(_, task)| task).find(|task| {
                let exhausted = matches!(task.phase, authority::Phase::Waiting { exhausted: true, .. });
                exhausted && task.state() == TaskState::Waiting
            });
            assert!(stuck.is_none(), "seed {seed}, cut {cut}: {stuck:?} waits for ever");
        }
    }
}
