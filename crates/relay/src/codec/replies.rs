//! Answers to calls.

use coordinator::engine::DiskSpace;
use coordinator::{
    CallReply, Depth, HeldLeases, History, HistoryRecord, Liveness, OrderRefusal, PurgedTask, Registered,
    RegistryReply, Reply, Status, TaskDetail, TenantStatus, TenantWorker, Unavailable, UploadCharge,
    WorkerView,
};
use ledger::record;

use super::{DecodeError, Fields, Wire, enums, put_field, read, structs};

structs! {
    TaskDetail { 1 view, 2 progress }
    WorkerView { 1 worker, 2 last_heartbeat, 3 active_leases, 4 registered, 5 is_drained }
    Registered { 1 registration, 2 status, 3 is_stopping }
    TenantWorker { 1 view, 2 leases }
    Status {
        1 position, 2 tasks, 3 state_bytes, 4 max_state_bytes, 5 final_bytes, 6 max_final_bytes, 7 queues, 8 tenants,
        9 largest_tenant_bytes, 10 polls, 11 disk_space,
    }
    TenantStatus { 1 usage, 2 depths }
    Depth { 1 waiting, 2 leased, 3 oldest_waiting }
    History { 1 records, 2 truncated }
    PurgedTask { 1 created_at, 2 end, 3 purged_at }
    HeldLeases { 1 lost, 2 found, 3 next, 4 has_more, 5 unclaimed_before }
}

enums! {
    CallReply {
        1 Asked { 1 0: reply };
        2 Registry { 1 0: reply };
        3 History { 1 0: history };
        4 PurgedTask { 1 0: task };
        5 LedgerError { 1 0: what };
    }
    Reply {
        1 Decided { 1 0: answers };
        2 Leased { 1 0: grants };
        3 Task { 1 0: task };
        4 List { 1 0: page };
        5 Queue { 1 0: queue };
        6 Queues { 1 0: queues };
        7 Workers { 1 0: workers };
        8 Leases { 1 0: leases };
        9 Worker { 1 0: worker };
        10 Ordered { 1 0: ordered };
        11 ScopesWith { 1 0: scopes };
        12 PushTargets { 1 0: targets };
        13 TokenKey { 1 0: key };
        14 Keys { 1 0: keys };
        15 Status { 1 0: status };
        16 Depths { 1 0: depths };
        17 Tenant { 1 0: tenant };
        18 Unavailable { 1 0: why };
        19 Held { 1 0: held };
        20 UploadCharged { 1 0: charge };
    }
    Unavailable {
        1 Stopped {};
        2 Overloaded {};
        3 NoSpace {};
        4 OutcomeUnknown {};
        5 NoOwner {};
        6 NoStandby {};
        7 NotUnderstood {};
    }
    OrderRefusal {
        1 UnknownWorker {};
        2 TooManyDrained {};
    }
    UploadCharge {
        1 Charged { 1 0: lease };
        2 OverLimit {};
        3 NoLease { 1 is_any_unclaimed: is_any_unclaimed };
    }
    DiskSpace {
        1 Plenty {};
        2 FinishOnly {};
        3 Nothing {};
    }
    Liveness {
        1 Registered {};
        2 Stopping {};
        3 Superseded {};
        4 Unknown {};
    }
    RegistryReply {
        1 Done {};
        2 Started { 1 0: started };
        3 Liveness { 1 0: liveness };
        4 Registered { 1 0: registered };
        5 Registrations { 1 0: registrations };
        6 Offered { 1 0: offered };
        7 Count { 1 0: count };
        8 RegisteredForMs { 1 0: ms };
        9 Refused { 1 0: leases };
    }
}

/// An order that was carried out has no refusal.
impl Wire for Result<(), OrderRefusal> {
    fn absent() -> Option<Self> {
        Some(Ok(()))
    }

    fn is_absent(&self) -> bool {
        self.is_ok()
    }

    fn put(&self, out: &mut Vec<u8>) {
        if let Err(why) = self {
            why.put(out);
        }
    }

    fn get(bytes: &[u8]) -> Result<Self, DecodeError> {
        OrderRefusal::get(bytes).map(Err)
    }
}

/// A record as the ledger has it, with its position.
impl Wire for HistoryRecord {
    fn put(&self, out: &mut Vec<u8>) {
        put_field(1, &self.position, out);
        out.push(2);
        super::put_block(out, |out| record::encode(self.at, None, &self.event, out));
    }

    fn get(bytes: &[u8]) -> Result<HistoryRecord, DecodeError> {
        let (mut position, mut decoded) = (None, None);
        let mut fields = Fields(bytes);
        while let Some((tag, body)) = fields.next()? {
            match tag {
                1 => position = Some(Wire::get(body)?),
                2 => decoded = Some(record::decode(body).map_err(|_| DecodeError::Unknown("a record"))?),
                _ => {}
            }
        }
        let record = decoded.ok_or(DecodeError::Missing("the record"))?;
        Ok(HistoryRecord { position: read(position, "position")?, at: record.at, event: record.event })
    }
}
