//! Converts the refusals of submits and configurations to problems. Each names its limit and says what to do.

use authority::command::Refusal;
use authority::limits::{MAX_QUEUES, MAX_TENANTS, TENANT_SHARE};

use crate::convert::{Code, Limit, Problem};

impl From<Refusal> for Problem {
    fn from(why: Refusal) -> Problem {
        let (code, detail) = match why {
            Refusal::QueueFull { max } => {
                let detail = format!("the queue holds {max} unfinished tasks, which is as many as it may");
                return Problem::new(Code::QueueFull, detail);
            }
            Refusal::StateFull { tenant, bytes, free } => {
                let detail = format!(
                    "the tasks of tenant {tenant} use {bytes} bytes of memory, and {free} bytes are free: a tenant may use at \
                     most {TENANT_SHARE} times what is free, counted with the new task; wait until tasks are finished and purged, or raise \
                     data.max_state_mib"
                );
                return Problem::new(Code::StateFull, detail);
            }
            Refusal::TenantTasks { tenant, max } => {
                let detail = format!(
                    "tenant {tenant} has {max} waiting and leased tasks, which is as many as it may have; wait until some end, \
                     or ask the operator to raise limits.tenant.open_tasks"
                );
                return Problem::over_limit(Limit::OpenTasks, detail);
            }
            Refusal::TenantBytes { tenant, max } => {
                let detail = format!(
                    "the tasks of tenant {tenant} use the {max} bytes of memory that they may use, final tasks included; wait \
                     until tasks are purged, set a shorter retentionMs, or ask the operator to raise limits.tenant.state_mib"
                );
                return Problem::over_limit(Limit::StateBytes, detail);
            }
            Refusal::TooManyQueues { tenant, queues, free } => {
                let detail = format!(
                    "tenant {tenant} has {queues} queues, and {free} of {MAX_QUEUES} are free: a tenant may have at most \
                     {TENANT_SHARE} times as many as are free; use an existing queue"
                );
                return Problem::new(Code::TooManyQueues, detail);
            }
            Refusal::TooManyTenants { tenant } => {
                let detail = format!(
                    "tenant {tenant} has no queue yet, and {MAX_TENANTS} tenants have one, which is as many as there may be; \
                     use an existing tenant"
                );
                return Problem::new(Code::TooManyTenants, detail);
            }
            Refusal::UnknownQueue { queue } => {
                let detail = format!(
                    "there is no queue {queue} here, and this server creates none by submits (queues.create): check the name, \
                     or configure the queue with PUT /v1/queues/{queue} or `lessor queue set {queue} --reset`"
                );
                return Problem {
                    field: Some("queue".to_owned()),
                    ..Problem::new(Code::UnknownQueue, detail)
                };
            }
            Refusal::TooManyRequirements => (
                Code::TooManyRequirements,
                "the queue's waiting tasks have as many different properties as they may",
            ),
            Refusal::NoSpace => (Code::DiskFull, "no task is accepted until space is freed"),
        };
        Problem::new(code, detail)
    }
}
