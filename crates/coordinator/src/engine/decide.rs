//! Decides commands: refuses them when the disk is full, writes their events, and wakes who waits for them.

use authority::command::{
    ExtendAnswer, ExtendLease, Grant, LeaseTasks, RedriveAnswer, Refusal, SubmitAnswer, Verdict,
};
use authority::{Answer, Command, Contract, Event, LeaseRef, Time};

use super::polls::Offer;
use super::{DiskSpace, Engine, ReplyTo};
use crate::request::{Answers, Batch, BatchItem, Progress, Reply, Unavailable};

/// How often one poll may go on behind tasks that have passed their deadline. Ticks end those, so few are ever left.
const MAX_LEASE_ROUNDS: usize = 100;

impl<T: ReplyTo> Engine<T> {
    /// Decides the items in order; each stands on its own.
    pub(super) fn decide(&mut self, batch: Batch, now: Time) -> Reply {
        // Also when nothing can be decided: a full disk does not make a worker silent.
        batch.iter().for_each(|item| self.record_heartbeat(item, now));
        let mut answers = Answers::with_capacity(batch.len());
        for item in batch {
            let answer = match item {
                BatchItem::Command(command) => self.run(command, now),
                BatchItem::Heartbeat { extend, progress } => self.heartbeat(extend, progress, now),
            };
            match answer {
                Ok(answer) => answers.push(answer),
                // The disk has no space, which does not change between two items: nothing was decided.
                Err(why) => return Reply::Unavailable(why),
            }
        }
        Reply::Decided(answers)
    }

    /// Decides a command and makes its events part of the open batch.
    pub(super) fn run(&mut self, command: Command, now: Time) -> Result<Answer, Unavailable> {
        if let Some(refused) = self.refuse(&command) {
            return refused;
        }
        loop {
            let decision = self.state.decide(&command, now);
            for event in &decision.events {
                self.write(event, now);
            }
            // A session's leases are given back in steps; whoever asked wants all of them back.
            let more = matches!((&command, &decision.answer), (Command::StartSession(_), Answer::Done(true)));
            if !more {
                self.log_refused_report(&command, &decision.answer, now);
                return Ok(decision.answer);
            }
        }
    }

    /// Runs a command of our own; answers whether there is more to do.
    pub(super) fn run_quietly(&mut self, command: Command, now: Time) -> bool {
        matches!(self.run(command, now), Ok(Answer::Done(true)))
    }

    fn heartbeat(
        &mut self,
        extend: ExtendLease,
        progress: Option<Progress>,
        now: Time,
    ) -> Result<Answer, Unavailable> {
        let task = extend.lease.task;
        let answer = self.run(Command::ExtendLease(extend), now);
        let is_alive = matches!(answer, Ok(Answer::Extended(ExtendAnswer::Extended { .. })));
        if let Some(progress) = progress.filter(|_| is_alive) {
            self.progress.insert(task, Progress { at: now, ..progress });
        }
        answer
    }

    pub(super) fn poll(&mut self, lease: LeaseTasks, until: Time, now: Time, reply_to: T) {
        // The stream polls by itself, also for a worker that says nothing any more.
        if lease.contract != Contract::Stream {
            self.registry.record_heartbeat(&lease.scope, &lease.worker, now);
        }
        let grants = self.lease(&lease, now);
        if !grants.is_empty() || until <= now {
            return self.reply(reply_to, Reply::Leased(grants));
        }
        if !self.polls.has_capacity(&lease, now) {
            return self.reply(reply_to, Reply::Unavailable(Unavailable::Overloaded));
        }
        self.polls.park(lease, until, reply_to);
    }

    /// Gives what became ready to the polls that wait for it, in the same batch as far as it has space.
    pub(super) fn serve_polls(&mut self, now: Time) {
        let mut polls = std::mem::take(&mut self.polls);
        polls.serve(|lease, reply_to| {
            if self.is_full() {
                return Offer::Later(reply_to);
            }
            if self.registry.is_drained(&lease.scope.tenant, &lease.worker) {
                return Offer::Drained(reply_to);
            }
            let grants = self.lease(lease, now);
            if grants.is_empty() {
                return Offer::NothingFits(reply_to);
            }
            self.reply(reply_to, Reply::Leased(grants));
            Offer::Taken
        });
        self.polls = polls;
    }

    fn lease(&mut self, lease: &LeaseTasks, now: Time) -> Vec<Grant> {
        if self.disk_space != DiskSpace::Plenty
            || self.registry.is_drained(&lease.scope.tenant, &lease.worker)
        {
            return self.leases_again(lease, now);
        }
        // What is ready may have become so later than this poll was received, or than the last record was written.
        let now = now.max(self.state.ready_until());
        self.state.index_worker_profile(&lease.scope, &lease.queues, &lease.properties);
        let command = Command::LeaseTasks(lease.clone());
        for _ in 0..MAX_LEASE_ROUNDS {
            let decision = self.state.decide(&command, now);
            for event in &decision.events {
                self.write(event, now);
            }
            match decision.answer {
                // All scanned tasks had passed their deadline; more tasks may follow them.
                Answer::Leased(grants) if grants.is_empty() && !decision.events.is_empty() => {}
                Answer::Leased(grants) => return grants,
                _ => break,
            }
        }
        Vec::new()
    }

    /// Leases that were granted before and are asked for again, which takes no record.
    fn leases_again(&self, lease: &LeaseTasks, now: Time) -> Vec<Grant> {
        let decision = self.state.decide(&Command::LeaseTasks(lease.clone()), now);
        match decision.answer {
            Answer::Leased(grants) if decision.events.is_empty() => grants,
            _ => Vec::new(),
        }
    }

    /// Applies an event, adds its record to the batch, and notes who may be woken by it.
    fn write(&mut self, event: &Event, now: Time) {
        self.journal.write(&mut self.state, now, event);
        if let Event::TasksPurged(purged) = event {
            for &task in &purged.tasks {
                for reply_to in self.task_watchers.take_met(task, None) {
                    self.reply(reply_to, Reply::Task(None));
                }
            }
        }
        let Some(task) = event.task() else { return };
        let Some(current) = self.state.task(task) else { return };
        if current.lease().is_none() {
            self.progress.remove(&task);
        }
        // Not a comparison with `now`: a request may be decided after a tick that was later than its receipt, and a
        // task whose time lies between the two is ready at once and never becomes it.
        if self.state.is_ready(task)
            && let Some(queue) = self.state.queue_of(task)
        {
            self.polls.touch(queue);
        }
        let met = self.task_watchers.take_met(task, Some(current));
        if met.is_empty() {
            return;
        }
        let Some(queue) = self.state.queue_of(task) else { return };
        let detail = self.detail(&queue.scope.clone(), task).map(Box::new);
        for reply_to in met {
            self.reply(reply_to, Reply::Task(detail.clone()));
        }
    }

    /// The refusal of a command for lack of space on the disk: nothing was written, so nothing happened.
    fn refuse(&self, command: &Command) -> Option<Result<Answer, Unavailable>> {
        let refused = match (self.disk_space, command) {
            (DiskSpace::Plenty, _) => return None,
            (_, Command::SubmitTask(_)) => Answer::Submitted(SubmitAnswer::Refused(Refusal::NoSpace)),
            (_, Command::RedriveTask(_)) => Answer::Redriven(RedriveAnswer::Refused(Refusal::NoSpace)),
            (DiskSpace::FinishOnly, _) => return None,
            (DiskSpace::Nothing, _) => return Some(Err(Unavailable::NoSpace)),
        };
        Some(Ok(refused))
    }

    /// A report that is not accepted leaves no record, and so no line about one (S3-59).
    fn log_refused_report(&self, command: &Command, answer: &Answer, now: Time) {
        let Answer::Reported(verdict @ (Verdict::Rejected(_) | Verdict::Cancelled)) = answer else { return };
        let Some(LeaseRef { worker, task, attempt, fencing_token, .. }) = reported_lease(command) else {
            return;
        };
        let Some(suppressed) = self.refused_reports.admit(now) else { return };
        let lease = fencing_token.0;
        if let Verdict::Rejected(why) = verdict {
            tracing::error!(%task, attempt, lease, %worker, ?why, suppressed, "report rejected");
        } else {
            tracing::warn!(%task, attempt, lease, %worker, suppressed, "report discarded: its lease was over");
        }
    }

    /// Records that a worker was seen.
    fn record_heartbeat(&self, item: &BatchItem, now: Time) {
        let lease = match item {
            BatchItem::Heartbeat { extend, .. } => Some(&extend.lease),
            BatchItem::Command(Command::ExtendLease(command)) => Some(&command.lease),
            BatchItem::Command(Command::StartAttempt(command)) => Some(&command.lease),
            BatchItem::Command(command) => reported_lease(command),
        };
        if let Some(lease) = lease {
            self.registry.record_heartbeat(&lease.scope, &lease.worker, now);
        }
    }
}

/// The lease that a report is about.
fn reported_lease(command: &Command) -> Option<&LeaseRef> {
    match command {
        Command::ReportCompletion(report) => Some(&report.lease),
        Command::ReportFailure(report) => Some(&report.lease),
        _ => None,
    }
}
