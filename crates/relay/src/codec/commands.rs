//! Commands and their answers.

use authority::command::*;
use authority::{Answer, Command, Rejection};

use super::{DecodeError, Wire, enums, structs};

structs! {
    SubmitTask {
        1 id, 2 queue, 3 payload, 4 priority, 5 delay_ms, 6 properties, 7 options, 8 operation,
    }
    LeaseTasks {
        1 scope, 2 worker, 3 session, 4 queues, 5 properties, 6 max_tasks, 7 request, 8 contract,
    }
    ExtendLease { 1 lease }
    StartAttempt { 1 lease, 2 started_by }
    ReportCompletion { 1 lease, 2 digest, 3 result, 4 details }
    ReportFailure { 1 lease, 2 digest, 3 error, 4 details, 5 retryable, 6 draw }
    ReleaseLease { 1 lease, 2 cause }
    CancelTask { 1 scope, 2 task, 3 reason, 4 by }
    KillTask { 1 scope, 2 task, 3 detail, 4 by }
    RedriveTask { 1 scope, 2 task, 3 id, 4 by }
    ConfigureQueue { 1 queue, 2 config, 3 by }
    StartSession { 1 tenant, 2 worker, 3 session }
    AttachOperation { 1 scope, 2 task, 3 operation }
    DetachOperation { 1 scope, 2 task, 3 operation, 4 by }
    RotateTokenKey { 1 key_id, 2 by }
    CreateKey { 1 key, 2 by }
    RevokeKey { 1 key_id, 2 revoked_by, 3 by }
}

/// Commands that the coordinator gives itself: no node sends them, and none takes them.
macro_rules! internal {
    ($($Name:ident,)*) => {
        $(impl Wire for $Name {
            fn put(&self, _: &mut Vec<u8>) {}

            fn get(_: &[u8]) -> Result<$Name, DecodeError> {
                Err(DecodeError::Invalid("a command that only the owner gives"))
            }
        })*
    };
}

internal!(EndWorker, TakeOver, Tick, Purge,);

enums! {
    Command {
        1 SubmitTask { 1 0: command };
        2 LeaseTasks { 1 0: command };
        3 ExtendLease { 1 0: command };
        4 StartAttempt { 1 0: command };
        5 ReportCompletion { 1 0: command };
        6 ReportFailure { 1 0: command };
        7 ReleaseLease { 1 0: command };
        8 CancelTask { 1 0: command };
        9 KillTask { 1 0: command };
        10 RedriveTask { 1 0: command };
        11 ConfigureQueue { 1 0: command };
        12 StartSession { 1 0: command };
        13 EndWorker { 1 0: command };
        14 AttachOperation { 1 0: command };
        15 DetachOperation { 1 0: command };
        16 RotateTokenKey { 1 0: command };
        17 CreateKey { 1 0: command };
        18 RevokeKey { 1 0: command };
        19 TakeOver { 1 0: command };
        20 Tick { 1 0: command };
        21 Purge { 1 0: command };
    }
    Answer {
        1 Submitted { 1 0: answer };
        2 Leased { 1 0: answer };
        3 Extended { 1 0: answer };
        4 Started { 1 0: answer };
        5 Reported { 1 0: answer };
        6 Released { 1 0: answer };
        7 Ended { 1 0: answer };
        8 Redriven { 1 0: answer };
        9 Configured { 1 0: answer };
        10 Attached { 1 0: answer };
        11 KeyCreated { 1 0: answer };
        12 KeyRevoked { 1 0: answer };
        13 Done { 1 0: answer };
    }
    SubmitAnswer {
        1 Created { 1 0: task };
        2 Existing { 1 0: view };
        3 DedupConflict { 1 0: task };
        4 Refused { 1 0: why };
    }
    Refusal {
        1 QueueFull { 1 max: max };
        2 StateFull { 1 tenant: tenant, 2 bytes: bytes, 3 free: free };
        3 TenantTasks { 1 tenant: tenant, 2 max: max };
        4 TenantBytes { 1 tenant: tenant, 2 max: max };
        5 TooManyQueues { 1 tenant: tenant, 2 queues: queues, 3 free: free };
        6 TooManyTenants { 1 tenant: tenant };
        7 UnknownQueue { 1 queue: queue };
        8 TooManyRequirements {};
        9 NoSpace {};
    }
    ExtendAnswer {
        1 Extended { 1 expires_at: expires_at, 2 cancel: cancel };
        2 Lost {};
        3 Rejected { 1 0: why };
    }
    StartAnswer {
        1 Started {};
        2 AlreadyStarted { 1 0: worker };
        3 Cancelled { 1 0: reason };
        4 Lost {};
        5 Rejected { 1 0: why };
    }
    Rejection {
        1 UnknownTask {};
        2 NeverGranted {};
        3 WrongWorker {};
        4 ConflictingReport {};
    }
    Verdict {
        1 Committed { 1 0: outcome };
        2 Cancelled {};
        3 Rejected { 1 0: why };
    }
    ReleaseAnswer {
        1 Over { 1 0: state };
        2 Rejected { 1 0: why };
    }
    EndAnswer {
        1 Accepted {};
        2 UnknownTask {};
    }
    RedriveAnswer {
        1 Created { 1 0: task };
        2 Existing { 1 0: task };
        3 UnknownTask {};
        4 NotADeadLetter { 1 0: state };
        5 Refused { 1 0: why };
    }
    ConfigureAnswer {
        1 Configured {};
        2 Invalid { 1 0: what };
        3 Refused { 1 0: why };
    }
    AttachAnswer {
        1 Done {};
        2 UnknownTask {};
        3 TooMany {};
    }
    CreateKeyAnswer {
        1 Created {};
        2 NameTaken {};
        3 TooMany {};
        4 Invalid { 1 0: what };
    }
    RevokeKeyAnswer {
        1 Revoked {};
        2 Unknown {};
    }
}
