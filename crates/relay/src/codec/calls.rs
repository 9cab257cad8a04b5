//! Calls: requests for the engine, calls of the registry, histories.

use coordinator::{
    Activity, BatchItem, Call, ChargeUpload, FindHeld, LeaseHolder, Order, OrderWorker, Progress, Read,
    Registration, RegistryCall, Request, WaitCondition, WorkerStatus,
};

use super::{enums, structs};

structs! {
    Progress { 1 percent, 2 message, 3 at }
    OrderWorker { 1 tenant, 2 worker, 3 order }
    WorkerStatus { 1 activity, 2 active_tasks, 3 total_completed, 4 total_failed }
    Registration {
        1 session, 2 properties, 3 max_concurrent_executions, 4 cpu_cores, 5 memory_bytes, 6 disk_bytes,
        7 registered_at, 8 address, 9 owner,
    }
    LeaseHolder { 1 tenant, 2 identity }
    FindHeld { 1 holder, 2 queue, 3 known, 4 after }
    ChargeUpload { 1 holder, 2 queue, 3 bytes, 4 max_bytes }
}

enums! {
    Call {
        1 Ask { 1 0: request };
        2 Registry { 1 0: call };
        3 History { 1 scope: scope, 2 task: task };
        4 PurgedTask { 1 scope: scope, 2 task: task };
    }
    Request {
        1 Decide { 1 0: batch };
        2 Poll { 1 lease: lease, 2 until: until };
        3 Wait { 1 scope: scope, 2 task: task, 3 condition: condition, 4 until: until };
        4 Read { 1 0: read };
        5 Order { 1 0: order };
    }
    BatchItem {
        1 Command { 1 0: command };
        2 Heartbeat { 1 extend: extend, 2 progress: progress };
    }
    Read {
        1 Task { 1 scope: scope, 2 task: task };
        2 List { 1 scope: scope, 2 queue: queue, 3 state: state, 4 after: after, 5 limit: limit };
        3 Queue { 1 0: key };
        4 Queues { 1 0: scope };
        5 Workers { 1 0: scope };
        6 Leases { 1 scope: scope, 2 worker: worker };
        7 TenantLeases { 1 tenant: tenant, 2 worker: worker };
        8 Worker { 1 tenant: tenant, 2 worker: worker };
        9 ScopesWith { 1 0: queue };
        10 PushTargets {};
        11 TokenKey {};
        12 Keys {};
        13 Status {};
        14 Depths { 1 0: names };
        15 Tenant { 1 tenant: tenant, 2 names: names };
        16 Held { 1 0: asked };
        17 ChargeUpload { 1 0: asked };
    }
    WaitCondition {
        1 Final {};
        2 FinalForServer {};
        3 LeaseOverForServer { 1 0: lease };
        4 ChangeAfter { 1 0: position };
    }
    Order {
        1 Drain {};
        2 Stop {};
        3 Resume {};
    }
    Activity {
        1 Idle {};
        2 Busy {};
        3 Draining {};
    }
    RegistryCall {
        1 Register { 1 scope: scope, 2 worker: worker, 3 registration: registration };
        2 Unregister { 1 scope: scope, 2 worker: worker, 3 session: session };
        3 RecordStatus { 1 scope: scope, 2 worker: worker, 3 session: session, 4 status: status };
        4 RecordHeartbeat { 1 scope: scope, 2 worker: worker };
        5 Registered { 1 scope: scope, 2 worker: worker };
        6 Registrations { 1 tenant: tenant, 2 worker: worker };
        7 Offered { 1 scope: scope };
        8 Count { 1 tenant: tenant };
        9 RegisteredFor {};
        10 NoteLeases { 1 identity: identity, 2 leases: leases };
        11 RefundUpload { 1 lease: lease, 2 bytes: bytes };
        12 SetRefused { 1 lease: lease, 2 is_refused: is_refused };
        13 Refused { 1 leases: leases };
    }
}
