//! The bounds between tenants: what one tenant takes leaves room for the others.

use std::sync::Arc;

use authority::command::*;
use authority::limits::{
    DEFAULT_RETENTION_MS, DEFAULT_TENANT, MAX_QUEUES, MAX_TENANTS, RESERVED_QUEUES, TENANT_SHARE,
};
use authority::{
    Answer, Command, LimitsByTenant, QueueConfig, QueueCreation, QueueDefaults, QueueKey, State, TaskId,
    TenantLimits, TenantUsage, Time,
};

use crate::support::commands;

/// Tasks with numbers of their own in a state.
struct Tasks {
    state: State,
    next: u128,
}

impl Tasks {
    fn new() -> Tasks {
        Tasks { state: State::new(), next: 1 }
    }

    fn run(&mut self, command: Command, at: u64) -> Answer {
        let decision = self.state.decide(&command, Time(at));
        for event in &decision.events {
            self.state.apply(Time(at), event).expect("a decided event fits");
        }
        decision.answer
    }

    fn submit(&mut self, tenant: &str, queue: &str, payload_bytes: usize) -> Result<TaskId, Refusal> {
        self.next += 1;
        let task = SubmitTask {
            queue: key(tenant, queue),
            payload: Arc::from(vec![b'1'; payload_bytes]),
            ..commands::submit_task(self.next)
        };
        match self.run(Command::SubmitTask(Box::new(task)), 0) {
            Answer::Submitted(SubmitAnswer::Created(task)) => Ok(task),
            Answer::Submitted(SubmitAnswer::Refused(why)) => Err(why),
            other => panic!("a submit was answered {other:?}"),
        }
    }

    /// Adds queues to a tenant until one is refused.
    fn fill_queues(&mut self, tenant: &str) -> Refusal {
        (0..).find_map(|n| self.submit(tenant, &format!("q{n}"), 1).err()).expect("there is a bound")
    }

    /// Adds tasks to a queue of a tenant until one is refused.
    fn fill_memory(&mut self, tenant: &str) -> Refusal {
        (0..).find_map(|_| self.submit(tenant, "q", 1_000).err()).expect("there is a bound")
    }

    fn usage(&self, tenant: &str) -> TenantUsage {
        self.state.tenant_usage(tenant).unwrap_or_default()
    }
}

fn key(tenant: &str, name: &str) -> Arc<QueueKey> {
    Arc::new(QueueKey { scope: commands::scope_of(tenant), name: Arc::from(name) })
}

/// One tenant could take all queues, and every other tenant was refused.
#[test]
fn a_tenant_with_all_queues_that_it_may_have_leaves_room_for_others() {
    let mut tasks = Tasks::new();
    let (queues, free) = (MAX_QUEUES / 8 * TENANT_SHARE, MAX_QUEUES / 8);
    let refused = Refusal::TooManyQueues { tenant: "greedy".into(), queues, free };
    assert_eq!(tasks.fill_queues("greedy"), refused);
    let configure = ConfigureQueue { queue: key("greedy", "more"), config: QueueConfig::default(), by: None };
    let answer = tasks.run(Command::ConfigureQueue(configure), 0);
    assert_eq!(answer, Answer::Configured(ConfigureAnswer::Refused(refused)));
    assert!(tasks.submit("greedy", "q7", 1).is_ok(), "a queue that exists goes on");
    tasks.fill_queues("second");
    assert_eq!(tasks.usage("second").queues, 1_094);

    // However many help to fill it, each tenant has the queues that are reserved for it.
    for n in 0..20 {
        tasks.fill_queues(&format!("helper {n}"));
    }
    tasks.fill_queues("another");
    assert_eq!(tasks.usage("another").queues, RESERVED_QUEUES);
    assert!(tasks.state.queue_count() <= MAX_QUEUES + 23 * RESERVED_QUEUES);
    assert_eq!(tasks.state.check_invariants(), Ok(()));
}

#[test]
fn a_tenant_beyond_the_bound_is_refused_and_those_that_have_queues_go_on() {
    let mut tasks = Tasks::new();
    let first = tasks.submit("t0", "q", 1).expect("the first task");
    for n in 1..MAX_TENANTS {
        tasks.submit(&format!("t{n}"), "q", 1).expect("there is room for this tenant");
    }
    let refused = Refusal::TooManyTenants { tenant: "new".into() };
    assert_eq!(tasks.submit("new", "q", 1), Err(refused));
    assert!(tasks.submit("t5", "another", 1).is_ok(), "a known tenant may have further queues");
    // A tenant is gone with the last task of its last queue.
    let kill = KillTask { scope: commands::scope_of("t0"), task: first, detail: None, by: None };
    tasks.run(Command::KillTask(kill), 0);
    tasks.run(commands::purge(), DEFAULT_RETENTION_MS);
    assert_eq!(tasks.state.tenant_usage("t0"), None);
    // Who names no tenant is always served.
    for (id, tenant) in [(0, "new"), (1, DEFAULT_TENANT)] {
        let submit = SubmitTask { queue: key(tenant, "q"), ..commands::submit_task(id) };
        let answer = tasks.run(Command::SubmitTask(Box::new(submit)), DEFAULT_RETENTION_MS);
        assert_eq!(answer, Answer::Submitted(SubmitAnswer::Created(TaskId(id))));
    }
    assert_eq!(tasks.state.check_invariants(), Ok(()));
}

/// One tenant could take all memory, and the submits of every other tenant were refused.
#[test]
fn a_tenant_with_all_memory_that_it_may_have_leaves_room_for_others() {
    const MAX_BYTES: usize = 32 << 20;
    let mut tasks = Tasks::new();
    tasks.state.set_max_bytes(MAX_BYTES);
    let Refusal::StateFull { tenant, bytes, free } = tasks.fill_memory("greedy") else {
        panic!("refused for another reason");
    };
    assert_eq!((&*tenant, bytes), ("greedy", tasks.usage("greedy").bytes));
    // The task that was refused counts on both sides.
    let new_bytes = 1_000 + 320;
    assert!(bytes + new_bytes > (free - new_bytes) * TENANT_SHARE);
    assert!(bytes > MAX_BYTES / 4 * 3, "old tasks are purged before anything is refused");
    tasks.fill_memory("second");
    assert!(tasks.usage("second").bytes > MAX_BYTES / 16, "{:?}", tasks.usage("second"));

    // However many help to fill it, each tenant has the memory that is reserved for it.
    for n in 0..20 {
        tasks.fill_memory(&format!("helper {n}"));
    }
    assert!(tasks.submit("another", "q", 1).is_ok());
    assert!(tasks.state.bytes() < MAX_BYTES);
    assert_eq!(tasks.state.check_invariants(), Ok(()));
}

/// The size of the new task did not count: each of a thousand tenants could add a task of a mebibyte to a full memory.
#[test]
fn the_tasks_of_many_tenants_do_not_exceed_the_memory() {
    const MAX_BYTES: usize = 32 << 20;
    let mut tasks = Tasks::new();
    tasks.state.set_max_bytes(MAX_BYTES);
    for n in 0..100 {
        let _ = tasks.submit(&format!("t{n}"), "q", 1 << 20);
    }
    assert!(tasks.state.bytes() <= MAX_BYTES, "{} bytes", tasks.state.bytes());
    let before = tasks.state.bytes();
    assert!(tasks.submit("another", "q", 1).is_ok(), "what is reserved for a tenant is there");
    assert_eq!(tasks.state.bytes() - before, tasks.usage("another").bytes);
    assert!(matches!(tasks.submit("one more", "q", 1 << 20), Err(Refusal::StateFull { .. })));
    assert_eq!(tasks.state.check_invariants(), Ok(()));
}

#[test]
fn submits_create_no_queue_where_only_configured_queues_are_allowed() {
    let mut tasks = Tasks::new();
    assert!(tasks.submit("t", "before", 1).is_ok());
    tasks.state.set_queue_defaults(QueueDefaults::default().with("exec", QueueConfig::default()));
    tasks.state.set_queue_creation(QueueCreation::Configured);
    for name in ["before", "mail"] {
        assert_eq!(tasks.submit("t", name, 1), Err(Refusal::UnknownQueue { queue: name.into() }));
    }
    let configure = ConfigureQueue { queue: key("t", "mail"), config: QueueConfig::default(), by: None };
    tasks.run(Command::ConfigureQueue(configure), 0);
    assert!(tasks.submit("t", "mail", 1).is_ok());
    assert!(tasks.submit("t", "exec", 1).is_ok(), "the server itself has settings for it");
    assert!(tasks.submit("other", "mail", 1).is_err());
    let lease = LeaseTasks {
        scope: commands::scope_of("t"),
        queues: vec!["before".into()],
        ..commands::lease_tasks("w", 1)
    };
    let answer = tasks.run(Command::LeaseTasks(lease), 0);
    assert!(matches!(answer, Answer::Leased(grants) if grants.len() == 1), "tasks that exist go on");
}

#[test]
fn a_tenant_at_its_limits_is_refused_until_a_task_ends_and_others_are_not() {
    let mut tasks = Tasks::new();
    let own = TenantLimits { open_tasks: Some(2), bytes: None };
    let others = TenantLimits { open_tasks: None, bytes: Some(10_000) };
    tasks.state.set_tenant_limits(LimitsByTenant { others, tenants: [("small".into(), own)].into() });
    let first = tasks.submit("small", "q", 1).expect("the first task");
    assert!(tasks.submit("small", "another", 1).is_ok());
    let refused = Err(Refusal::TenantTasks { tenant: "small".into(), max: 2 });
    assert_eq!(tasks.submit("small", "q", 1), refused);
    assert_eq!(tasks.submit("small", "third", 1), refused, "in whatever queue");
    assert_eq!(tasks.usage("small").open_tasks, 2);

    let kill = KillTask { scope: commands::scope_of("small"), task: first, detail: None, by: None };
    tasks.run(Command::KillTask(kill), 0);
    assert_eq!(tasks.usage("small").open_tasks, 1, "a final task is not open");
    let redrive =
        RedriveTask { scope: commands::scope_of("small"), task: first, id: TaskId(1_000), by: None };
    let redriven = tasks.run(Command::RedriveTask(redrive), 0);
    assert_eq!(redriven, Answer::Redriven(RedriveAnswer::Created(TaskId(1_000))));
    assert_eq!(tasks.submit("small", "q", 1), refused, "a redriven task counts");

    let full = tasks.fill_memory("other");
    assert_eq!(full, Refusal::TenantBytes { tenant: "other".into(), max: 10_000 });
    assert!(tasks.usage("other").bytes >= 10_000);
    assert!(tasks.submit("third", "q", 1).is_ok());
    assert_eq!(tasks.state.check_invariants(), Ok(()));
}
