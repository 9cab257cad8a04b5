//! A sample of every call.

use std::sync::Arc;

use authority::command::*;
use authority::event::ReleaseCause;
use authority::*;
use coordinator::*;

use super::assert_variants;
use super::samples::*;

/// The commands that callers send.
pub(super) fn commands() -> Vec<Command> {
    let (scope, task, operation) = (scope(), TaskId(5), text("op"));
    vec![
        Command::SubmitTask(Box::new(SubmitTask {
            id: task,
            queue: queue(),
            payload: bytes(10_000),
            priority: -1,
            delay_ms: 2,
            properties: properties(),
            options: Some(Arc::new(options())),
            operation: Some(operation.clone()),
        })),
        Command::LeaseTasks(poll()),
        Command::ExtendLease(ExtendLease { lease: lease() }),
        Command::StartAttempt(StartAttempt { lease: lease(), started_by: text("w") }),
        Command::ReportCompletion(ReportCompletion {
            lease: lease(),
            digest: Digest([1; 16]),
            result: bytes(20),
            details: details(),
        }),
        Command::ReportFailure(ReportFailure {
            lease: lease(),
            digest: Digest([1; 16]),
            error: error(),
            details: details(),
            retryable: Some(false),
            draw: 5,
        }),
        Command::ReleaseLease(ReleaseLease { lease: lease(), cause: ReleaseCause::Undelivered }),
        Command::CancelTask(CancelTask { scope: scope.clone(), task, reason: text("r"), by: by() }),
        Command::KillTask(KillTask { scope: scope.clone(), task, detail: Some(text("d")), by: by() }),
        Command::RedriveTask(RedriveTask { scope: scope.clone(), task, id: TaskId(6), by: by() }),
        Command::ConfigureQueue(ConfigureQueue { queue: queue(), config: config(), by: by() }),
        Command::StartSession(StartSession { tenant: text("t"), worker: text("w"), session: text("s") }),
        Command::AttachOperation(AttachOperation {
            scope: scope.clone(),
            task,
            operation: operation.clone(),
        }),
        Command::DetachOperation(DetachOperation { scope, task, operation, by: by() }),
        Command::RotateTokenKey(RotateTokenKey { key_id: text("k"), by: by() }),
        Command::CreateKey(CreateKey { key: key(), by: by() }),
        Command::RevokeKey(RevokeKey { key_id: text("k"), revoked_by: text("a"), by: by() }),
    ]
}

pub(super) fn requests() -> Vec<Request> {
    let (scope, task, until) = (scope(), TaskId(5), Time(1_000));
    let (tenant, worker) = (text("t"), text("w"));
    let progress = Progress { percent: Some(12.5), message: Some(text("half")), at: Time(6) };
    let holder = LeaseHolder { tenant: tenant.clone(), identity: text("i") };
    let names: Arc<[String]> = Arc::from(["a".to_owned(), "b".to_owned()]);
    let conditions = [
        WaitCondition::Final,
        WaitCondition::FinalForServer,
        WaitCondition::LeaseOverForServer(Position(3)),
        WaitCondition::ChangeAfter(Position(4)),
    ];
    let reads = [
        Read::Task { scope: scope.clone(), task },
        Read::List {
            scope: scope.clone(),
            queue: Some(text("q")),
            state: Some(TaskState::Leased),
            after: Some((text("q"), Position(4))),
            limit: 10,
        },
        Read::Queue((*queue()).clone()),
        Read::Queues(scope.clone()),
        Read::Workers(scope.clone()),
        Read::Leases { scope: scope.clone(), worker: worker.clone() },
        Read::TenantLeases { tenant: tenant.clone(), worker: worker.clone() },
        Read::Worker { tenant: tenant.clone(), worker: worker.clone() },
        Read::ScopesWith(text("q")),
        Read::PushTargets,
        Read::TokenKey,
        Read::Keys,
        Read::Status,
        Read::Depths(names.clone()),
        Read::Tenant { tenant: tenant.clone(), names },
        Read::Held(Box::new(FindHeld {
            holder: holder.clone(),
            queue: text("q"),
            known: vec![(Position(5), task), (Position(6), TaskId(7))],
            after: (8, 9),
        })),
        Read::ChargeUpload(ChargeUpload { holder, queue: text("q"), bytes: 10, max_bytes: 11 }),
    ];
    assert_variants(&reads, 17);
    assert_variants(&conditions, 4);
    let orders = [Order::Drain, Order::Stop, Order::Resume];
    let items = commands().into_iter().map(BatchItem::Command);
    let mut requests = vec![
        Request::Decide(items.collect()),
        Request::heartbeat(ExtendLease { lease: lease() }, Some(progress)),
        Request::Poll { lease: poll(), until },
    ];
    let wait = |condition| Request::Wait { scope: scope.clone(), task, condition, until };
    requests.extend(conditions.map(wait));
    requests.extend(reads.map(Request::Read));
    let order = |order| OrderWorker { tenant: tenant.clone(), worker: worker.clone(), order };
    requests.extend(orders.map(|to| Request::Order(order(to))));
    requests
}

pub(super) fn calls() -> Vec<Call> {
    let (scope, worker, session, task) = (scope(), text("w"), Some(text("s")), TaskId(3));
    let status = registered().status;
    let registry = [
        RegistryCall::Register { scope: scope.clone(), worker: worker.clone(), registration: registration() },
        RegistryCall::Unregister { scope: scope.clone(), worker: worker.clone(), session: session.clone() },
        RegistryCall::RecordStatus { scope: scope.clone(), worker: worker.clone(), session, status },
        RegistryCall::RecordHeartbeat { scope: scope.clone(), worker: worker.clone() },
        RegistryCall::Registered { scope: scope.clone(), worker: worker.clone() },
        RegistryCall::Registrations { tenant: text("t"), worker },
        RegistryCall::Offered { scope: scope.clone() },
        RegistryCall::Count { tenant: Some(text("t")) },
        RegistryCall::RegisteredFor,
        RegistryCall::NoteLeases { identity: Some(text("i")), leases: vec![lease(), lease()] },
        RegistryCall::RefundUpload { lease: (Position(5), task), bytes: 6 },
        RegistryCall::SetRefused { lease: lease(), is_refused: true },
        RegistryCall::Refused { leases: vec![(Position(5), task), (Position(6), task)] },
    ];
    assert_variants(&registry, 13);
    let asks = requests().into_iter().map(Call::Ask);
    let mut calls: Vec<_> = asks.chain(registry.map(Call::Registry)).collect();
    calls.push(Call::History { scope: scope.clone(), task });
    calls.push(Call::PurgedTask { scope, task });
    calls
}
