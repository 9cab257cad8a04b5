//! Watches events and answers from outside, with rules written from the model and not from the code: who may
//! change what, when an attempt counts, that nothing follows an end, that an answer once given stays true.

use std::collections::BTreeMap;

use authority::command::{ExtendAnswer, RedriveAnswer, ReleaseAnswer, SubmitAnswer, Verdict};
use authority::event::ExpiryCause;
use authority::{
    Answer, Command, Contract, Digest, Event, Outcome, Phase, Position, State, Task, TaskId, TaskState, Time,
};

#[derive(Clone, Default)]
pub(super) struct Auditor {
    before: Option<Task>,
    others: Option<Vec<Task>>,
    completions: BTreeMap<TaskId, (Position, Digest)>,
    /// What each report was told, by lease and content.
    told: BTreeMap<(TaskId, Position, Digest), Verdict>,
}

/// Beyond this many tasks the unconcerned ones are no longer compared after every event.
const MAX_COMPARED: usize = 8;

impl Auditor {
    /// A verdict is final: whoever repeats a report is told the same again.
    pub(super) fn see_answer(&mut self, command: &Command, answer: &Answer) {
        let (lease, digest) = match command {
            Command::ReportCompletion(report) => (&report.lease, report.digest),
            Command::ReportFailure(report) => (&report.lease, report.digest),
            _ => return,
        };
        let Answer::Reported(verdict) = answer else { panic!("a report was answered {answer:?}") };
        if let Verdict::Committed(Outcome::Completed) = verdict {
            let first = self.completions.entry(lease.task).or_insert((lease.fencing_token, digest));
            assert_eq!(
                *first,
                (lease.fencing_token, digest),
                "two completions of {} were committed",
                lease.task
            );
        }
        if matches!(verdict, Verdict::Rejected(_)) {
            return;
        }
        let first = *self.told.entry((lease.task, lease.fencing_token, digest)).or_insert(*verdict);
        assert_eq!(first, *verdict, "a repeat of the same report was told something else");
    }

    /// Once its events are applied, an answer must be true of the state.
    pub(super) fn hold_answer_against(
        &self,
        state: &State,
        command: &Command,
        answer: &Answer,
        events: &[Event],
    ) {
        match answer {
            Answer::Submitted(SubmitAnswer::Created(id)) | Answer::Redriven(RedriveAnswer::Created(id)) => {
                assert_eq!(state.task(*id).map(Task::state), Some(TaskState::Waiting));
            }
            Answer::Leased(grants) => {
                let Command::LeaseTasks(asked) = command else { panic!("{command:?} got leases") };
                assert!(grants.len() <= asked.max_tasks || events.is_empty());
                for grant in grants {
                    let task = state.task(grant.task).expect("a task was granted");
                    let lease = task.lease().expect("what was granted is leased");
                    let told = (grant.fencing_token, grant.attempt, grant.expires_at, grant.granted_at);
                    assert_eq!(told, (lease.fencing_token, task.attempt, lease.expires_at, lease.granted_at));
                    assert_eq!((&lease.worker, &task.payload), (&asked.worker, &grant.payload));
                    assert!(task.properties.satisfied_by(&asked.properties) || events.is_empty());
                }
            }
            Answer::Extended(ExtendAnswer::Extended { expires_at, cancel }) => {
                let Command::ExtendLease(asked) = command else { panic!("{command:?} got an extension") };
                let task = state.task(asked.lease.task).expect("a lease was extended");
                assert_eq!(task.lease().map(|lease| lease.expires_at), Some(*expires_at));
                assert_eq!(task.cancel.is_some(), cancel.is_some());
            }
            Answer::Released(ReleaseAnswer::Over(after)) => {
                let Command::ReleaseLease(asked) = command else { panic!("{command:?} released") };
                assert_eq!(state.task(asked.lease.task).map(Task::state), Some(*after));
            }
            Answer::Reported(Verdict::Committed(outcome)) if !events.is_empty() => {
                let task = events.last().and_then(Event::task).and_then(|id| state.task(id));
                assert_eq!(task.map(Task::state), outcome.state());
            }
            Answer::Reported(Verdict::Rejected(_)) => assert_eq!(events, [], "a refusal leaves no record"),
            _ => {}
        }
    }

    pub(super) fn before(&mut self, state: &State, event: &Event) {
        self.before = event.task().and_then(|id| state.task(id)).cloned();
        let small = state.len() <= MAX_COMPARED && !matches!(event, Event::TasksPurged(_));
        self.others = small.then(|| others(state, event));
    }

    pub(super) fn after(&mut self, state: &State, event: &Event, position: Position, now: Time) {
        if let Some(untouched) = self.others.take() {
            assert_eq!(untouched, others(state, event), "{} touched another task", event.name());
        }
        let Some(id) = event.task() else { return };
        let after = state.task(id).expect("only a purge removes a task");
        assert_eq!(after.last, position, "the newest record of the task is this one");
        let Some(before) = self.before.take() else {
            assert!(matches!(event, Event::TaskCreated(_)));
            assert_eq!((after.state(), after.attempt), (TaskState::Waiting, 0));
            return;
        };
        check_attempts(event, &before, after, position);
        check_ends(event, &before, after, now);
        check_lease(event, &before, now);
    }
}

/// Attempts rise by one with each grant and never otherwise; a release gives one back.
fn check_attempts(event: &Event, before: &Task, after: &Task, position: Position) {
    let granted = matches!(event, Event::LeaseGranted(_));
    if granted {
        assert_eq!(before.state(), TaskState::Waiting, "a grant needs a waiting task");
        assert_eq!(after.lease().map(|lease| lease.fencing_token), Some(position));
    }
    assert_eq!(after.attempt, before.attempt + u32::from(granted), "attempts are grants");
    let released = matches!(event, Event::LeaseReleased(_));
    assert_eq!(after.releases, before.releases + u32::from(released));
}

/// A final state never changes, and once a stop was asked for no path leads back to WAITING.
fn check_ends(event: &Event, before: &Task, after: &Task, now: Time) {
    if before.is_final() {
        assert_eq!(before.phase, after.phase, "{} changed a final task", event.name());
    }
    if before.cancel.is_some() {
        assert_ne!(after.state(), TaskState::Waiting, "{} let a cancelled task wait", event.name());
        assert_eq!(before.cancel, after.cancel, "a request to stop is never changed");
    }
    if !before.is_final() && after.is_final() {
        assert_eq!(after.ended().map(|(at, _)| at), Some(now));
    }
    if matches!(event, Event::TaskCancelled(_)) {
        assert_eq!(before.phase, after.phase, "a discarded report changed the task");
    }
    assert!(after.reports.starts_with(&before.reports), "what was reported and told is never changed");
}

/// Only a lease in time may speak; only a lease past its time may expire.
fn check_lease(event: &Event, before: &Task, now: Time) {
    let named = match event {
        Event::TaskCompleted(event) => event.fencing_token,
        Event::TaskFailed(event) => event.fencing_token,
        Event::LeaseExtended(event) => event.fencing_token,
        Event::AttemptStarted(event) => event.fencing_token,
        Event::LeaseReleased(event) => event.fencing_token,
        Event::LeaseExpired(event) => event.fencing_token,
        _ => return,
    };
    let Phase::Leased(lease) = &before.phase else { panic!("{} of a task without a lease", event.name()) };
    assert_eq!(lease.fencing_token, named, "{} under another lease", event.name());
    if matches!(event, Event::LeaseExpired(event) if event.cause == ExpiryCause::WorkerLost) {
        assert!(matches!(lease.contract, Some(Contract::Scheduler | Contract::Stream)));
        return;
    }
    let expired = matches!(event, Event::LeaseExpired(_));
    assert_eq!(
        now > lease.expires_at,
        expired,
        "{} at {now}, lease until {}",
        event.name(),
        lease.expires_at
    );
}

fn others(state: &State, event: &Event) -> Vec<Task> {
    let tasks = (0..state.slots()).filter_map(|slot| state.in_slot(slot));
    tasks.map(|(_, task)| task).filter(|task| Some(task.id) != event.task()).cloned().collect()
}
