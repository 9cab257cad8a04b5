//! A sample of every answer.

use std::sync::Arc;

use authority::command::*;
use authority::event::{Event, LeaseGranted};
use authority::*;
use coordinator::engine::DiskSpace;
use coordinator::*;

use super::assert_variants;
use super::samples::*;

pub(super) fn answers() -> Vec<Answer> {
    let (task, tenant) = (TaskId(2), text("t"));
    let why = Rejection::WrongWorker;
    let refusals = [
        Refusal::QueueFull { max: 1 },
        Refusal::StateFull { tenant: tenant.clone(), bytes: 2, free: 3 },
        Refusal::TenantTasks { tenant: tenant.clone(), max: 4 },
        Refusal::TenantBytes { tenant: tenant.clone(), max: 5 },
        Refusal::TooManyQueues { tenant: tenant.clone(), queues: 6, free: 7 },
        Refusal::TooManyTenants { tenant },
        Refusal::UnknownQueue { queue: text("q") },
        Refusal::TooManyRequirements,
        Refusal::NoSpace,
    ];
    assert_variants(&refusals, 9);
    let mut answers = vec![
        Answer::Submitted(SubmitAnswer::Created(task)),
        Answer::Submitted(SubmitAnswer::DedupConflict(task)),
        Answer::Leased(vec![grant()]),
        Answer::Extended(ExtendAnswer::Extended { expires_at: Time(4), cancel: Some(text("c")) }),
        Answer::Extended(ExtendAnswer::Lost),
        Answer::Extended(ExtendAnswer::Rejected(why)),
        Answer::Started(StartAnswer::Started),
        Answer::Started(StartAnswer::AlreadyStarted(text("w"))),
        Answer::Started(StartAnswer::Cancelled(text("c"))),
        Answer::Started(StartAnswer::Lost),
        Answer::Started(StartAnswer::Rejected(why)),
        Answer::Reported(Verdict::Cancelled),
        Answer::Released(ReleaseAnswer::Over(TaskState::Dead)),
        Answer::Released(ReleaseAnswer::Rejected(Rejection::NeverGranted)),
        Answer::Ended(EndAnswer::Accepted),
        Answer::Ended(EndAnswer::UnknownTask),
        Answer::Redriven(RedriveAnswer::Created(task)),
        Answer::Redriven(RedriveAnswer::Existing(task)),
        Answer::Redriven(RedriveAnswer::UnknownTask),
        Answer::Redriven(RedriveAnswer::NotADeadLetter(TaskState::Waiting)),
        Answer::Redriven(RedriveAnswer::Refused(Refusal::NoSpace)),
        Answer::Configured(ConfigureAnswer::Configured),
        Answer::Configured(ConfigureAnswer::Invalid("leaseMs: no".to_owned())),
        Answer::Configured(ConfigureAnswer::Refused(Refusal::NoSpace)),
        Answer::Attached(AttachAnswer::Done),
        Answer::Attached(AttachAnswer::UnknownTask),
        Answer::Attached(AttachAnswer::TooMany),
        Answer::KeyCreated(CreateKeyAnswer::Created),
        Answer::KeyCreated(CreateKeyAnswer::NameTaken),
        Answer::KeyCreated(CreateKeyAnswer::TooMany),
        Answer::KeyCreated(CreateKeyAnswer::Invalid("name: no".to_owned())),
        Answer::KeyRevoked(RevokeKeyAnswer::Revoked),
        Answer::KeyRevoked(RevokeKeyAnswer::Unknown),
        Answer::Done(true),
    ];
    answers.extend(refusals.map(|why| Answer::Submitted(SubmitAnswer::Refused(why))));
    answers.extend(outcomes().map(|outcome| Answer::Reported(Verdict::Committed(outcome))));
    let rejections = [Rejection::UnknownTask, Rejection::ConflictingReport];
    answers.extend(rejections.map(|why| Answer::Reported(Verdict::Rejected(why))));
    let existing = tasks().into_iter().map(|view| SubmitAnswer::Existing(Box::new(view)));
    answers.extend(existing.map(Answer::Submitted));
    assert_variants(&answers, 13);
    answers
}

pub(super) fn replies() -> Vec<Reply> {
    let view = WorkerView {
        worker: text("w"),
        last_heartbeat: Time(4),
        active_leases: 2,
        registered: Some(registered()),
        is_drained: true,
    };
    let held =
        HeldLease { lease: lease(), queue: text("q"), session: None, contract: Some(Contract::Scheduler) };
    let settings = QueueSettings {
        max_attempts: 1,
        lease_ms: 2,
        heartbeat_interval_ms: 3,
        cancel_grace_ms: 4,
        backoff: backoff(),
        retry_on: Some(Category::ALL.into()),
        max_queue_size: None,
        retention_ms: 5,
    };
    let queue_view = QueueView {
        key: queue(),
        config: config(),
        settings,
        waiting: 1,
        delayed: 2,
        leased: 3,
        completed: 4,
        failed: 5,
        dead: 6,
        oldest_waiting: Some(Time(7)),
    };
    let depth = Depth { waiting: 1, leased: 2, oldest_waiting: Some(Time(3)) };
    let usage = TenantUsage { queues: 1, bytes: 2, open_tasks: 3 };
    let target = config().push.unwrap();
    let unavailable = [
        Unavailable::Stopped,
        Unavailable::Overloaded,
        Unavailable::NoSpace,
        Unavailable::OutcomeUnknown,
        Unavailable::NoOwner,
        Unavailable::NoStandby,
        Unavailable::NotUnderstood,
    ];
    let status = |disk_space| Status {
        position: Position(1),
        tasks: 2,
        state_bytes: 3,
        max_state_bytes: usize::MAX,
        final_bytes: 5,
        max_final_bytes: 6,
        queues: 7,
        tenants: 8,
        largest_tenant_bytes: 9,
        polls: 10,
        disk_space,
    };
    let progress = Some(Progress { percent: None, message: None, at: Time(1) });
    let detail = |view| Some(Box::new(TaskDetail { view, progress: progress.clone() }));
    let mut replies = vec![
        Reply::Decided(answers().into()),
        Reply::Leased(vec![grant(), grant()]),
        Reply::Task(None),
        Reply::List(ListPage { tasks: tasks(), next: Some((text("q"), Position(9))) }),
        Reply::Queue(Some(Box::new(queue_view.clone()))),
        Reply::Queues(vec![queue_view]),
        Reply::Workers(vec![view.clone()]),
        Reply::Leases(vec![held.clone()]),
        Reply::Worker(Some(Box::new(TenantWorker { view, leases: vec![held] }))),
        Reply::Ordered(Ok(())),
        Reply::Ordered(Err(OrderRefusal::UnknownWorker)),
        Reply::Ordered(Err(OrderRefusal::TooManyDrained)),
        Reply::ScopesWith(vec![scope()]),
        Reply::PushTargets(vec![(queue(), target)]),
        Reply::TokenKey(Some(TokenKey { id: text("k"), since: Position(4) })),
        Reply::Keys(vec![StoredKey { key: key(), created_at: Time(1), since: Position(2) }]),
        Reply::Depths(vec![depth]),
        Reply::Tenant(Box::new(TenantStatus { usage, depths: vec![depth] })),
    ];
    let spaces = [DiskSpace::Plenty, DiskSpace::FinishOnly, DiskSpace::Nothing];
    replies.extend(spaces.map(|space| Reply::Status(status(space))));
    replies.extend(unavailable.map(Reply::Unavailable));
    replies.extend(tasks().into_iter().map(|view| Reply::Task(detail(view))));
    let charges = [
        UploadCharge::Charged((Position(3), TaskId(4))),
        UploadCharge::OverLimit,
        UploadCharge::NoLease { is_any_unclaimed: true },
    ];
    assert_variants(&charges, 3);
    replies.extend(charges.map(Reply::UploadCharged));
    replies.push(Reply::Held(Box::new(HeldLeases {
        lost: vec![(Position(5), TaskId(6))],
        found: vec![lease(), lease()],
        next: (7, 8),
        has_more: true,
        unclaimed_before: Some(Position(9)),
    })));
    assert_variants(&replies, 20);
    replies
}

pub(super) fn call_replies() -> Vec<CallReply> {
    let liveness = [Liveness::Registered, Liveness::Stopping, Liveness::Superseded, Liveness::Unknown];
    let mut registry = vec![
        RegistryReply::Done,
        RegistryReply::Started(true),
        RegistryReply::Registered(Some(registered())),
        RegistryReply::Registrations(vec![Arc::new(registration())]),
        RegistryReply::Offered(vec![properties()]),
        RegistryReply::Count(3),
        RegistryReply::RegisteredForMs(Some(4)),
        RegistryReply::Refused(vec![(Position(5), TaskId(6))]),
    ];
    registry.extend(liveness.map(RegistryReply::Liveness));
    assert_variants(&registry, 9);
    let event = Event::LeaseGranted(LeaseGranted {
        task: TaskId(1),
        attempt: 2,
        worker: text("w"),
        session: None,
        request: None,
        length_ms: 3,
        expires_at: Time(4),
        contract: Some(Contract::Leases),
    });
    let records = vec![HistoryRecord { position: Position(8), at: Time(9), event }];
    let end = Some((Time(2), TaskState::Failed));
    let purged = PurgedTask { created_at: Time(1), end, purged_at: Some(Time(3)) };
    let asked = replies().into_iter().map(CallReply::Asked);
    let mut all: Vec<_> = asked.chain(registry.into_iter().map(CallReply::Registry)).collect();
    all.push(CallReply::History(Some(History { records, truncated: true })));
    all.push(CallReply::PurgedTask(Some(purged)));
    all.push(CallReply::LedgerError("no".to_owned()));
    assert_variants(&all, 5);
    all
}
