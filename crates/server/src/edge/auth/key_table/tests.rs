//! Tests of the table in a cluster whose owner comes and goes, and in a server that is alone.

use authority::{ApiKey, Role};
use coordinator::{NodeAddress, Options, Router, RouterOptions, Running};
use futures_util::future::join_all;
use ledger::memory::MemoryStorage;

use super::*;

fn start() -> Running {
    coordinator::start(MemoryStorage::default().open(), Options::default()).unwrap()
}

/// A node of a cluster, which owns the ledger.
fn node(running: &Running) -> (Router, Handle) {
    let options = RouterOptions { failover_wait: Duration::from_millis(1), ..RouterOptions::default() };
    let (router, handle) = Router::new(options);
    router.own(running.report.epoch, &running.handle);
    (router, handle)
}

fn new_key(id: &str) -> CreateKey {
    let key = ApiKey {
        id: id.into(),
        name: id.into(),
        tenants: Vec::new(),
        roles: vec![Role::Admin],
        queues: Vec::new(),
        worker_prefix: None,
        expires_at: None,
        secret_hash: HASH,
        created_by: "test".into(),
        properties: Vec::new(),
    };
    CreateKey { key: Arc::new(key), by: None }
}

const HASH: SecretHash = SecretHash([1; 32]);

fn has(table: &KeyTable, id: &str) -> bool {
    table.find(id, &HASH, Time::ZERO).is_some()
}

async fn finds_anew(table: &KeyTable, handle: &Handle, id: &str) -> Result<bool, Unavailable> {
    Ok(table.find_anew(handle, id, &HASH).await?.is_some())
}

#[tokio::test]
async fn the_last_keys_stay_good_while_there_is_no_owner() {
    let running = start();
    let (router, handle) = node(&running);
    let table = KeyTable::default();
    table.create(&handle, new_key("a")).await.unwrap();
    router.no_owner(running.report.epoch);
    assert_eq!(table.create(&handle, new_key("b")).await, Err(Unavailable::NoOwner));
    assert!(has(&table, "a"), "nobody has revoked it");
    for _ in 0..2 {
        assert_eq!(finds_anew(&table, &handle, "b").await, Err(Unavailable::NoOwner), "it may be a good one");
    }
    assert!(has(&table, "a"));
}

#[tokio::test]
async fn keys_that_could_not_be_read_are_read_when_there_is_an_owner_again() {
    let running = start();
    let (router, handle) = node(&running);
    let table = KeyTable::default();
    router.no_owner(running.report.epoch);
    // Made through another node.
    running.handle.create_key(new_key("a")).await.unwrap();
    assert_eq!(table.load(&handle).await, Err(Unavailable::NoOwner));
    let mut following = std::pin::pin!(table.follow(&handle));
    tokio::select! {
        biased;
        () = &mut following => panic!("there is no owner"),
        () = std::future::ready(()) => {}
    }
    router.own(running.report.epoch + 1, &running.handle);
    following.await;
    assert!(has(&table, "a"));
}

#[tokio::test]
async fn an_unknown_key_is_looked_up_once_more_and_many_of_them_cause_few_reads() {
    const MADE_UP: usize = 500;
    let running = start();
    let (_router, handle) = node(&running);
    let table = KeyTable::default();
    running.handle.create_key(new_key("a")).await.unwrap();
    assert!(!has(&table, "a"), "it was made through another node");
    let began = Instant::now();
    let together = join_all((0..MADE_UP).map(|_| finds_anew(&table, &handle, "a"))).await;
    assert!(together.into_iter().all(|found| found == Ok(true)), "each has waited for the read");
    for _ in 0..MADE_UP {
        assert_eq!(finds_anew(&table, &handle, "made-up").await, Ok(false));
    }
    let allowed = 1 + began.elapsed().as_millis() / MISS_PAUSE.as_millis();
    let reads = table.0.begun.load(Ordering::Acquire);
    assert!(u128::from(reads) <= allowed, "{reads} reads, not {allowed}");
    assert_eq!(table.version(), 1, "the other reads have found nothing new");
}

#[tokio::test]
async fn too_many_unknown_keys_at_one_time_are_refused() {
    let running = start();
    let (router, handle) = node(&running);
    // Nobody answers it.
    let owner = NodeAddress { node: "b".into(), address: "".into() };
    router.forward(2, owner, Arc::new(Silent));
    let table = KeyTable::default();
    let mut waiting = Vec::new();
    for _ in 0..MAX_MISSES {
        let mut miss = Box::pin(finds_anew(&table, &handle, "made-up"));
        tokio::select! {
            biased;
            found = &mut miss => panic!("nobody answers: {found:?}"),
            () = std::future::ready(()) => {}
        }
        waiting.push(miss);
    }
    assert_eq!(finds_anew(&table, &handle, "made-up").await, Err(Unavailable::Overloaded));
}

/// An owner that is lost when it has answered once: its keys cannot be read.
struct AnswersOnce(coordinator::Inbound, std::sync::atomic::AtomicBool);

impl coordinator::Peer for AnswersOnce {
    fn call(
        &self,
        call: coordinator::Call,
        _: u64,
        _: Instant,
    ) -> coordinator::BoxFuture<'_, Result<coordinator::CallReply, coordinator::PeerError>> {
        Box::pin(async move {
            if self.1.swap(true, Ordering::AcqRel) {
                // Until now threads of the coordinator had to answer, for whom no clock waits.
                tokio::time::pause();
                std::future::pending::<()>().await;
            }
            self.0.call(call, 0).await.map_err(coordinator::PeerError::NotOwner)
        })
    }

    fn follow(&self, _: coordinator::Notices) -> coordinator::BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_change_is_answered_although_the_keys_cannot_be_read_afterwards() {
    let running = start();
    let (owner, _owner_handle) = node(&running);
    let (router, handle) = node(&running);
    let address = NodeAddress { node: "b".into(), address: "".into() };
    router.forward(running.report.epoch + 1, address, Arc::new(AnswersOnce(owner.inbound(), false.into())));
    let table = KeyTable::default();
    let created = table.create(&handle, new_key("a")).await;
    assert_eq!(created, Err(Unavailable::OutcomeUnknown));
    assert_eq!(table.0.begun.load(Ordering::Acquire), 1, "the keys were read, in vain");
    assert_eq!(running.handle.keys().await.unwrap().len(), 1);
}

/// A node that answers nothing.
struct Silent;

impl coordinator::Peer for Silent {
    fn call(
        &self,
        _: coordinator::Call,
        _: u64,
        _: Instant,
    ) -> coordinator::BoxFuture<'_, Result<coordinator::CallReply, coordinator::PeerError>> {
        Box::pin(std::future::pending())
    }

    fn follow(&self, _: coordinator::Notices) -> coordinator::BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn without_a_coordinator_no_key_is_good() {
    let running = start();
    let (table, handle) = (KeyTable::default(), running.handle.clone());
    table.create(&handle, new_key("a")).await.unwrap();
    assert!(has(&table, "a"));
    running.stop().await.unwrap();
    assert_eq!(table.create(&handle, new_key("b")).await, Err(Unavailable::Stopped));
    assert!(!has(&table, "a"));
}
