//! Names every kind of answer of the coordinator. A run must cover all of them and all events,
//! so that no part of the model goes without histories.

use authority::command::{
    AttachAnswer, ConfigureAnswer, CreateKeyAnswer, EndAnswer, ExtendAnswer, RedriveAnswer, Refusal,
    ReleaseAnswer, RevokeKeyAnswer, StartAnswer, SubmitAnswer, Verdict,
};
use authority::{Answer, DeadReason, Outcome, Rejection};
use coordinator::{Reply, Unavailable};

/// The answers that a run must cover.
pub const EXPECTED_ANSWERS: &[&str] = &[
    "submitted",
    "submitted before",
    "dedup conflict",
    "refused: queue full",
    "refused: memory full",
    "refused: disk full",
    "leased",
    "nothing to lease",
    "extended",
    "extended, asked to stop",
    "heartbeat: lost",
    "heartbeat: rejected",
    "started",
    "started by another",
    "start: being cancelled",
    "start: lost",
    "start: rejected",
    "committed: completed",
    "committed: failed",
    "committed: retry",
    "committed: dead, cancelled",
    "committed: dead, deadline",
    "report cancelled",
    "report rejected",
    "release: over",
    "release: rejected",
    "rejected: unknown task",
    "rejected: never granted",
    "rejected: wrong worker",
    "rejected: conflicting report",
    "ended",
    "end: unknown task",
    "redriven",
    "redriven before",
    "redrive: unknown task",
    "redrive: no dead letter",
    "redrive: refused",
    "configured",
    "configuration invalid",
    "attached or detached",
    "attach: unknown task",
    "key created",
    "key: name taken",
    "key: invalid",
    "key revoked",
    "key: unknown",
    "keys",
    "done",
    "batch",
    "leases held",
    "a task",
    "no task",
    "a page",
    "a queue",
    "no queue",
    "queues",
    "workers",
    "push targets",
    "a token key",
    "no token key",
    "status",
    "depths",
    "unavailable: stopped",
    "unavailable: no space",
    "unavailable: outcome unknown",
];

/// The answers that a small simulation does not reach, and why. Each has a test of its own where it is decided.
pub const UNREACHED_ANSWERS: &[(&str, &str)] = &[
    ("scopes", "asked by remote execution when it starts, which a small simulation does not have"),
    ("refused: too many queues", "takes 8,750 queues"),
    ("refused: too many tenants", "takes 1,000 tenants"),
    ("refused: unknown queue", "is for servers that accept configured queues only"),
    ("refused: too many requirements", "takes 1,024 different requirements in one queue"),
    ("attach: too many", "takes 1,000 waiters of one task"),
    ("key: too many", "takes 10,000 keys"),
    ("configuration refused", "takes 8,750 queues"),
    ("unavailable: overloaded", "takes 20,000 long polls, or 16,384 requests in the inbox"),
    ("more to do", "the engine goes on by itself until nothing is left to do"),
    ("committed: dead, by time", "a report that is accepted ends no task for a reason that only time gives"),
];

/// The kinds of a reply: first its own, then those of its parts.
pub fn kinds_of_reply(reply: &Reply) -> Vec<&'static str> {
    match reply {
        Reply::Decided(answers) => {
            let batch = (answers.len() > 1).then_some("batch");
            batch.into_iter().chain(answers.iter().flat_map(self::answer)).collect()
        }
        Reply::Leased(grants) if grants.is_empty() => vec!["nothing to lease"],
        Reply::Leased(_) => vec!["leased"],
        Reply::Leases(_) => vec!["leases held"],
        Reply::Task(Some(_)) => vec!["a task"],
        Reply::Task(None) => vec!["no task"],
        Reply::List(_) => vec!["a page"],
        Reply::Queue(Some(_)) => vec!["a queue"],
        Reply::Queue(None) => vec!["no queue"],
        Reply::Queues(_) => vec!["queues"],
        Reply::Workers(_) => vec!["workers"],
        Reply::Worker(_) => vec!["a worker"],
        Reply::Ordered(_) => vec!["ordered"],
        Reply::ScopesWith(_) => vec!["scopes"],
        Reply::PushTargets(_) => vec!["push targets"],
        Reply::TokenKey(Some(_)) => vec!["a token key"],
        Reply::TokenKey(None) => vec!["no token key"],
        Reply::Keys(_) => vec!["keys"],
        Reply::Status(_) => vec!["status"],
        Reply::Depths(_) => vec!["depths"],
        Reply::Tenant(_) => vec!["a tenant"],
        Reply::Held(_) => vec!["leases of an identity"],
        Reply::UploadCharged(_) => vec!["an upload is charged"],
        Reply::Unavailable(Unavailable::Stopped) => vec!["unavailable: stopped"],
        Reply::Unavailable(Unavailable::NoOwner) => vec!["unavailable: no owner"],
        Reply::Unavailable(Unavailable::NoStandby) => vec!["unavailable: no standby"],
        Reply::Unavailable(Unavailable::NotUnderstood) => vec!["unavailable: not understood"],
        Reply::Unavailable(Unavailable::Overloaded) => vec!["unavailable: overloaded"],
        Reply::Unavailable(Unavailable::NoSpace) => vec!["unavailable: no space"],
        Reply::Unavailable(Unavailable::OutcomeUnknown) => vec!["unavailable: outcome unknown"],
    }
}

fn answer(answer: &Answer) -> Vec<&'static str> {
    match answer {
        Answer::Submitted(answer) => vec![submitted(answer)],
        Answer::Leased(grants) if grants.is_empty() => vec!["nothing to lease"],
        Answer::Leased(_) => vec!["leased"],
        Answer::Extended(ExtendAnswer::Extended { cancel: None, .. }) => vec!["extended"],
        Answer::Extended(ExtendAnswer::Extended { cancel: Some(_), .. }) => vec!["extended, asked to stop"],
        Answer::Extended(ExtendAnswer::Lost) => vec!["heartbeat: lost"],
        Answer::Extended(ExtendAnswer::Rejected(why)) => vec!["heartbeat: rejected", rejected(*why)],
        Answer::Started(StartAnswer::Started) => vec!["started"],
        Answer::Started(StartAnswer::AlreadyStarted(_)) => vec!["started by another"],
        Answer::Started(StartAnswer::Cancelled(_)) => vec!["start: being cancelled"],
        Answer::Started(StartAnswer::Lost) => vec!["start: lost"],
        Answer::Started(StartAnswer::Rejected(why)) => vec!["start: rejected", rejected(*why)],
        Answer::Reported(Verdict::Committed(outcome)) => vec![committed(*outcome)],
        Answer::Reported(Verdict::Cancelled) => vec!["report cancelled"],
        Answer::Reported(Verdict::Rejected(why)) => vec!["report rejected", rejected(*why)],
        Answer::Released(ReleaseAnswer::Over(_)) => vec!["release: over"],
        Answer::Released(ReleaseAnswer::Rejected(why)) => vec!["release: rejected", rejected(*why)],
        Answer::Ended(EndAnswer::Accepted) => vec!["ended"],
        Answer::Ended(EndAnswer::UnknownTask) => vec!["end: unknown task"],
        Answer::Redriven(RedriveAnswer::Created(_)) => vec!["redriven"],
        Answer::Redriven(RedriveAnswer::Existing(_)) => vec!["redriven before"],
        Answer::Redriven(RedriveAnswer::UnknownTask) => vec!["redrive: unknown task"],
        Answer::Redriven(RedriveAnswer::NotADeadLetter(_)) => vec!["redrive: no dead letter"],
        Answer::Redriven(RedriveAnswer::Refused(why)) => vec!["redrive: refused", refused(why)],
        Answer::Configured(ConfigureAnswer::Configured) => vec!["configured"],
        Answer::Configured(ConfigureAnswer::Invalid(_)) => vec!["configuration invalid"],
        Answer::Configured(ConfigureAnswer::Refused(_)) => vec!["configuration refused"],
        Answer::Attached(AttachAnswer::Done) => vec!["attached or detached"],
        Answer::Attached(AttachAnswer::UnknownTask) => vec!["attach: unknown task"],
        Answer::Attached(AttachAnswer::TooMany) => vec!["attach: too many"],
        Answer::KeyCreated(CreateKeyAnswer::Created) => vec!["key created"],
        Answer::KeyCreated(CreateKeyAnswer::NameTaken) => vec!["key: name taken"],
        Answer::KeyCreated(CreateKeyAnswer::TooMany) => vec!["key: too many"],
        Answer::KeyCreated(CreateKeyAnswer::Invalid(_)) => vec!["key: invalid"],
        Answer::KeyRevoked(RevokeKeyAnswer::Revoked) => vec!["key revoked"],
        Answer::KeyRevoked(RevokeKeyAnswer::Unknown) => vec!["key: unknown"],
        Answer::Done(false) => vec!["done"],
        Answer::Done(true) => vec!["more to do"],
    }
}

fn submitted(answer: &SubmitAnswer) -> &'static str {
    match answer {
        SubmitAnswer::Created(_) => "submitted",
        SubmitAnswer::Existing(_) => "submitted before",
        SubmitAnswer::DedupConflict(_) => "dedup conflict",
        SubmitAnswer::Refused(why) => refused(why),
    }
}

fn refused(why: &Refusal) -> &'static str {
    match why {
        Refusal::QueueFull { .. } => "refused: queue full",
        Refusal::StateFull { .. } => "refused: memory full",
        Refusal::TenantTasks { .. } => "refused: open tasks of the tenant",
        Refusal::TenantBytes { .. } => "refused: memory of the tenant",
        Refusal::TooManyQueues { .. } => "refused: too many queues",
        Refusal::TooManyTenants { .. } => "refused: too many tenants",
        Refusal::UnknownQueue { .. } => "refused: unknown queue",
        Refusal::TooManyRequirements => "refused: too many requirements",
        Refusal::NoSpace => "refused: disk full",
    }
}

fn rejected(why: Rejection) -> &'static str {
    match why {
        Rejection::UnknownTask => "rejected: unknown task",
        Rejection::NeverGranted => "rejected: never granted",
        Rejection::WrongWorker => "rejected: wrong worker",
        Rejection::ConflictingReport => "rejected: conflicting report",
    }
}

fn committed(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "committed: completed",
        Outcome::Failed => "committed: failed",
        Outcome::RetryAt(_) => "committed: retry",
        Outcome::Dead(DeadReason::Cancelled) => "committed: dead, cancelled",
        Outcome::Dead(DeadReason::Deadline) => "committed: dead, deadline",
        Outcome::Dead(DeadReason::CancelTimeout | DeadReason::HeartbeatTimeout | DeadReason::Killed)
        | Outcome::Discarded => "committed: dead, by time",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_kind_is_both_expected_and_excused() {
        let excused: Vec<_> = UNREACHED_ANSWERS.iter().map(|(kind, _)| kind).collect();
        assert!(EXPECTED_ANSWERS.iter().all(|kind| !excused.contains(&kind)));
    }
}
