//! The commands, as plainly as they can be written over a list of notes.

use std::sync::Arc;

use authority::command::*;
use authority::{
    Answer, Category, Command, DeadReason, Digest, LeaseRef, Outcome, Position, QueueSettings, Rejection,
    TaskId, TaskOptions, TaskState, Time,
};

use super::notebook::{Check, Held, Model, Note, bounded, same};

impl Model {
    /// Does the same and compares the answer.
    pub(super) fn follow(&mut self, command: &Command, answer: &Answer, now: Time) -> Check {
        match (command, answer) {
            (Command::SubmitTask(command), Answer::Submitted(answer)) => self.submit(command, answer, now),
            (Command::LeaseTasks(command), Answer::Leased(grants)) => self.lease(command, grants, now),
            (Command::ExtendLease(command), Answer::Extended(answer)) => {
                same(self.extend(&command.lease, now), answer.clone())
            }
            (Command::StartAttempt(command), Answer::Started(answer)) => {
                same(self.start(command, now), answer.clone())
            }
            (Command::ReportCompletion(command), Answer::Reported(verdict)) => {
                let mine = self.report(&command.lease, command.digest, now, |_, _| Outcome::Completed);
                same(mine, *verdict)
            }
            (Command::ReportFailure(command), Answer::Reported(verdict)) => {
                let judge =
                    |note: &Note, settings: &QueueSettings| judge_failure(command, note, settings, now);
                same(self.report(&command.lease, command.digest, now, judge), *verdict)
            }
            (Command::ReleaseLease(command), Answer::Released(answer)) => {
                same(self.release(&command.lease, now), answer.clone())
            }
            (Command::CancelTask(command), Answer::Ended(answer)) => {
                let Some(at) = self.in_scope(&command.scope, command.task) else {
                    return same(EndAnswer::UnknownTask, *answer);
                };
                self.expire_if_over(at, now);
                let grace = self.settings(at).cancel_grace_ms;
                match self.tasks[at].state {
                    TaskState::Waiting => self.kill(at, DeadReason::Cancelled, now),
                    TaskState::Leased if self.tasks[at].stop.is_none() => {
                        self.tasks[at].stop = Some((now.plus_ms(grace), DeadReason::Cancelled));
                    }
                    _ => {}
                }
                same(EndAnswer::Accepted, *answer)
            }
            (Command::KillTask(command), Answer::Ended(answer)) => {
                let Some(at) = self.in_scope(&command.scope, command.task) else {
                    return same(EndAnswer::UnknownTask, *answer);
                };
                self.expire_if_over(at, now);
                if self.tasks[at].ended.is_none() {
                    self.kill(at, DeadReason::Killed, now);
                }
                same(EndAnswer::Accepted, *answer)
            }
            (Command::RedriveTask(command), Answer::Redriven(answer)) => {
                same(self.redrive(command), answer.clone())
            }
            (Command::ConfigureQueue(command), Answer::Configured(answer)) => {
                self.queues.retain(|(key, _)| *key != command.queue);
                self.queues.push((command.queue.clone(), command.config.clone()));
                same(ConfigureAnswer::Configured, answer.clone())
            }
            (Command::StartSession(command), Answer::Done(more)) => {
                for at in 0..self.tasks.len() {
                    let note = &self.tasks[at];
                    let Some(held) = &note.lease else { continue };
                    let mine = note.queue.scope.tenant == command.tenant && held.worker == command.worker;
                    if mine && held.session.as_ref().is_some_and(|session| *session != command.session) {
                        self.expire_if_over(at, now);
                        self.give_back(at, now);
                    }
                }
                same(false, *more)
            }
            (Command::Tick(_), Answer::Done(more)) => {
                (0..self.tasks.len()).for_each(|at| self.let_time_pass(at, now));
                same(false, *more)
            }
            (Command::Purge(_), Answer::Done(more)) => {
                let keep: Vec<bool> = (0..self.tasks.len())
                    .map(|at| {
                        let retention_ms = self.settings(at).retention_ms;
                        self.tasks[at].ended.is_none_or(|(ended, _)| ended.plus_ms(retention_ms) > now)
                    })
                    .collect();
                let mut keep = keep.into_iter();
                self.tasks.retain(|_| keep.next().unwrap_or(true));
                same(false, *more)
            }
            (command, answer) => Err(format!("{command:?} was answered {answer:?}")),
        }
    }

    fn submit(&mut self, command: &SubmitTask, answer: &SubmitAnswer, now: Time) -> Check {
        let dedup = command.options.as_ref().and_then(|options| options.dedup.as_ref());
        let holder = self.tasks.iter().find(|note| {
            let theirs = note.options.dedup.as_ref().map(|dedup| &dedup.key);
            note.queue == command.queue && dedup.is_some() && theirs == dedup.map(|dedup| &dedup.key)
        });
        if let Some(note) = holder {
            return match (note.options.dedup.as_ref() == dedup, answer) {
                (true, SubmitAnswer::Existing(view)) => same(note.id, view.task.id),
                (false, SubmitAnswer::DedupConflict(id)) => same(note.id, *id),
                _ => Err(format!("{} holds the dedup key", note.id)),
            };
        }
        if let Some(max) = self.full(&command.queue) {
            return same(SubmitAnswer::Refused(Refusal::QueueFull { max }), answer.clone());
        }
        self.turns += 1;
        self.tasks.push(Note {
            id: command.id,
            queue: command.queue.clone(),
            priority: command.priority,
            needs: command.properties.clone(),
            options: command.options.as_deref().cloned().unwrap_or_default(),
            state: TaskState::Waiting,
            turn: self.turns,
            not_before: if command.delay_ms == 0 { Time::ZERO } else { now.plus_ms(command.delay_ms) },
            attempt: 0,
            releases: 0,
            lease: None,
            granted: Vec::new(),
            reports: Vec::new(),
            stop: None,
            dead: None,
            ended: None,
        });
        same(SubmitAnswer::Created(command.id), answer.clone())
    }

    fn lease(&mut self, command: &LeaseTasks, grants: &[Grant], now: Time) -> Check {
        let mut again: Vec<(TaskId, u32, Position, Time)> = self
            .tasks
            .iter()
            .filter(|note| note.queue.scope == command.scope)
            .filter_map(|note| note.lease.as_ref().map(|held| (note, held)))
            .filter(|(_, held)| held.worker == command.worker && now <= held.until)
            .filter(|(_, held)| command.request.is_some() && held.request == command.request)
            .map(|(note, held)| (note.id, note.attempt, held.number, held.until))
            .collect();
        if !again.is_empty() {
            let mut told: Vec<_> = grants
                .iter()
                .map(|grant| (grant.task, grant.attempt, grant.fencing_token, grant.expires_at))
                .collect();
            again.sort();
            told.sort();
            return same(again, told);
        }
        let mut grants = grants.iter();
        let mut left = command.max_tasks;
        for name in &command.queues {
            let mut line: Vec<usize> =
                (0..self.tasks.len()).filter(|at| self.fits(*at, command, name, now)).collect();
            line.sort_by_key(|at| (self.tasks[*at].priority, self.tasks[*at].turn));
            for at in line {
                if left == 0 {
                    break;
                }
                if self.past_deadline(at, now) {
                    self.kill(at, DeadReason::Deadline, now);
                    continue;
                }
                left -= 1;
                let grant = grants.next().ok_or_else(|| format!("{} was not granted", self.tasks[at].id))?;
                self.grant(at, command, grant, now)?;
            }
        }
        same(0, grants.count()).map_err(|_| "too much was granted".to_string())
    }

    fn fits(&self, at: usize, command: &LeaseTasks, name: &Arc<str>, now: Time) -> bool {
        let note = &self.tasks[at];
        note.queue.scope == command.scope
            && note.queue.name == *name
            && note.state == TaskState::Waiting
            && note.not_before <= now
            && note.needs.satisfied_by(&command.properties)
    }

    fn grant(&mut self, at: usize, command: &LeaseTasks, grant: &Grant, now: Time) -> Check {
        let length = self.tasks[at].options.lease_ms.unwrap_or(self.settings(at).lease_ms);
        let note = &mut self.tasks[at];
        let until = bounded(note, now, now.plus_ms(length + length / 10));
        note.attempt += 1;
        note.granted.push(grant.fencing_token);
        note.state = TaskState::Leased;
        note.lease = Some(Held {
            number: grant.fencing_token,
            worker: command.worker.clone(),
            session: command.session.clone(),
            request: command.request,
            granted: now,
            extended: now,
            length,
            until,
            started_by: None,
        });
        same((note.id, note.attempt, until), (grant.task, grant.attempt, grant.expires_at))
    }

    fn extend(&mut self, lease: &LeaseRef, now: Time) -> ExtendAnswer {
        let at = match self.speak(lease, now) {
            Ok(Some(at)) => at,
            Ok(None) => return ExtendAnswer::Lost,
            Err(why) => return ExtendAnswer::Rejected(why),
        };
        let note = &mut self.tasks[at];
        let stop = note.stop.is_some();
        let Some(mut held) = note.lease.clone() else { return ExtendAnswer::Lost };
        let until = bounded(note, held.granted, now.plus_ms(held.length + held.length / 10));
        if now.since_ms(held.extended) >= held.length / 10 && until > held.until {
            held.until = until;
            held.extended = now;
        }
        let expires_at = held.until;
        note.lease = Some(held);
        let reason = if matches!(note.stop, Some((_, DeadReason::Deadline))) { "deadline" } else { "stop" };
        ExtendAnswer::Extended { expires_at, cancel: stop.then(|| Arc::from(reason)) }
    }

    fn start(&mut self, command: &StartAttempt, now: Time) -> StartAnswer {
        let at = match self.speak(&command.lease, now) {
            Ok(Some(at)) => at,
            Ok(None) => return StartAnswer::Lost,
            Err(why) => return StartAnswer::Rejected(why),
        };
        let note = &mut self.tasks[at];
        match (note.stop, note.lease.as_mut()) {
            (Some((_, DeadReason::Deadline)), _) => StartAnswer::Cancelled(Arc::from("deadline")),
            (Some(_), _) => StartAnswer::Cancelled(Arc::from("stop")),
            (None, Some(held)) => {
                let first = held.started_by.get_or_insert(command.started_by.clone());
                if *first == command.started_by {
                    StartAnswer::Started
                } else {
                    StartAnswer::AlreadyStarted(first.clone())
                }
            }
            (None, None) => StartAnswer::Lost,
        }
    }

    fn report(
        &mut self,
        lease: &LeaseRef,
        digest: Digest,
        now: Time,
        judge: impl FnOnce(&Note, &QueueSettings) -> Outcome,
    ) -> Verdict {
        if let Some(verdict) = self.reported(lease, digest) {
            return verdict;
        }
        let verdict = match self.speak(lease, now) {
            Err(why) => return Verdict::Rejected(why),
            Ok(None) => Verdict::Cancelled,
            Ok(Some(at)) => {
                let settings = self.settings(at);
                let outcome = judge(&self.tasks[at], &settings);
                match outcome {
                    Outcome::RetryAt(time) => self.wait_again(at, time),
                    Outcome::Dead(reason) => self.kill(at, reason, now),
                    _ => self.end(at, outcome.state().unwrap_or(TaskState::Dead), now),
                }
                Verdict::Committed(outcome)
            }
        };
        if let Some(at) = self.in_scope(&lease.scope, lease.task) {
            self.tasks[at].reports.push((lease.fencing_token, digest, verdict));
        }
        verdict
    }

    /// The verdict on an earlier report of this lease, or that this one is a conflicting report.
    fn reported(&self, lease: &LeaseRef, digest: Digest) -> Option<Verdict> {
        let note = &self.tasks[self.in_scope(&lease.scope, lease.task)?];
        let (_, known, verdict) = note.reports.iter().find(|(number, ..)| *number == lease.fencing_token)?;
        let ours = note.granted.get(lease.attempt.checked_sub(1)? as usize) == Some(&lease.fencing_token);
        Some(match (ours, *known == digest) {
            (false, _) => Verdict::Rejected(Rejection::NeverGranted),
            (true, false) => Verdict::Rejected(Rejection::ConflictingReport),
            (true, true) => *verdict,
        })
    }

    fn release(&mut self, lease: &LeaseRef, now: Time) -> ReleaseAnswer {
        match self.speak(lease, now) {
            Err(why) => return ReleaseAnswer::Rejected(why),
            Ok(Some(at)) => self.give_back(at, now),
            Ok(None) => {}
        }
        let at = self.in_scope(&lease.scope, lease.task);
        ReleaseAnswer::Over(at.map_or(TaskState::Dead, |at| self.tasks[at].state))
    }

    fn redrive(&mut self, command: &RedriveTask) -> RedriveAnswer {
        let Some(at) = self.in_scope(&command.scope, command.task) else { return RedriveAnswer::UnknownTask };
        let old = &self.tasks[at];
        if !matches!(old.state, TaskState::Failed | TaskState::Dead) {
            return RedriveAnswer::NotADeadLetter(old.state);
        }
        let again = self.tasks.iter().find(|note| note.options.redrive_of == Some(old.id));
        if let Some(again) = again {
            return RedriveAnswer::Existing(again.id);
        }
        if let Some(max) = self.full(&old.queue) {
            return RedriveAnswer::Refused(Refusal::QueueFull { max });
        }
        self.turns += 1;
        let options =
            TaskOptions { dedup: None, deadline: None, redrive_of: Some(old.id), ..old.options.clone() };
        let note = Note {
            id: command.id,
            queue: old.queue.clone(),
            needs: old.needs.clone(),
            priority: old.priority,
            options,
            state: TaskState::Waiting,
            turn: self.turns,
            not_before: Time::ZERO,
            attempt: 0,
            releases: 0,
            lease: None,
            granted: Vec::new(),
            reports: Vec::new(),
            stop: None,
            dead: None,
            ended: None,
        };
        self.tasks.push(note);
        RedriveAnswer::Created(command.id)
    }

    /// Whether this lease may speak: the task if it may, nothing if it once might, or why it never might.
    fn speak(&mut self, lease: &LeaseRef, now: Time) -> Result<Option<usize>, Rejection> {
        let at = self.in_scope(&lease.scope, lease.task).ok_or(Rejection::UnknownTask)?;
        let granted =
            (lease.attempt.checked_sub(1)).and_then(|index| self.tasks[at].granted.get(index as usize));
        if granted != Some(&lease.fencing_token) {
            return Err(Rejection::NeverGranted);
        }
        match &self.tasks[at].lease {
            Some(held) if held.number == lease.fencing_token && held.worker != lease.worker => {
                return Err(Rejection::WrongWorker);
            }
            _ => {}
        }
        let current = self.tasks[at].lease.as_ref().is_some_and(|held| held.number == lease.fencing_token);
        if !current {
            return Ok(None);
        }
        self.expire_if_over(at, now);
        if self.tasks[at].lease.is_some() && self.tasks[at].stop.is_some_and(|(until, _)| now >= until) {
            self.kill(at, DeadReason::CancelTimeout, now);
        }
        Ok(self.tasks[at].lease.is_some().then_some(at))
    }
}

fn judge_failure(command: &ReportFailure, note: &Note, settings: &QueueSettings, now: Time) -> Outcome {
    let category = command.error.category;
    let again = match (&settings.retry_on, command.retryable) {
        (Some(list), _) => list.contains(&category),
        (None, Some(word)) => word,
        (None, None) => matches!(category, Category::UserCode | Category::Infrastructure | Category::Timeout),
    };
    let used = note.attempt - note.releases;
    match note.stop {
        Some((_, reason)) if again || category == Category::Cancelled => Outcome::Dead(reason),
        None if again && used < note.options.max_attempts.unwrap_or(settings.max_attempts) => {
            // Every draw of these histories is zero: the shortest wait that the jitter allows.
            let backoff = &settings.backoff;
            let wait_ms = (backoff.initial_ms << (used - 1).min(20)).min(backoff.max_ms);
            Outcome::RetryAt(now.plus_ms(wait_ms - wait_ms * u64::from(backoff.jitter_permille) / 1_000))
        }
        _ => Outcome::Failed,
    }
}
