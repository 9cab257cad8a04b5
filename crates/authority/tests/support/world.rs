//! A state with its ledger and its clock. Every event is checked by the authority's own invariants and by an
//! auditor that knows nothing of how decisions are made.

use authority::command::{ExtendAnswer, Grant, Verdict};
use authority::{Answer, Command, Event, LeaseRef, Position, State, Task, TaskId, TaskState, Time};

use super::auditor::Auditor;
use super::commands;

#[derive(Default)]
pub(crate) struct World {
    pub state: State,
    pub log: Vec<(Time, Event)>,
    pub now: Time,
    auditor: Auditor,
}

/// A world at rest: its ledger, its time, and the answers that it gave.
pub(crate) struct Stopped {
    log: Vec<(Time, Event)>,
    now: Time,
    auditor: Auditor,
}

impl Stopped {
    /// Goes on where the world stood.
    pub(crate) fn resume(&self) -> World {
        let state = replay(&self.log);
        let mut world = World { state, log: self.log.clone(), now: self.now, auditor: self.auditor.clone() };
        world.at(self.now.0);
        world
    }
}

impl World {
    pub(crate) fn new() -> World {
        World::default()
    }

    /// A world whose queue `q` has leases of 1,000 ms, which end at 1,100 when they are granted at once.
    pub(crate) fn quick() -> World {
        let mut world = World::new();
        world.run(commands::configure("q", commands::quick_queue()));
        world
    }

    /// As `quick`, with one task that worker `w1` has leased.
    pub(crate) fn leased() -> (World, LeaseRef) {
        let mut world = World::quick();
        world.submit(1);
        let lease = world.lease("w1");
        (world, lease)
    }

    /// A world that has lived through these events.
    pub(crate) fn replayed(log: &[(Time, Event)], now: Time) -> World {
        let mut world = World::new();
        for (time, event) in log {
            world.now = *time;
            world.append(event.clone());
        }
        world.at(now.0);
        world
    }

    /// Keeps what a world is made of, without its state.
    pub(crate) fn stop(self) -> Stopped {
        Stopped { log: self.log, now: self.now, auditor: self.auditor }
    }

    /// Moves the clock.
    pub(crate) fn at(&mut self, ms: u64) -> &mut World {
        self.now = Time(ms);
        self.state.advance(self.now);
        self
    }

    /// Decides a command and applies what follows.
    pub(crate) fn run(&mut self, command: impl Into<Command>) -> Answer {
        self.trace(command).1
    }

    /// As `run`, and says which events followed.
    pub(crate) fn trace(&mut self, command: impl Into<Command>) -> (Vec<Event>, Answer) {
        let command = command.into();
        let decision = self.state.decide(&command, self.now);
        self.auditor.see_answer(&command, &decision.answer);
        for event in &decision.events {
            self.append(event.clone());
        }
        self.auditor.hold_answer_against(&self.state, &command, &decision.answer, &decision.events);
        (decision.events, decision.answer)
    }

    /// Appends an event that no command decided.
    pub(crate) fn append(&mut self, event: Event) -> Position {
        self.auditor.before(&self.state, &event);
        let position = match self.state.apply(self.now, &event) {
            Ok(position) => position,
            Err(illegal) => panic!("a decision led to an illegal event: {illegal}: {event:?}"),
        };
        self.log.push((self.now, event.clone()));
        self.auditor.after(&self.state, &event, position, self.now);
        if let Err(broken) = self.state.check_invariants() {
            panic!("after {event:?} an invariant is broken: {broken}");
        }
        position
    }

    /// Tries an event that does not fit: it is refused, and nothing has changed.
    pub(crate) fn refuses(&mut self, event: Event) {
        let before = replay(&self.log);
        assert!(self.state.apply(self.now, &event).is_err(), "{event:?} was applied");
        assert_eq!(same_state(&self.state, &before), Ok(()), "{event:?} was refused and left a trace");
    }

    /// Runs a command and gives the names of the events that follow.
    pub(crate) fn names(&mut self, command: impl Into<Command>) -> Vec<&'static str> {
        self.trace(command).0.iter().map(Event::name).collect()
    }

    /// Submits a plain task to queue `q`.
    pub(crate) fn submit(&mut self, id: u128) -> TaskId {
        self.run(commands::submit(id));
        TaskId(id)
    }

    pub(crate) fn submit_all(&mut self, ids: impl IntoIterator<Item = u128>) {
        for id in ids {
            self.submit(id);
        }
    }

    /// Leases one task of queue `q` to a worker.
    pub(crate) fn lease(&mut self, worker: &str) -> LeaseRef {
        let grants = self.lease_all(worker, 1);
        commands::reference(worker, &grants[0])
    }

    pub(crate) fn lease_all(&mut self, worker: &str, max_tasks: usize) -> Vec<Grant> {
        match self.run(commands::lease(worker, max_tasks)) {
            Answer::Leased(grants) => grants,
            other => panic!("a lease was answered {other:?}"),
        }
    }

    /// The task's current lease, as its worker knows it.
    pub(crate) fn lease_ref(&self, id: TaskId) -> LeaseRef {
        let (task, scope) = (self.task(id), commands::scope());
        let lease = task.lease().expect("the task is leased");
        let (worker, lease) = (lease.worker.clone(), lease.fencing_token);
        LeaseRef { scope, worker, task: id, attempt: task.attempt, fencing_token: lease }
    }

    pub(crate) fn complete(&mut self, lease: &LeaseRef, result: &str) -> Verdict {
        verdict(self.run(commands::complete(lease, result)))
    }

    pub(crate) fn fail(&mut self, lease: &LeaseRef, message: &str) -> Verdict {
        verdict(self.run(commands::fail(lease, message)))
    }

    pub(crate) fn heartbeat(&mut self, lease: &LeaseRef) -> ExtendAnswer {
        match self.run(commands::heartbeat(lease)) {
            Answer::Extended(answer) => answer,
            other => panic!("a heartbeat was answered {other:?}"),
        }
    }

    pub(crate) fn task(&self, id: TaskId) -> &Task {
        self.state.task(id).expect("the task exists")
    }

    pub(crate) fn state_of(&self, id: TaskId) -> TaskState {
        self.task(id).state()
    }
}

/// The state that these events give.
pub(crate) fn replay(log: &[(Time, Event)]) -> State {
    let mut state = State::new();
    for (time, event) in log {
        state.apply(*time, event).expect("what was applied once can be applied again");
    }
    state
}

fn verdict(answer: Answer) -> Verdict {
    match answer {
        Answer::Reported(verdict) => verdict,
        other => panic!("a report was answered {other:?}"),
    }
}

/// Says in what two states differ: every task, its queue, every queue as it is shown, owner and key.
pub(crate) fn same_state(a: &State, b: &State) -> Result<(), String> {
    let tasks = |state: &State| {
        let mut tasks: Vec<_> = (0..state.slots())
            .filter_map(|slot| state.in_slot(slot).map(|(queue, task)| (queue.clone(), task.clone())))
            .collect();
        tasks.sort_by_key(|(_, task)| task.id);
        tasks
    };
    let queues = |state: &State| {
        let mut keys: Vec<_> = state.configured_queues().map(|(key, ..)| key.clone()).collect();
        keys.extend(tasks(state).into_iter().map(|(queue, _)| queue));
        keys.sort();
        keys.dedup();
        keys.iter().map(|key| state.queue_view(key)).collect::<Vec<_>>()
    };
    let same = [
        ("the position", (a.position(), a.time()) == (b.position(), b.time())),
        ("a task", tasks(a) == tasks(b)),
        ("a queue", queues(a) == queues(b)),
        ("the next due time", a.next_due() == b.next_due()),
        ("the next purge", a.next_purge() == b.next_purge()),
        ("the size", a.bytes() == b.bytes()),
        ("an API key", a.keys().eq(b.keys())),
        ("the owner or the key", (a.owner(), a.token_key()) == (b.owner(), b.token_key())),
    ];
    match same.iter().find(|(_, same)| !same) {
        Some((what, _)) => Err(format!("{what} differs")),
        None => a.check_invariants().and(b.check_invariants()),
    }
}
