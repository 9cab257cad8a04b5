//! The field tables: every event, the options of a task and the configuration of a queue, each field with its tag in the
//! ledger and its name in JSON; and the enumerations, each value with its number and its name.
//!
//! Each list is written once. The types themselves, the encoding of records and snapshots, the JSON of task histories
//! and of `lessor log`, the filters of the log and the auditor's vocabulary are derived from it: a macro here hands its
//! list to the macro that the caller names. docs/records.md says how the tables may grow; a tag is never used again.

/// Hands the events to `$callback`. `of task` marks the events about one task.
#[macro_export]
macro_rules! event_table {
    ($callback:ident) => {
        $callback! {
            /// A task was accepted: it waits, with no attempt made.
            3 TaskCreated(Box<TaskCreated>) of task {
                1 "taskId" task: TaskId,
                2 "queue" queue: Arc<QueueKey>,
                3 "payload" payload: Arc<[u8]>,
                4 "priority" priority: i32,
                5 "notBefore" not_before: Option<Time>,
                6 "properties" properties: Arc<Properties>,
                7 "options" options: Option<Arc<TaskOptions>>,
                /// The first waiter of an execution.
                8 "operation" operation: Option<Arc<str>>,
                /// Who asked for the redrive that it is.
                100 "by" by: Option<Arc<Actor>>,
            }
            /// A waiting task was given to a worker. No other event gives a task an owner.
            4 LeaseGranted(LeaseGranted) of task {
                1 "taskId" task: TaskId,
                /// One more than the grants before it.
                2 "attempt" attempt: u32,
                3 "workerId" worker: Arc<str>,
                4 "session" session: Option<Arc<str>>,
                5 "request" request: Option<Digest>,
                6 "leaseMs" length_ms: u64,
                7 "expiresAt" expires_at: Time,
                /// Unknown in the records of format 2 and before.
                8 "contract" contract: Option<Contract>,
            }
            /// A live lease was given more time. The task's state does not change.
            5 LeaseExtended(LeaseExtended) of task {
                1 "taskId" task: TaskId,
                2 "fencingToken" fencing_token: Position,
                3 "expiresAt" expires_at: Time,
            }
            /// Time revoked a lease, or its worker was lost: the task waits again. Never a request of a worker.
            6 LeaseExpired(LeaseExpired) of task {
                1 "taskId" task: TaskId,
                2 "fencingToken" fencing_token: Position,
                3 "cause" cause: ExpiryCause,
                /// Whether this was the last attempt that the policy allows; TaskDead follows in the same batch.
                4 "exhausted" exhausted: bool,
                /// The record that the task's place in the queue counts from; this one, if absent.
                5 "since" since: Option<Position>,
            }
            /// A lease was given back before its time: the task waits again, and the attempt does not count.
            7 LeaseReleased(LeaseReleased) of task {
                1 "taskId" task: TaskId,
                2 "fencingToken" fencing_token: Position,
                3 "cause" cause: ReleaseCause,
            }
            /// A worker began an attempt; from here on the attempt is bound to that worker.
            8 AttemptStarted(AttemptStarted) of task {
                1 "taskId" task: TaskId,
                2 "fencingToken" fencing_token: Position,
                3 "workerId" worker: Arc<str>,
            }
            /// A worker with authority finished the task.
            9 TaskCompleted(TaskCompleted) of task {
                1 "taskId" task: TaskId,
                2 "fencingToken" fencing_token: Position,
                3 "digest" digest: Digest,
                4 "result" result: Arc<[u8]>,
                5 "details" details: Option<Arc<ReportDetails>>,
            }
            /// A worker with authority reported that its attempt failed. The event holds what follows; replay runs no
            /// policy.
            10 TaskFailed(TaskFailed) of task {
                1 "taskId" task: TaskId,
                2 "fencingToken" fencing_token: Position,
                3 "digest" digest: Digest,
                4 "error" error: TaskError,
                5 "retryAt" next: NextStep,
                6 "details" details: Option<Arc<ReportDetails>>,
            }
            /// Policy or an operator ended the task. A report that led to the end is kept with it.
            11 TaskDead(TaskDead) of task {
                1 "taskId" task: TaskId,
                2 "reason" reason: DeadReason,
                /// The text of the request that ended the task.
                3 "reasonDetail" detail: Option<Arc<str>>,
                4 "report" report: Option<DeadReport>,
                /// Who asked for it; unknown in older records, and where nobody is authenticated.
                100 "by" by: Option<Arc<Actor>>,
            }
            /// A report came without authority and was discarded. The task does not change, whatever its state; only the
            /// answer is remembered, once for each lease. A user's cancel is [`CancelRequested`].
            12 TaskCancelled(TaskCancelled) of task {
                1 "taskId" task: TaskId,
                2 "fencingToken" fencing_token: Position,
                3 "attempt" attempt: u32,
                4 "digest" digest: Digest,
            }
            /// A leased task is to stop. Its worker may still finish; the task will not wait again.
            13 CancelRequested(CancelRequested) of task {
                1 "taskId" task: TaskId,
                2 "cause" cause: CancelCause,
                3 "reason" reason: Arc<str>,
                4 "graceUntil" grace_until: Time,
                /// Who asked for it; unknown in older records, and where nobody is authenticated.
                100 "by" by: Option<Arc<Actor>>,
            }
            /// A further waiter joined an execution.
            14 OperationAttached(OperationAttached) of task {
                1 "taskId" task: TaskId,
                2 "operation" operation: Arc<str>,
            }
            /// A waiter left an execution; the others keep waiting.
            15 OperationDetached(OperationDetached) of task {
                1 "taskId" task: TaskId,
                2 "operation" operation: Arc<str>,
                /// Who asked for it; unknown in older records, and where nobody is authenticated.
                100 "by" by: Option<Arc<Actor>>,
            }
            /// A queue's settings were replaced.
            16 QueueConfigured(QueueConfigured) of ledger {
                1 "queue" queue: Arc<QueueKey>,
                2 "config" config: QueueConfig,
                /// Who asked for it; unknown in older records, and where nobody is authenticated.
                100 "by" by: Option<Arc<Actor>>,
            }
            /// Final tasks were removed after their retention.
            17 TasksPurged(TasksPurged) of ledger {
                1 "taskIds" tasks: Vec<TaskId>,
            }
            /// A new key signs task tokens. Only its name is recorded, never the key.
            18 TokenKeyRotated(TokenKeyRotated) of ledger {
                1 "keyId" key_id: Arc<str>,
                /// Who asked for it; unknown in older records, and where nobody is authenticated.
                100 "by" by: Option<Arc<Actor>>,
            }
            /// A node became the owner of this ledger; every owner before it is fenced.
            19 OwnerTookOver(OwnerTookOver) of ledger {
                1 "epoch" epoch: u64,
                2 "node" node: Arc<str>,
                /// The last line of the audit trail when the node began: its number, a colon, its MAC.
                100 "auditHead" audit_head: Option<Arc<str>>,
            }
            /// An API key was created. Only its holder knows the secret; the record has a hash of it.
            20 KeyCreated(KeyCreated) of ledger {
                1 "key" key: Arc<ApiKey>,
                /// Who asked for it; unknown in older records, and where nobody is authenticated.
                100 "by" by: Option<Arc<Actor>>,
            }
            /// An API key ended; nobody is admitted with it any more.
            21 KeyRevoked(KeyRevoked) of ledger {
                1 "keyId" key_id: Arc<str>,
                2 "revokedBy" revoked_by: Arc<str>,
                /// Who asked for it; unknown in older records, and where nobody is authenticated.
                100 "by" by: Option<Arc<Actor>>,
            }
        }
    };
}

/// Hands the messages within events and snapshots to `$callback`.
#[macro_export]
macro_rules! message_table {
    ($callback:ident) => {
        $callback! {
            /// The optional fields of a task, which most tasks do not set.
            #[derive(Clone, Debug, Default, PartialEq, Eq)]
            TaskOptions {
                1 "dedup" dedup: Option<Dedup>,
                2 "deadline" deadline: Option<Time>,
                /// Bounds one attempt: no extension passes grant + timeout.
                3 "timeoutMs" timeout_ms: Option<u64>,
                4 "leaseMs" lease_ms: Option<u64>,
                5 "maxAttempts" max_attempts: Option<u32>,
                6 "backoff" backoff: Option<Backoff>,
                7 "runId" run_id: Option<Arc<str>>,
                8 "assetId" asset_id: Option<Arc<str>>,
                9 "taskKey" task_key: Option<Arc<str>>,
                /// Free JSON, as it was submitted.
                10 "resources" resources: Option<Arc<[u8]>>,
                /// The final task that this task does again.
                11 "redriveOf" redrive_of: Option<TaskId>,
            }
            /// The settings that an operator configured; a setting that is left out follows the defaults.
            #[derive(Clone, Debug, Default, PartialEq, Eq)]
            QueueConfig {
                1 "maxAttempts" max_attempts: Option<u32>,
                2 "leaseMs" lease_ms: Option<u64>,
                3 "heartbeatIntervalMs" heartbeat_interval_ms: Option<u64>,
                4 "cancelGracePeriodMs" cancel_grace_ms: Option<u64>,
                5 "backoff" backoff: Option<Backoff>,
                /// When given, only these categories are tried again, whatever the worker says.
                6 "retryOn" retry_on: Option<Vec<Category>>,
                7 "maxQueueSize" max_queue_size: Option<u64>,
                8 "retentionMs" retention_ms: Option<u64>,
                /// The target that tasks are pushed to; without one, workers lease them.
                9 "push" push: Option<Arc<PushTarget>>,
            }
            /// The report of a cancelled attempt, accepted with the end of the task.
            #[derive(Clone, Debug, PartialEq, Eq)]
            DeadReport {
                1 "fencingToken" fencing_token: Position,
                2 "digest" digest: Digest,
                3 "error" error: TaskError,
                4 "details" details: Option<Arc<ReportDetails>>,
            }
            /// What a worker adds to its report. It is stored and displayed; only the next attempt reads any of it.
            #[derive(Clone, Debug, Default, PartialEq, Eq)]
            ReportDetails {
                /// Free JSON, as it was sent.
                1 "metrics" metrics: Option<Arc<[u8]>>,
                2 "stackTrace" stack_trace: Option<Arc<str>>,
                3 "cancelledDuringPhase" cancelled_during_phase: Option<Arc<str>>,
                /// Free JSON, as it was sent. The next attempt receives it.
                4 "partialProgress" partial_progress: Option<Arc<[u8]>>,
            }
            /// An API key: who is admitted with it, and to what.
            #[derive(Clone, Debug, PartialEq, Eq)]
            ApiKey {
                1 "keyId" id: Arc<str>,
                /// Unique among the keys that live.
                2 "name" name: Arc<str>,
                /// The tenants that it may act for. The role admin has all tenants and names none.
                3 "tenants" tenants: Vec<Arc<str>>,
                4 "roles" roles: Vec<Role>,
                /// The queues that it may submit to and lease from; all when there is none.
                5 "queues" queues: Vec<Arc<str>>,
                /// How the names of its workers begin.
                6 "workerPrefix" worker_prefix: Option<Arc<str>>,
                7 "expiresAt" expires_at: Option<Time>,
                8 "secretHash" secret_hash: SecretHash,
                /// The name of the key that created it, or of the command.
                9 "createdBy" created_by: Arc<str>,
                /// What its workers may announce, each as `name=value`; anything when there is none. A value may end with `*`.
                10 "properties" properties: Vec<Arc<str>>,
            }
            /// Who asked for a change: the holder of a credential. Neither a decision nor the state depends on it.
            #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
            Actor {
                1 "kind" kind: ActorKind,
                /// The id of a key, the issuer of a token, the fingerprint or the rule of a certificate.
                2 "id" id: Arc<str>,
                3 "name" name: Arc<str>,
            }
        }
    };
}

/// Enumerations that are recorded: each value with its number in the ledger, which never changes, and its name in JSON.
macro_rules! define_enumerations {
    ($($(#[$doc:meta])* $Name:ident { $($(#[$value_doc:meta])* $number:literal $json:literal $Value:ident,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub enum $Name { $($(#[$value_doc])* $Value,)* }

            impl $Name {
                pub const ALL: [$Name; <[$Name]>::len(&[$($Name::$Value),*])] = [$($Name::$Value),*];

                pub fn name(self) -> &'static str {
                    match self { $($Name::$Value => $json,)* }
                }

                pub fn from_name(name: &str) -> Option<$Name> {
                    match name { $($json => Some($Name::$Value),)* _ => None }
                }

                pub fn number(self) -> u64 {
                    match self { $($Name::$Value => $number,)* }
                }

                pub fn from_number(number: u64) -> Option<$Name> {
                    match number { $($number => Some($Name::$Value),)* _ => None }
                }
            }
        )*
    };
}

define_enumerations! {
    /// What kind of error a worker reports. The kind decides whether it is worth another try by default.
    Category {
        1 "USER_CODE" UserCode,
        2 "DATA_QUALITY" DataQuality,
        3 "INFRASTRUCTURE" Infrastructure,
        4 "CONFIGURATION" Configuration,
        5 "TIMEOUT" Timeout,
        6 "CANCELLED" Cancelled,
    }
    DeadReason {
        1 "CANCELLED" Cancelled,
        2 "CANCEL_TIMEOUT" CancelTimeout,
        /// The attempts were lost to expiry.
        3 "HEARTBEAT_TIMEOUT" HeartbeatTimeout,
        4 "DEADLINE" Deadline,
        /// Ended by an operator.
        5 "KILLED" Killed,
    }
    CancelCause {
        1 "USER" User,
        2 "DEADLINE" Deadline,
    }
    ExpiryCause {
        /// No heartbeat arrived in time.
        1 "SILENCE" Silence,
        /// The attempt reached its own time limit.
        2 "TIMEOUT" Timeout,
        /// The worker was silent on every channel, so that its leases end before their time.
        3 "WORKER_LOST" WorkerLost,
    }
    /// The protocol through which a lease was granted, and whose rules say what a report on it must prove.
    Contract {
        /// `POST /v1/leases`.
        1 "LEASES" Leases,
        /// `POST /internal/worker/claim`.
        2 "CLAIMS" Claims,
        /// A push, answered by callbacks.
        3 "CALLBACKS" Callbacks,
        /// The scheduler's call LeaseTask, whose reports may come without a lease id.
        4 "SCHEDULER" Scheduler,
        /// The scheduler's stream.
        5 "STREAM" Stream,
    }
    /// What the holder of a key may do in its tenants. The server's table of permissions says which calls these are.
    Role {
        1 "reader" Reader,
        2 "submitter" Submitter,
        3 "worker" Worker,
        4 "builder" Builder,
        5 "cache-writer" CacheWriter,
        6 "operator" Operator,
        /// Every call, in all tenants.
        7 "admin" Admin,
    }
    /// The credential by which an actor is known. A token may have the name of a key, and is still another actor.
    ActorKind {
        1 "key" Key,
        2 "token" Token,
        3 "certificate" Certificate,
    }
    ReleaseCause {
        /// The worker gave it back.
        1 "WORKER" Worker,
        /// The answer that would have carried it could not be delivered.
        2 "UNDELIVERED" Undelivered,
        /// The worker began a new session.
        3 "SESSION" Session,
    }
}

macro_rules! define_messages {
    ($($(#[$doc:meta])* $Name:ident { $($(#[$field_doc:meta])* $tag:literal $json:literal $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            pub struct $Name { $($(#[$field_doc])* pub $field: $type,)* }

            impl $Name {
                /// The fields that are set, by their names in JSON.
                pub fn fields(&self) -> Vec<NamedField<'_>> {
                    self.collect_fields()
                }

                pub(crate) fn collect_fields<'a, C: Default + Extend<NamedField<'a>>>(&'a self) -> C {
                    let mut fields = C::default();
                    $(self.$field.describe($json, &mut fields);)*
                    fields
                }
            }
        )*
    };
}

use std::sync::Arc;

use crate::field::{Describe, NamedField};
use crate::{Backoff, Dedup, Digest, Position, PushTarget, SecretHash, TaskError, TaskId, Time};

message_table!(define_messages);
