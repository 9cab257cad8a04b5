//! Random events and tasks of every kind, with every optional value present and absent.

use std::sync::Arc;

use authority::event::*;
use authority::*;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

pub(crate) fn record() -> impl Strategy<Value = ledger::record::Record> {
    (time(), option::of(position()), event()).prop_map(|(at, prev, event)| ledger::record::Record {
        at,
        prev,
        event,
    })
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    // Boxed: all kinds in one value are too large for the stack of a test.
    let event = prop_oneof![about_leases().boxed(), about_tasks().boxed(), about_the_rest().boxed()];
    (event, option::of(actor().prop_map(Arc::new))).prop_map(|(mut event, by)| {
        set_actor(&mut event, by);
        event
    })
}

fn actor() -> impl Strategy<Value = Actor> {
    let kind = proptest::sample::select(&ActorKind::ALL[..]);
    (kind, text(), text()).prop_map(|(kind, id, name)| Actor { kind, id, name })
}

/// Says who asked for an event, if its record can.
pub(crate) fn set_actor(event: &mut Event, by: Option<Arc<Actor>>) {
    match event {
        Event::TaskCreated(event) => event.by = by,
        Event::TaskDead(event) => event.by = by,
        Event::CancelRequested(event) => event.by = by,
        Event::OperationDetached(event) => event.by = by,
        Event::QueueConfigured(event) => event.by = by,
        Event::TokenKeyRotated(event) => event.by = by,
        Event::KeyCreated(event) => event.by = by,
        Event::KeyRevoked(event) => event.by = by,
        _ => {}
    }
}

pub(crate) fn task() -> impl Strategy<Value = (QueueKey, Task)> {
    let numbers = (any::<i32>(), any::<u32>(), any::<u32>(), time(), any::<u64>(), any::<u64>());
    let past = (option::of(cancel_request()), vec(report(), 0..4), option::of(task_error()), details());
    let more = (properties(), option::of(options()), vec(text(), 0..4));
    (queue_key(), task_id(), content(), numbers, phase(), past, more).prop_map(
        |(queue, id, payload, numbers, phase, (cancel, reports, last_error, details), more)| {
            let (priority, grants, releases, created_at, created, last) = numbers;
            let (properties, options, operations) = more;
            let task = Task {
                id,
                payload,
                priority,
                attempt: grants.max(releases),
                releases: grants.min(releases),
                created_at,
                created: Position(created.min(last)),
                last: Position(created.max(last)),
                phase,
                cancel: cancel.map(Box::new),
                reports,
                last_error: last_error.map(Box::new),
                details,
                properties,
                options: options.map(Arc::new),
                operations,
            };
            (queue, task)
        },
    )
}

pub(crate) fn queue_config() -> impl Strategy<Value = QueueConfig> {
    let spans = (option::of(number()), option::of(number()), option::of(number()), option::of(number()));
    let lists = (option::of(backoff()), option::of(vec(category(), 0..7)));
    let push = option::of(push_target().prop_map(Arc::new));
    (option::of(any::<u32>()), spans, lists, option::of(number()), push).prop_map(
        |(max_attempts, spans, (backoff, retry_on), max_queue_size, push)| QueueConfig {
            max_attempts,
            lease_ms: spans.0,
            heartbeat_interval_ms: spans.1,
            cancel_grace_ms: spans.2,
            backoff,
            retry_on,
            max_queue_size,
            retention_ms: spans.3,
            push,
        },
    )
}

fn push_target() -> impl Strategy<Value = PushTarget> {
    (text(), any::<u32>(), btree_map(text(), text(), 0..4), option::of(text())).prop_map(
        |(url, concurrency, headers, secret)| PushTarget {
            url,
            concurrency,
            headers: headers.into_iter().collect(),
            secret,
        },
    )
}

pub(crate) fn queue_key() -> impl Strategy<Value = QueueKey> {
    (text(), text(), text())
        .prop_map(|(tenant, workspace, name)| QueueKey { scope: Scope { tenant, workspace }, name })
}

fn about_leases() -> impl Strategy<Value = Event> {
    let asked = (text(), option::of(text()), option::of(digest()), option::of(contract()));
    let granted = (task_id(), any::<u32>(), asked, number(), time());
    let expiry = proptest::sample::select(&ExpiryCause::ALL[..]);
    let release =
        prop_oneof![Just(ReleaseCause::Worker), Just(ReleaseCause::Undelivered), Just(ReleaseCause::Session)];
    prop_oneof![
        granted.prop_map(|(task, attempt, asked, length_ms, expires_at)| {
            let (worker, session, request, contract) = asked;
            Event::LeaseGranted(LeaseGranted {
                task,
                attempt,
                worker,
                session,
                request,
                length_ms,
                expires_at,
                contract,
            })
        }),
        (task_id(), position(), time()).prop_map(|(task, lease, expires_at)| Event::LeaseExtended(
            LeaseExtended { task, fencing_token: lease, expires_at }
        )),
        (task_id(), position(), expiry, any::<bool>(), option::of(position())).prop_map(
            |(task, lease, cause, exhausted, since)| {
                Event::LeaseExpired(LeaseExpired { task, fencing_token: lease, cause, exhausted, since })
            }
        ),
        (task_id(), position(), release).prop_map(|(task, lease, cause)| Event::LeaseReleased(
            LeaseReleased { task, fencing_token: lease, cause }
        )),
        (task_id(), position(), text()).prop_map(|(task, lease, worker)| Event::AttemptStarted(
            AttemptStarted { task, fencing_token: lease, worker }
        )),
    ]
}

fn about_tasks() -> impl Strategy<Value = Event> {
    let next = prop_oneof![Just(NextStep::Final), time().prop_map(NextStep::RetryAt)];
    let dead_report =
        (position(), digest(), task_error(), details()).prop_map(|(lease, digest, error, details)| {
            DeadReport { fencing_token: lease, digest, error, details }
        });
    prop_oneof![
        task_created().prop_map(|created| Event::TaskCreated(Box::new(created))),
        (task_id(), position(), digest(), content(), details()).prop_map(
            |(task, lease, digest, result, details)| {
                Event::TaskCompleted(TaskCompleted { task, fencing_token: lease, digest, result, details })
            }
        ),
        (task_id(), position(), digest(), task_error(), next, details()).prop_map(
            |(task, lease, digest, error, next, details)| Event::TaskFailed(TaskFailed {
                task,
                fencing_token: lease,
                digest,
                error,
                next,
                details,
            })
        ),
        (task_id(), dead_reason(), option::of(text()), option::of(dead_report)).prop_map(
            |(task, reason, detail, report)| Event::TaskDead(TaskDead {
                task,
                reason,
                detail,
                report,
                by: None
            })
        ),
        (task_id(), position(), any::<u32>(), digest()).prop_map(|(task, lease, attempt, digest)| {
            Event::TaskCancelled(TaskCancelled { task, fencing_token: lease, attempt, digest })
        }),
        (task_id(), cancel_cause(), text(), time()).prop_map(|(task, cause, reason, grace_until)| {
            Event::CancelRequested(CancelRequested { task, cause, reason, grace_until, by: None })
        }),
    ]
}

fn about_the_rest() -> impl Strategy<Value = Event> {
    prop_oneof![
        (task_id(), text())
            .prop_map(|(task, operation)| Event::OperationAttached(OperationAttached { task, operation })),
        (task_id(), text()).prop_map(|(task, operation)| Event::OperationDetached(OperationDetached {
            task,
            operation,
            by: None
        })),
        (queue_key(), queue_config()).prop_map(|(queue, config)| Event::QueueConfigured(QueueConfigured {
            queue: Arc::new(queue),
            config,
            by: None
        })),
        vec(task_id(), 0..20).prop_map(|tasks| Event::TasksPurged(TasksPurged { tasks })),
        text().prop_map(|key_id| Event::TokenKeyRotated(TokenKeyRotated { key_id, by: None })),
        (number(), text(), option::of(text())).prop_map(|(epoch, node, audit_head)| {
            Event::OwnerTookOver(OwnerTookOver { epoch, node, audit_head })
        }),
        api_key().prop_map(|key| Event::KeyCreated(KeyCreated { key: Arc::new(key), by: None })),
        (text(), text()).prop_map(|(key_id, revoked_by)| Event::KeyRevoked(KeyRevoked {
            key_id,
            revoked_by,
            by: None
        })),
    ]
}

pub(crate) fn api_key() -> impl Strategy<Value = ApiKey> {
    let roles = vec(proptest::sample::select(&Role::ALL[..]), 0..4);
    let lists = (vec(text(), 0..3), roles, vec(text(), 0..3), vec(text(), 0..3));
    let limits = (option::of(text()), option::of(time()), any::<[u8; 32]>());
    (text(), text(), lists, limits, text()).prop_map(
        |(id, name, (tenants, roles, queues, properties), (worker_prefix, expires_at, hash), created_by)| {
            ApiKey {
                id,
                name,
                tenants,
                roles,
                queues,
                worker_prefix,
                expires_at,
                secret_hash: SecretHash(hash),
                created_by,
                properties,
            }
        },
    )
}

fn task_created() -> impl Strategy<Value = TaskCreated> {
    let optional = (option::of(time()), properties(), option::of(options()), option::of(text()));
    (task_id(), queue_key(), content(), any::<i32>(), optional).prop_map(
        |(task, queue, payload, priority, (not_before, properties, options, operation))| TaskCreated {
            task,
            queue: Arc::new(queue),
            payload,
            priority,
            not_before,
            properties,
            options: options.map(Arc::new),
            operation,
            by: None,
        },
    )
}

fn options() -> impl Strategy<Value = TaskOptions> {
    let dedup = (text(), digest()).prop_map(|(key, content)| Dedup { key, content });
    let times = (option::of(time()), option::of(number()), option::of(number()));
    let names = (option::of(text()), option::of(text()), option::of(text()));
    let policy = (option::of(any::<u32>()), option::of(backoff()));
    (option::of(dedup), times, names, policy, option::of(content()), option::of(task_id())).prop_map(
        |(dedup, times, names, (max_attempts, backoff), resources, redrive_of)| TaskOptions {
            dedup,
            deadline: times.0,
            timeout_ms: times.1,
            lease_ms: times.2,
            max_attempts,
            backoff,
            run_id: names.0,
            asset_id: names.1,
            task_key: names.2,
            resources,
            redrive_of,
        },
    )
}

fn phase() -> impl Strategy<Value = Phase> {
    let lease = (
        (position(), text(), option::of(text()), option::of(digest()), option::of(text())),
        (time(), number(), time(), time()),
        (option::of(contract()), option::of(position())),
    );
    prop_oneof![
        (position(), option::of(time()), any::<bool>())
            .prop_map(|(since, not_before, exhausted)| { Phase::Waiting { since, not_before, exhausted } }),
        lease.prop_map(|((number, worker, session, request, started_by), times, (contract, since))| {
            let (granted_at, length_ms, expires_at, extended_at) = times;
            Phase::Leased(Box::new(Lease {
                fencing_token: number,
                worker,
                session,
                request,
                granted_at,
                length_ms,
                expires_at,
                extended_at,
                started_by,
                contract,
                since,
            }))
        }),
        (time(), position(), content()).prop_map(|(at, ended, result)| Phase::Completed {
            at,
            ended,
            result
        }),
        (time(), position()).prop_map(|(at, ended)| Phase::Failed { at, ended }),
        (time(), position(), dead_reason(), option::of(text()))
            .prop_map(|(at, ended, reason, detail)| Phase::Dead { at, ended, reason, detail }),
    ]
}

fn report() -> impl Strategy<Value = Report> {
    let outcome = prop_oneof![
        Just(Outcome::Completed),
        Just(Outcome::Failed),
        time().prop_map(Outcome::RetryAt),
        dead_reason().prop_map(Outcome::Dead),
        Just(Outcome::Discarded),
    ];
    (any::<u32>(), position(), digest(), outcome).prop_map(|(attempt, lease, digest, outcome)| Report {
        attempt,
        fencing_token: lease,
        digest,
        outcome,
    })
}

fn cancel_request() -> impl Strategy<Value = CancelRequest> {
    (cancel_cause(), text(), time(), time()).prop_map(|(cause, reason, requested_at, grace_until)| {
        CancelRequest { cause, reason, requested_at, grace_until }
    })
}

fn task_error() -> impl Strategy<Value = TaskError> {
    (category(), option::of(text()), text()).prop_map(|(category, code, message)| TaskError {
        category,
        code,
        message,
    })
}

fn backoff() -> impl Strategy<Value = Backoff> {
    (number(), any::<u32>(), number(), any::<u32>()).prop_map(
        |(initial_ms, factor_permille, max_ms, jitter_permille)| Backoff {
            initial_ms,
            factor_permille,
            max_ms,
            jitter_permille,
        },
    )
}

fn properties() -> impl Strategy<Value = Arc<Properties>> {
    vec((text(), text()), 0..4).prop_map(|pairs| Arc::new(Properties::new(pairs)))
}

fn contract() -> impl Strategy<Value = Contract> {
    proptest::sample::select(&Contract::ALL[..])
}

fn details() -> impl Strategy<Value = Option<Arc<ReportDetails>>> {
    let details = (option::of(content()), option::of(text()), option::of(text()), option::of(content()));
    let details = details.prop_map(|(metrics, stack_trace, cancelled_during_phase, partial_progress)| {
        Arc::new(ReportDetails { metrics, stack_trace, cancelled_during_phase, partial_progress })
    });
    option::of(details)
}

fn category() -> impl Strategy<Value = Category> {
    proptest::sample::select(&Category::ALL[..])
}

fn dead_reason() -> impl Strategy<Value = DeadReason> {
    proptest::sample::select(&DeadReason::ALL[..])
}

fn cancel_cause() -> impl Strategy<Value = CancelCause> {
    prop_oneof![Just(CancelCause::User), Just(CancelCause::Deadline)]
}

fn text() -> impl Strategy<Value = Arc<str>> {
    prop_oneof!["[a-z]{0,6}", ".{0,6}"].prop_map(Arc::from)
}

fn content() -> impl Strategy<Value = Arc<[u8]>> {
    vec(any::<u8>(), 0..40).prop_map(Arc::from)
}

/// Zero is worth trying often: protobuf leaves it out.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 1 => 1..1_000u64, 3 => any::<u64>()]
}

fn time() -> impl Strategy<Value = Time> {
    number().prop_map(Time)
}

fn position() -> impl Strategy<Value = Position> {
    number().prop_map(Position)
}

fn task_id() -> impl Strategy<Value = TaskId> {
    prop_oneof![1 => Just(TaskId(0)), 4 => any::<u128>().prop_map(TaskId)]
}

fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 16]>().prop_map(Digest)
}
