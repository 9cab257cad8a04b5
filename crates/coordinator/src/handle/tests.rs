//! Tests of a local handle.

use authority::{Digest, Outcome, Properties, TaskOptions};

use super::*;

/// Small requests overtake a large one that waits for capacity, and must not let time pass for it.
#[tokio::test]
async fn a_report_that_came_in_time_and_waits_for_capacity_does_not_lose_its_lease() {
    let storage = ledger::memory::MemoryStorage::default().open();
    let running = crate::start(storage, crate::Options::default()).unwrap();
    let handle = &running.handle;
    let worker: Arc<str> = Arc::from("w");
    // Until a report is begun in time, which it is at once unless the machine stood still.
    for id in 1.. {
        handle.submit(task(id)).await.unwrap();
        let grant = handle.lease(poll(&worker), Duration::ZERO).await.unwrap().remove(0);
        let lease = grant.lease_ref();
        let all_permits = local(handle).inbox_kib.clone().acquire_many_owned(INBOX_KIB as u32).await.unwrap();
        let result = Arc::from(&b"1"[..]);
        let report =
            handle.complete(ReportCompletion { lease, digest: Digest([7; 16]), result, details: None });
        let mut report = std::pin::pin!(report);
        tokio::select! {
            biased;
            answer = &mut report => panic!("it has no permit: {answer:?}"),
            () = std::future::ready(()) => {}
        }
        if handle.now() >= grant.expires_at {
            continue;
        }
        while handle.now() <= grant.expires_at {
            handle.status().await.unwrap();
        }
        // What came after the lease's end is answered, and so is all that follows from it decided.
        handle.status().await.unwrap();
        drop(all_permits);
        assert_eq!(report.await, Ok(Verdict::Committed(Outcome::Completed)));
        break;
    }
    running.stop().await.unwrap();
}

fn scope() -> Scope {
    Scope { tenant: Arc::from("t"), workspace: Arc::from("w") }
}

fn task(id: u128) -> SubmitTask {
    SubmitTask {
        id: TaskId(id),
        queue: Arc::new(QueueKey { scope: scope(), name: Arc::from("q") }),
        payload: Arc::from(&b""[..]),
        priority: 0,
        delay_ms: 0,
        properties: Arc::new(Properties::default()),
        options: Some(Arc::new(TaskOptions { lease_ms: Some(500), ..TaskOptions::default() })),
        operation: None,
    }
}

fn poll(worker: &Arc<str>) -> LeaseTasks {
    LeaseTasks {
        scope: scope(),
        worker: worker.clone(),
        session: None,
        queues: vec![Arc::from("q")],
        properties: Arc::new(Properties::default()),
        max_tasks: 1,
        request: None,
        contract: authority::Contract::Leases,
    }
}

fn local(handle: &Handle) -> &Local {
    match &handle.target {
        Target::Local(local) => local,
        Target::Front(_) => unreachable!("the handle of a coordinator is local"),
    }
}

#[tokio::test]
async fn a_hint_about_an_earlier_owner_does_not_replace_a_later_one() {
    let (router, _handle) = Router::new(RouterOptions::default());
    let owner = |name: &str| Some(NodeAddress { node: name.into(), address: name.into() });
    let told = |epoch, owner| {
        router.inbound().owner_announced(OwnerHint { epoch, owner });
        router.hints().borrow().clone()
    };
    assert_eq!(told(4, owner("a")).epoch, 4);
    assert_eq!(told(5, None).owner, None);
    assert_eq!(told(5, owner("b")).owner, owner("b"));
    assert_eq!(told(4, owner("c")), OwnerHint { epoch: 5, owner: owner("b") });
}
