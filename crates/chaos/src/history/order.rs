//! Puts records, requests and answers into one order without trusting any clock but that of the clients.
//!
//! The ledger gives the order of the records. For each of them two moments on the clients' clock are known: before
//! the first it was not there, because the request that caused it had not been sent or the dead server's ledger did
//! not hold it; from the second on it was there, because an answer had confirmed it or the dead server's ledger
//! held it. Both carry over to its neighbours.
//!
//! Where the order of two things cannot be known, the server gets the benefit of the doubt, and no more: a request
//! stands as early as it can, right behind the last record that was surely there when it was sent, and an answer as
//! late as it can, right before the first record that was surely not there when it arrived. Every check of the
//! auditor only gets easier to pass by that, so it never finds a violation that is none.

use std::collections::HashMap;
use std::sync::Arc;

use auditor::history::{AskId, Entry, Recorded};
use authority::command::{ExtendAnswer, ReleaseAnswer, SubmitAnswer, Verdict};
use authority::event::ReleaseCause;
use authority::{Answer, CancelCause, Command, DeadReason, Digest, Event, Position, QueueKey, TaskId, Time};
use coordinator::{BatchItem, Reply, Request};

use super::{Exchange, Recording};
use crate::recorder::At;

pub(super) fn entries(recording: &Recording) -> Vec<Entry> {
    let absent_until = absent_until(recording);
    let present_from = present_from(recording, &absent_until);
    // Where each entry stands: behind so many records, then by the clients' time, and a request before its answer.
    let mut placed: Vec<((usize, At, bool), Entry)> = Vec::new();
    for (ask, exchange) in recording.exchanges.iter().enumerate() {
        let Exchange { sent_at, ended_at, request, reply, .. } = exchange;
        let answer_place = absent_until.partition_point(|moment| moment <= ended_at);
        let request_place = present_from.partition_point(|moment| moment < sent_at).min(answer_place);
        let ask = ask as AskId;
        placed.push(((request_place, *sent_at, false), Entry::Asked { ask, request: request.clone() }));
        if let Some(reply) = reply {
            let reply = reply.clone();
            placed.push(((answer_place, *ended_at, true), Entry::Answered { ask, reply, durable: None }));
        }
    }
    placed.sort_by_key(|(place, _)| *place);
    let mut placed = placed.into_iter().peekable();
    let mut entries = Vec::new();
    for behind in 0..=recording.records.len() {
        while let Some((_, entry)) = placed.next_if(|((place, ..), _)| *place <= behind) {
            entries.push(entry);
        }
        entries.extend(recording.records.get(behind).cloned().map(Entry::Recorded));
    }
    entries
}

/// For each record a moment until which it was surely not there.
fn absent_until(recording: &Recording) -> Vec<At> {
    let mut first_sent: HashMap<Cause, At> = HashMap::new();
    for exchange in &recording.exchanges {
        for cause in causes(&exchange.request) {
            let sent_at = first_sent.entry(cause).or_insert(exchange.sent_at);
            *sent_at = exchange.sent_at.min(*sent_at);
        }
    }
    let mut cuts = recording.cuts.iter().peekable();
    let mut moment = At::ZERO;
    let mut moments = Vec::new();
    for record in &recording.records {
        while let Some(cut) = cuts.next_if(|cut| cut.position() < record.position) {
            moment = moment.max(cut.at);
        }
        let cause = causes_of(&record.event).into_iter().find_map(|cause| first_sent.get(&cause));
        moment = moment.max(cause.copied().unwrap_or_default());
        moments.push(moment);
    }
    moments
}

/// For each record a moment from which it was surely there.
fn present_from(recording: &Recording, absent_until: &[At]) -> Vec<At> {
    let record_index = RecordIndex::of(&recording.records);
    let mut moments = vec![At::MAX; recording.records.len()];
    let mut seen = |position: Position, at: At| {
        let Some(index) = record_index.index.get(&position) else { return };
        // An answer that came before its record can have been there is for the auditor to refuse.
        if absent_until[*index] <= at {
            moments[*index] = moments[*index].min(at);
        }
    };
    for exchange in &recording.exchanges {
        if let Some(reply) = &exchange.reply {
            record_index
                .confirmed_records(&exchange.request, reply)
                .into_iter()
                .for_each(|position| seen(position, exchange.ended_at));
        }
    }
    recording.cuts.iter().for_each(|cut| seen(cut.position(), cut.at));
    let mut moment = At::MAX;
    for later in moments.iter_mut().rev() {
        moment = moment.min(*later);
        *later = moment;
    }
    moments
}

/// What a request may cause, and a record may be caused by.
#[derive(PartialEq, Eq, Hash)]
enum Cause {
    Submit(TaskId),
    /// A worker's request by its digest.
    Request(Arc<str>, Digest),
    Poll(Arc<str>),
    Heartbeat(Position),
    Start(Position),
    Report(Position, Digest),
    Release(Position),
    End(TaskId),
    Configure(Arc<QueueKey>),
}

fn causes(request: &Request) -> Vec<Cause> {
    match request {
        Request::Poll { lease, .. } => {
            let by_name = lease.request.map(|digest| Cause::Request(lease.worker.clone(), digest));
            by_name.into_iter().chain([Cause::Poll(lease.worker.clone())]).collect()
        }
        Request::Decide(batch) => batch
            .iter()
            .flat_map(|item| match item {
                BatchItem::Command(command) => causes_in(command),
                BatchItem::Heartbeat { extend, .. } => vec![Cause::Heartbeat(extend.lease.fencing_token)],
            })
            .collect(),
        Request::Read(_) | Request::Wait { .. } | Request::Order(_) => Vec::new(),
    }
}

fn causes_in(command: &Command) -> Vec<Cause> {
    match command {
        Command::SubmitTask(task) => vec![Cause::Submit(task.id)],
        Command::RedriveTask(redrive) => vec![Cause::Submit(redrive.id)],
        Command::ReportCompletion(report) => vec![Cause::Report(report.lease.fencing_token, report.digest)],
        Command::ReportFailure(report) => vec![Cause::Report(report.lease.fencing_token, report.digest)],
        Command::ReleaseLease(release) => vec![Cause::Release(release.lease.fencing_token)],
        Command::StartAttempt(start) => vec![Cause::Start(start.lease.fencing_token)],
        Command::CancelTask(cancel) => vec![Cause::End(cancel.task)],
        Command::KillTask(kill) => vec![Cause::End(kill.task)],
        Command::ConfigureQueue(configure) => vec![Cause::Configure(configure.queue.clone())],
        _ => Vec::new(),
    }
}

/// The best known one first. Nothing for a record that time alone can cause.
fn causes_of(event: &Event) -> Vec<Cause> {
    if let Some((lease, digest)) = report_of(event) {
        return vec![Cause::Report(lease, digest)];
    }
    match event {
        Event::TaskCreated(event) => vec![Cause::Submit(event.task)],
        Event::LeaseGranted(event) => {
            let by_name = event.request.map(|digest| Cause::Request(event.worker.clone(), digest));
            by_name.into_iter().chain([Cause::Poll(event.worker.clone())]).collect()
        }
        Event::LeaseExtended(event) => vec![Cause::Heartbeat(event.fencing_token)],
        Event::AttemptStarted(event) => vec![Cause::Start(event.fencing_token)],
        Event::LeaseReleased(event) if event.cause == ReleaseCause::Worker => {
            vec![Cause::Release(event.fencing_token)]
        }
        Event::TaskDead(event) if matches!(event.reason, DeadReason::Cancelled | DeadReason::Killed) => {
            vec![Cause::End(event.task)]
        }
        Event::CancelRequested(event) if event.cause == CancelCause::User => vec![Cause::End(event.task)],
        Event::QueueConfigured(event) => vec![Cause::Configure(event.queue.clone())],
        _ => Vec::new(),
    }
}

/// The report that a record decides, by its lease and its digest.
fn report_of(event: &Event) -> Option<(Position, Digest)> {
    match event {
        Event::TaskCompleted(event) => Some((event.fencing_token, event.digest)),
        Event::TaskFailed(event) => Some((event.fencing_token, event.digest)),
        Event::TaskCancelled(event) => Some((event.fencing_token, event.digest)),
        Event::TaskDead(event) => event.report.as_ref().map(|report| (report.fencing_token, report.digest)),
        _ => None,
    }
}

/// Finds the records that answers confirm.
#[derive(Default)]
struct RecordIndex {
    index: HashMap<Position, usize>,
    created: HashMap<TaskId, Position>,
    expiries: HashMap<(Position, Time), Position>,
    reports: HashMap<(Position, Digest), Position>,
    released: HashMap<Position, Position>,
}

impl RecordIndex {
    fn of(records: &[Recorded]) -> RecordIndex {
        let mut record_index = RecordIndex::default();
        for (index, record) in records.iter().enumerate() {
            let position = record.position;
            record_index.index.insert(position, index);
            if let Some(report) = report_of(&record.event) {
                record_index.reports.insert(report, position);
            }
            match &record.event {
                Event::TaskCreated(event) => {
                    record_index.created.insert(event.task, position);
                }
                Event::LeaseExtended(event) => {
                    record_index.expiries.insert((event.fencing_token, event.expires_at), position);
                }
                Event::LeaseReleased(event) => {
                    record_index.released.insert(event.fencing_token, position);
                }
                _ => {}
            }
        }
        record_index
    }

    /// The records that a reply confirms.
    fn confirmed_records(&self, request: &Request, reply: &Reply) -> Vec<Position> {
        match (request, reply) {
            (_, Reply::Leased(grants)) => grants.iter().map(|grant| grant.fencing_token).collect(),
            (Request::Decide(batch), Reply::Decided(answers)) => batch
                .iter()
                .zip(answers)
                .filter_map(|(item, answer)| self.confirmed_record(item, answer))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The record that one answer confirms.
    fn confirmed_record(&self, item: &BatchItem, answer: &Answer) -> Option<Position> {
        let record = match (item, answer) {
            (_, Answer::Submitted(SubmitAnswer::Created(id))) => self.created.get(id),
            (
                BatchItem::Heartbeat { extend, .. },
                Answer::Extended(ExtendAnswer::Extended { expires_at, .. }),
            ) => self.expiries.get(&(extend.lease.fencing_token, *expires_at)),
            (BatchItem::Command(command), Answer::Reported(Verdict::Committed(_) | Verdict::Cancelled)) => {
                match command {
                    Command::ReportCompletion(report) => {
                        self.reports.get(&(report.lease.fencing_token, report.digest))
                    }
                    Command::ReportFailure(report) => {
                        self.reports.get(&(report.lease.fencing_token, report.digest))
                    }
                    _ => None,
                }
            }
            (
                BatchItem::Command(Command::ReleaseLease(release)),
                Answer::Released(ReleaseAnswer::Over(_)),
            ) => self.released.get(&release.lease.fencing_token),
            _ => None,
        };
        record.copied()
    }
}

#[cfg(test)]
mod tests {
    use authority::Scope;
    use authority::command::SubmitTask;
    use authority::event::TaskCreated;

    use super::super::Cut;
    use super::*;

    fn at(ms: u64) -> At {
        At::from_millis(ms)
    }

    fn submit(id: u128, sent_ms: u64, ended_ms: u64) -> Exchange {
        let scope = Scope { tenant: "t".into(), workspace: "w".into() };
        let task = SubmitTask {
            id: TaskId(id),
            queue: Arc::new(QueueKey { scope, name: "q".into() }),
            payload: Vec::new().into(),
            priority: 0,
            delay_ms: 0,
            properties: Arc::default(),
            options: None,
            operation: None,
        };
        Exchange {
            contract: crate::Contract::Native,
            sent_at: at(sent_ms),
            ended_at: at(ended_ms),
            request: Request::decide(Command::SubmitTask(Box::new(task))),
            reply: Some(Reply::decided(Answer::Submitted(SubmitAnswer::Created(TaskId(id))))),
        }
    }

    fn created(position: u64, exchange: &Exchange) -> Recorded {
        let Some(Command::SubmitTask(task)) = exchange.request.command() else { unreachable!() };
        let event = Event::TaskCreated(Box::new(TaskCreated {
            task: task.id,
            queue: task.queue.clone(),
            payload: task.payload.clone(),
            priority: 0,
            not_before: None,
            properties: Arc::default(),
            options: None,
            operation: None,
            by: None,
        }));
        Recorded { position: Position(position), at: Time(position), prev: None, event }
    }

    fn order(recording: &Recording) -> String {
        let names = recording.entries().into_iter().map(|entry| match entry {
            Entry::Asked { ask, .. } => format!("ask{ask}"),
            Entry::Recorded(record) => format!("record{}", record.position),
            Entry::Answered { ask, .. } => format!("answer{ask}"),
            _ => "?".into(),
        });
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_request_stands_before_its_record_and_the_answer_behind_it() {
        let exchanges = vec![submit(1, 10, 20), submit(2, 30, 40)];
        let records = vec![created(1, &exchanges[0]), created(2, &exchanges[1])];
        let recording = Recording { records, exchanges, cuts: Vec::new() };
        assert_eq!(order(&recording), "ask0 record1 answer0 ask1 record2 answer1");
    }

    #[test]
    fn where_the_order_is_open_requests_stand_early_and_answers_late() {
        // Both were under way at once: the first answer may rest on the second's record.
        let exchanges = vec![submit(1, 10, 40), submit(2, 15, 35)];
        let records = vec![created(1, &exchanges[0]), created(2, &exchanges[1])];
        let recording = Recording { records, exchanges, cuts: Vec::new() };
        assert_eq!(order(&recording), "ask0 ask1 record1 record2 answer1 answer0");
    }

    #[test]
    fn an_answer_from_before_a_kill_stands_before_all_records_after_it() {
        // The first was answered, the server was killed with an empty ledger, and the record came afterwards.
        let mut exchanges = vec![submit(1, 10, 20), submit(1, 50, 60)];
        exchanges[1].reply = None;
        let records = vec![created(1, &exchanges[0])];
        let recording = Recording { records, exchanges, cuts: vec![Cut { at: at(30), last: None }] };
        assert_eq!(order(&recording), "ask0 answer0 ask1 record1");
        assert!(recording.judge().is_err());
    }

    #[test]
    fn what_a_dead_server_left_was_there_before_all_later_requests() {
        let mut exchanges = vec![submit(1, 10, 70), submit(2, 40, 50)];
        exchanges[0].reply = None;
        let records = vec![created(1, &exchanges[0]), created(2, &exchanges[1])];
        let cut = Cut { at: at(30), last: Some(records[0].clone()) };
        let recording = Recording { records, exchanges, cuts: vec![cut] };
        assert_eq!(order(&recording), "ask0 record1 ask1 record2 answer1");
    }
}
