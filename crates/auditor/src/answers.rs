//! Judges each answer that changes something or speaks of a lease: it must follow from durable records.

use authority::command::{
    ConfigureAnswer, EndAnswer, ExtendAnswer, Grant, LeaseTasks, RedriveAnswer, RedriveTask, ReleaseAnswer,
    StartSession, SubmitAnswer, SubmitTask, Verdict,
};
use authority::{Answer, Command, Digest, LeaseRef, Outcome, Rejection, TaskId};
use coordinator::{BatchItem, Reply, Request};

use super::model::{LeaseModel, Over, TaskModel};
use super::{Asked, Auditor, Covered, ensure};

/// Beyond so many reports of one task, those without authority are answered but not recorded.
const MANY_REPORTS: usize = 1_000;

impl Auditor {
    pub(super) fn answer(&mut self, asked: &Asked, request: &Request, reply: &Reply) -> Result<(), String> {
        match (request, reply) {
            // Nothing is claimed.
            (_, Reply::Unavailable(_)) => Ok(()),
            (Request::Poll { lease, .. }, Reply::Leased(grants)) => {
                grants.iter().try_for_each(|grant| self.leased(asked, lease, grant))
            }
            (Request::Decide(batch), Reply::Decided(answers)) => {
                ensure(batch.len() == answers.len(), "not every item has its answer")?;
                batch.iter().zip(answers).try_for_each(|(item, answer)| match (item, answer) {
                    (BatchItem::Command(command), answer) => self.decided(asked, command, answer),
                    (BatchItem::Heartbeat { extend, .. }, Answer::Extended(answer)) => {
                        self.extended(asked, &extend.lease, answer)
                    }
                    _ => Err("it is no answer to what was asked".into()),
                })
            }
            // What the operator orders is no decision about a task.
            (Request::Order(_), Reply::Ordered(_)) => Ok(()),
            (Request::Read(read), reply) => self.check_read(asked, read, reply),
            (Request::Wait { scope, task, .. }, Reply::Task(detail)) => {
                if detail.as_ref().is_some_and(|detail| detail.view.task.is_final()) {
                    self.mark_covered(Covered::WaitMet);
                }
                self.check_task(asked, scope, *task, detail.as_deref())
            }
            _ => Err("it is no answer to what was asked".into()),
        }
    }

    fn decided(&mut self, asked: &Asked, command: &Command, answer: &Answer) -> Result<(), String> {
        match (command, answer) {
            (Command::SubmitTask(task), Answer::Submitted(answer)) => self.submitted(asked, task, answer),
            (Command::ReportCompletion(report), Answer::Reported(verdict)) => {
                self.reported(asked, &report.lease, report.digest, verdict)
            }
            (Command::ReportFailure(report), Answer::Reported(verdict)) => {
                self.reported(asked, &report.lease, report.digest, verdict)
            }
            (Command::ReleaseLease(release), Answer::Released(answer)) => match answer {
                ReleaseAnswer::Over(_) => self.must_be_over(&release.lease),
                ReleaseAnswer::Rejected(why) => self.rejected(asked, &release.lease, *why),
            },
            (Command::CancelTask(cancel), Answer::Ended(answer)) => {
                self.ended(asked, &cancel.scope, cancel.task, *answer, false)
            }
            (Command::KillTask(kill), Answer::Ended(answer)) => {
                self.ended(asked, &kill.scope, kill.task, *answer, true)
            }
            (Command::RedriveTask(redrive), Answer::Redriven(answer)) => {
                self.redriven(asked, redrive, answer)
            }
            (Command::ConfigureQueue(configure), Answer::Configured(ConfigureAnswer::Configured)) => {
                // Another configuration may have followed; this one was durable at some time.
                let now = self.queues.get(&configure.queue);
                ensure(now.is_some(), "the queue was never configured")
            }
            (Command::ConfigureQueue(_), Answer::Configured(_)) => Ok(()),
            (Command::StartSession(session), Answer::Done(more)) => {
                ensure(!more, "leases of the old session are left")?;
                self.session(asked, session)
            }
            (command, answer) => self.decided_other_command(asked, command, answer),
        }
    }

    fn submitted(&mut self, asked: &Asked, task: &SubmitTask, answer: &SubmitAnswer) -> Result<(), String> {
        match answer {
            SubmitAnswer::Created(id) => {
                ensure(*id == task.id, "another task was created")?;
                ensure(self.tasks.contains_key(id), "no durable record creates it")
            }
            SubmitAnswer::Existing(view) => {
                self.mark_covered(Covered::Deduplicated);
                let model = self.tasks.get(&view.task.id).ok_or("no durable record creates it")?;
                let dedup = task.options.as_ref().and_then(|options| options.dedup.as_ref());
                let same = dedup.is_some() && model.dedup.as_ref() == dedup && model.queue == task.queue;
                ensure(same || view.task.id == task.id, "it is another task")?;
                self.check_view(asked, view)
            }
            SubmitAnswer::DedupConflict(id) => {
                self.mark_covered(Covered::DedupConflict);
                let model = self.tasks.get(id).ok_or("no durable record creates the task that it names")?;
                let dedup = task.options.as_ref().and_then(|options| options.dedup.as_ref());
                let other = match (dedup, &model.dedup) {
                    (Some(mine), Some(theirs)) => mine.key == theirs.key && mine.content != theirs.content,
                    _ => model.queue.scope != task.queue.scope,
                };
                ensure(other, "the two do not conflict")
            }
            SubmitAnswer::Refused(why) => self.refused(Some(&task.queue), why),
        }
    }

    fn leased(&mut self, asked: &Asked, lease: &LeaseTasks, grant: &Grant) -> Result<(), String> {
        let task = self.tasks.get(&grant.task).ok_or("there is no such task")?;
        let model = task.leases.get(&grant.fencing_token).ok_or("no durable record grants it")?;
        ensure(
            model.worker == lease.worker && model.worker == grant.worker && model.attempt == grant.attempt,
            "it was granted to somebody else",
        )?;
        ensure(task.queue == grant.queue && task.queue.scope == lease.scope, "it is from another queue")?;
        ensure(lease.queues.contains(&task.queue.name), "it is from a queue that was not asked for")?;
        ensure(task.payload == grant.payload, "its payload is not what was submitted")?;
        ensure(model.granted_at == grant.granted_at, "it was granted at another time")?;
        ensure(model.expiries.contains(&grant.expires_at), "it ends at a time that was never recorded")?;
        let before = self.delivered_leases.insert(grant.fencing_token, asked.ask);
        match before {
            None => Ok(()),
            Some(_) if lease.request.is_some() && model.request == lease.request => {
                self.mark_covered(Covered::PollRepeated);
                Ok(())
            }
            Some(other) => Err(format!("lease {} was delivered to ask {other} already", grant.fencing_token)),
        }
    }

    fn extended(&mut self, asked: &Asked, lease: &LeaseRef, answer: &ExtendAnswer) -> Result<(), String> {
        match answer {
            ExtendAnswer::Extended { expires_at, .. } => {
                let (_, model) = self.find(lease).ok_or("no durable record grants the lease")?;
                ensure(model.expiries.contains(expires_at), "this expiry was never recorded")?;
                ensure(model.worker == lease.worker, "the lease is another worker's")?;
                ensure(model.over.is_none_or(|(at, _)| at > asked.asked_at), "the lease was over before")
            }
            ExtendAnswer::Lost => {
                self.must_be_over(lease)?;
                self.not_killed_by_a_stall(asked, lease)
            }
            ExtendAnswer::Rejected(why) => self.rejected(asked, lease, *why),
        }
    }

    fn reported(
        &mut self,
        asked: &Asked,
        lease: &LeaseRef,
        digest: Digest,
        verdict: &Verdict,
    ) -> Result<(), String> {
        let found = self.find(lease).map(|(task, model)| (model.report, model.granted_at, task.reports));
        match verdict {
            Verdict::Committed(outcome) => {
                let (report, ..) = found.ok_or("no durable record grants the lease")?;
                ensure(*outcome != Outcome::Discarded, "nothing was committed")?;
                ensure(report == Some((digest, *outcome)), format!("what is recorded is {report:?}"))?;
                let (_, model) = self.find(lease).ok_or("no durable record grants the lease")?;
                let over = model.over.map(|(at, _)| at).unwrap_or_default();
                let repeated = over <= asked.asked_at;
                if repeated {
                    self.mark_covered(Covered::RepeatedReport);
                    if self.restarts_after(over) {
                        self.mark_covered(Covered::RepeatAfterRestart);
                    }
                } else if self.restarts_after(lease.fencing_token) {
                    self.mark_covered(Covered::CommitAfterRestart);
                }
                Ok(())
            }
            Verdict::Cancelled => {
                if let Some((report, _, reports)) = found {
                    let discarded = report == Some((digest, Outcome::Discarded));
                    ensure(
                        discarded || (report.is_none() && reports > MANY_REPORTS),
                        "no record discards it",
                    )?;
                } else {
                    ensure(self.rules.edge_broken, "the lease was never granted")?;
                    return Ok(());
                }
                self.must_be_over(lease)?;
                if self.over(lease).is_some_and(|(at, how)| at > asked.asked_at && how == Over::Expired) {
                    self.mark_covered(Covered::ExpiryDuringCommit);
                }
                self.not_killed_by_a_stall(asked, lease)
            }
            Verdict::Rejected(Rejection::ConflictingReport) => {
                self.mark_covered(Covered::ConflictingReport);
                match found {
                    Some((Some((recorded, _)), ..)) => ensure(recorded != digest, "it is the same report"),
                    Some((None, ..)) => Err("the attempt has no report yet".into()),
                    None => ensure(self.rules.edge_broken, "the lease was never granted"),
                }
            }
            Verdict::Rejected(why) => self.rejected(asked, lease, *why),
        }
    }

    pub(super) fn rejected(&mut self, asked: &Asked, lease: &LeaseRef, why: Rejection) -> Result<(), String> {
        match why {
            Rejection::UnknownTask => self.must_be_unknown(asked, &lease.scope, lease.task),
            Rejection::NeverGranted => {
                let granted = self.find(lease).is_some_and(|(task, model)| {
                    model.attempt == lease.attempt
                        && task.queue.scope == lease.scope
                        && task.earlier.is_empty()
                });
                ensure(!granted || self.rules.edge_broken, "the lease was granted")
            }
            Rejection::WrongWorker => {
                self.mark_covered(Covered::WrongWorker);
                let (_, model) = self.find(lease).ok_or("the lease was never granted")?;
                ensure(model.worker != lease.worker, "the lease is this worker's")
            }
            Rejection::ConflictingReport => Err("there is no report".into()),
        }
    }

    fn ended(
        &mut self,
        asked: &Asked,
        scope: &authority::Scope,
        id: TaskId,
        answer: EndAnswer,
        kill: bool,
    ) -> Result<(), String> {
        if answer == EndAnswer::UnknownTask {
            return self.must_be_unknown(asked, scope, id);
        }
        let task =
            self.tasks.get(&id).filter(|task| task.queue.scope == *scope).ok_or("there is no such task")?;
        let again = !task.earlier.is_empty();
        ensure(task.is_over() || again || (!kill && task.cancel_grace.is_some()), "the task goes on")
    }

    fn redriven(
        &mut self,
        asked: &Asked,
        redrive: &RedriveTask,
        answer: &RedriveAnswer,
    ) -> Result<(), String> {
        match answer {
            RedriveAnswer::Created(id) | RedriveAnswer::Existing(id) => {
                let task = self.tasks.get(id).ok_or("no durable record creates it")?;
                ensure(task.redrive_of == Some(redrive.task), "it does another task again")
            }
            RedriveAnswer::UnknownTask => self.must_be_unknown(asked, &redrive.scope, redrive.task),
            RedriveAnswer::NotADeadLetter(state) => {
                let task = self.tasks.get(&redrive.task).ok_or("there is no such task")?;
                // One of the versions from the moment it was asked on, also of an earlier life.
                let versions: Vec<_> = task.earlier.iter().chain(&task.versions).collect();
                let since = versions.iter().rposition(|v| v.position <= asked.asked_at).unwrap_or(0);
                ensure(versions[since..].iter().any(|v| v.state == *state), "it was in no such state")
            }
            RedriveAnswer::Refused(why) => self.refused(None, why),
        }
    }

    fn session(&self, asked: &Asked, session: &StartSession) -> Result<(), String> {
        let left = self.tasks.values().filter(|task| task.queue.scope.tenant == session.tenant).any(|task| {
            task.current.is_some_and(|number| number <= asked.asked_at)
                && task.lease().is_some_and(|lease| {
                    lease.worker == session.worker
                        && lease.session.as_ref().is_some_and(|name| *name != session.session)
                })
        });
        ensure(!left, "a lease of an old session is still there")
    }

    pub(super) fn find(&self, lease: &LeaseRef) -> Option<(&TaskModel, &LeaseModel)> {
        let task = self.tasks.get(&lease.task)?;
        Some((task, task.leases.get(&lease.fencing_token)?))
    }

    fn over(&self, lease: &LeaseRef) -> Option<(authority::Position, Over)> {
        self.find(lease)?.1.over
    }

    pub(super) fn must_be_over(&self, lease: &LeaseRef) -> Result<(), String> {
        match self.find(lease) {
            Some((_, model)) => ensure(model.over.is_some(), "no durable record ends the lease"),
            None => ensure(self.rules.edge_broken, "the lease was never granted"),
        }
    }

    /// What was received before a lease ran out counts as in time, however late it was looked at.
    pub(super) fn not_killed_by_a_stall(&self, asked: &Asked, lease: &LeaseRef) -> Result<(), String> {
        let Some((task, model)) = self.find(lease) else { return Ok(()) };
        let expired = matches!(model.over, Some((_, Over::Expired)));
        let grace_over = task.cancel_grace.is_some();
        let in_time = asked.received.is_some_and(|at| at <= model.expires_at());
        ensure(!(expired && in_time && !grace_over), "it was received before the lease ran out")
    }

    pub(super) fn must_be_unknown(
        &self,
        asked: &Asked,
        scope: &authority::Scope,
        id: TaskId,
    ) -> Result<(), String> {
        let Some(task) = self.tasks.get(&id) else { return Ok(()) };
        let known = task.queue.scope == *scope && !task.purged && task.created() <= asked.asked_at;
        ensure(!known, "the task was there")
    }

    fn restarts_after(&self, position: authority::Position) -> bool {
        self.takeovers.last().is_some_and(|newest| *newest > position)
    }
}
