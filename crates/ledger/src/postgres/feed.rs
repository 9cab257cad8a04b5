//! The batches of an owner, for the standbys that it feeds.
//!
//! The writer puts each batch into a ring before it appends the batch, and never waits for a reader: a standby that is so slow
//! that the ring no longer holds what it needs is cut off, and reads from the database. If answers are to wait for a
//! standby, the writer waits for a receipt after its append.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::batch_row::{BatchRow, Place};
use super::recent::Recent;
use super::rules;
use crate::Position;

/// A writer that waits longer than this for a standby says so, and new work is refused.
pub(super) const MAX_RECEIPT: Duration = Duration::from_secs(2);
/// How often it looks meanwhile whether the database still holds what it has appended.
pub(super) const RECEIPT_CONFIRMATION: Duration = Duration::from_millis(500);

/// How an owner feeds standbys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedOptions {
    /// How many standbys get the stream.
    pub hot_standbys: usize,
    /// Whether a batch counts as appended only when a standby has received it.
    pub answers_wait_for_standby: bool,
}

impl Default for FeedOptions {
    fn default() -> FeedOptions {
        FeedOptions { hot_standbys: 1, answers_wait_for_standby: false }
    }
}

/// Cheap to clone: clones share their content.
#[derive(Clone)]
pub struct Feed(Arc<Shared>);

struct Shared {
    options: FeedOptions,
    state: Mutex<Batches>,
    /// Changes with every batch, receipt and subscription.
    changes: watch::Sender<u64>,
    /// How many standbys get the stream.
    standbys: watch::Sender<usize>,
    lacks_standby: Arc<AtomicBool>,
}

/// What a standby is sent.
#[derive(Clone, Debug)]
pub enum Fed {
    /// A batch that is being appended, and the place before it.
    Batch(Place, BatchRow),
    /// The batches before this position are durable.
    Durable(Position),
}

#[derive(Default)]
struct Batches {
    /// None while this node does not own the ledger.
    ring: Option<Recent>,
    epoch: u64,
    /// Whether the owner answers requests.
    is_serving: bool,
    durable: Position,
    subscribers: BTreeMap<u64, Subscriber>,
    last_id: u64,
}

struct Subscriber {
    /// The rank of its node among all nodes, the highest first.
    rank: [u8; 32],
    received: Position,
}

impl Feed {
    pub fn new(options: FeedOptions) -> Feed {
        Feed(Arc::new(Shared {
            options,
            state: Mutex::default(),
            changes: watch::Sender::new(0),
            standbys: watch::Sender::new(0),
            lacks_standby: Arc::default(),
        }))
    }

    /// Set while new work is refused because no standby receives what is appended.
    pub fn lacks_standby(&self) -> Arc<AtomicBool> {
        self.0.lacks_standby.clone()
    }

    /// How many standbys get the stream.
    pub fn standbys(&self) -> watch::Receiver<usize> {
        self.0.standbys.subscribe()
    }

    /// Changes with every batch, receipt and subscription, and when there is no standby.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Begins a stream for a standby, which has everything up to and including the batch `after`. Waits until this node owns the
    /// ledger at `epoch` or later.
    pub async fn subscribe(&self, node: &str, epoch: u64, after: Place) -> Subscription {
        let mut changes = self.0.changes.subscribe();
        loop {
            changes.mark_unchanged();
            let is_owner = {
                let state = self.state();
                state.ring.is_some() && state.epoch >= epoch
            };
            if is_owner || changes.changed().await.is_err() {
                break;
            }
        }
        let id = self.change(|state| {
            state.last_id += 1;
            // It holds what it names, if that is of this history.
            let is_known = state.ring.as_ref().is_some_and(|ring| ring.contains(after));
            let received = if is_known { after.next } else { Position::ZERO };
            let subscriber = Subscriber { rank: rank(node), received };
            state.subscribers.insert(state.last_id, subscriber);
            state.last_id
        });
        Subscription { feed: self.clone(), id, changes, after, durable: Position::ZERO, has_begun: false }
    }

    /// A writer begins behind this batch.
    pub fn begin_after(&self, last: Place, epoch: u64) {
        self.begin(&Recent::new(last), epoch);
    }

    /// A writer begins with these batches.
    pub(super) fn begin(&self, recent: &Recent, epoch: u64) {
        self.change(|state| {
            (state.epoch, state.is_serving, state.durable) = (epoch, false, recent.last().next);
            state.ring = Some(recent.bare());
            // What they have received is of an earlier ring.
            state.subscribers.clear();
        });
    }

    /// From now on the owner answers requests, and standbys can know of it. What it appends before, to take over, waits for no
    /// receipt: no standby could send one.
    pub fn begin_to_serve(&self) {
        self.change(|state| state.is_serving = true);
    }

    pub(super) fn is_serving(&self) -> bool {
        self.state().is_serving
    }

    /// A batch is about to be appended.
    pub fn publish(&self, row: &BatchRow) {
        self.change(|state| {
            // A batch that found no space comes again.
            if let Some(ring) = state.ring.as_mut().filter(|ring| ring.last() != row.place) {
                ring.push(row.bare());
            }
        });
    }

    /// The batches before this position are durable.
    pub fn durable(&self, next: Position) {
        self.change(|state| state.durable = next);
    }

    /// The writer is gone.
    pub fn end(&self) {
        self.change(|state| state.ring = None);
        self.0.lacks_standby.store(false, Ordering::Release);
    }

    /// Waits until a standby holds everything before `next`, but no longer than `patience`. True at once if answers do not wait for
    /// that.
    pub(super) async fn received(&self, next: Position, patience: impl Future<Output = ()>) -> bool {
        if !rules::waits_for_receipt(self.0.options.answers_wait_for_standby) {
            return true;
        }
        let mut changes = self.0.changes.subscribe();
        let is_received = || self.state().subscribers.values().any(|subscriber| subscriber.received >= next);
        let received = pin!(changes.wait_for(|_| is_received()));
        let lacks_standby = &self.0.lacks_standby;
        tokio::select! {
            biased;
            _ = received => {
                if lacks_standby.swap(false, Ordering::AcqRel) {
                    tracing::info!("a standby receives what is appended again");
                }
                true
            }
            () = patience => false,
        }
    }

    /// Says that no standby receives what is appended, so that new work is refused.
    pub(super) fn note_lack(&self) {
        if !self.0.lacks_standby.swap(true, Ordering::AcqRel) {
            tracing::error!(
                "no standby receives what is appended, and answers wait for one (cluster.answers_wait_for_standby); \
                 new work is refused until a standby is connected"
            );
            self.change(|_| {});
        }
    }

    fn state(&self) -> MutexGuard<'_, Batches> {
        // Every change leaves the state whole.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Batches) -> T) -> T {
        let (changed, standbys) = {
            let state = &mut self.state();
            let changed = change(state);
            let subscribers = state.ring.as_ref().map_or(0, |_| state.subscribers.len());
            (changed, subscribers.min(self.0.options.hot_standbys))
        };
        self.0.standbys.send_if_modified(|last| std::mem::replace(last, standbys) != standbys);
        self.0.changes.send_modify(|count| *count += 1);
        changed
    }
}

impl Batches {
    /// Whether a subscriber is among those that get the stream. Of two with the same name the later one lives. None for one that
    /// subscribed to an earlier ring.
    fn is_chosen(&self, id: u64, hot_standbys: usize) -> Option<bool> {
        let own = self.subscribers.get(&id)?;
        let before = |(other, subscriber): (&u64, &Subscriber)| {
            subscriber.rank > own.rank || (subscriber.rank == own.rank && *other > id)
        };
        Some(self.subscribers.iter().filter(|each| before(*each)).count() < hot_standbys)
    }
}

/// A rendezvous hash: every owner ranks the nodes in the same order, and a node that leaves changes no other rank.
fn rank(node: &str) -> [u8; 32] {
    blake3::derive_key("lessor 2026 rank of a standby", node.as_bytes())
}

/// The stream to one standby. Ends when it is dropped.
pub struct Subscription {
    feed: Feed,
    id: u64,
    changes: watch::Receiver<u64>,
    /// What was sent last.
    after: Place,
    durable: Position,
    has_begun: bool,
}

/// Where a standby says what it has received.
#[derive(Clone)]
pub struct Receipts {
    feed: Feed,
    id: u64,
}

impl Receipts {
    /// The standby holds every batch before `next`. It cannot hold more than was sent.
    pub fn received(&self, next: Position) {
        self.feed.change(|state| {
            let is_sent = next <= state.ring.as_ref().map_or(Position::ZERO, |ring| ring.last().next);
            if let Some(subscriber) = state.subscribers.get_mut(&self.id).filter(|_| is_sent) {
                subscriber.received = subscriber.received.max(next);
            }
        });
    }
}

impl Subscription {
    pub fn receipts(&self) -> Receipts {
        Receipts { feed: self.feed.clone(), id: self.id }
    }

    /// The epoch of the owner.
    pub fn epoch(&self) -> u64 {
        self.feed.state().epoch
    }

    /// Waits for what the standby is sent next. None when it must read from the database: this node no longer owns the ledger,
    /// the standby is too far behind, or it has another history.
    pub async fn next(&mut self) -> Option<Fed> {
        loop {
            self.changes.mark_unchanged();
            if let Some(next) = self.find()? {
                return Some(next);
            }
            self.changes.changed().await.ok()?;
        }
    }

    fn find(&mut self) -> Option<Option<Fed>> {
        let state = self.feed.state();
        let ring = state.ring.as_ref()?;
        if !state.is_chosen(self.id, self.feed.0.options.hot_standbys)? {
            // A stream that was begun goes to another standby now.
            return (!self.has_begun).then_some(None);
        }
        if !ring.contains(self.after) {
            return None;
        }
        self.has_begun = true;
        if let Some((before, row)) = ring.at(self.after.next) {
            self.after = row.place;
            return Some(Some(Fed::Batch(before, row.clone())));
        }
        if state.durable > self.durable {
            self.durable = state.durable;
            return Some(Some(Fed::Durable(self.durable)));
        }
        Some(None)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.feed.change(|state| state.subscribers.remove(&self.id));
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use crate::{BatchBuilder, ClusterId, Link};
    use futures_util::FutureExt;

    fn origin() -> Place {
        Place { first: Position(0), next: Position(1), link: Link::origin(ClusterId([1; 16]), 0) }
    }

    fn row(before: Place, bytes: usize) -> BatchRow {
        let mut batch = BatchBuilder::new(before.next);
        batch.push(&vec![before.next.0 as u8; bytes]).expect("it fits");
        BatchRow::new(&batch.finish(1), before.link, 1)
    }

    fn owned(hot_standbys: usize, answers_wait_for_standby: bool) -> Feed {
        let feed = Feed::new(FeedOptions { hot_standbys, answers_wait_for_standby });
        feed.begin_after(origin(), 1);
        feed
    }

    /// What is sent without waiting: the first position of batches, and the negative end of what is durable.
    fn sent(subscription: &mut Subscription) -> Vec<i64> {
        let mut sent = Vec::new();
        while let Some(Some(next)) = subscription.next().now_or_never() {
            sent.push(match next {
                Fed::Batch(_, row) => row.place.first.0 as i64,
                Fed::Durable(next) => -(next.0 as i64),
            });
        }
        sent
    }

    #[tokio::test]
    async fn a_batch_is_sent_before_it_is_durable() {
        let feed = owned(1, false);
        let mut standby = feed.subscribe("b", 1, origin()).await;
        assert_eq!(sent(&mut standby), [-1]);
        let first = row(origin(), 10);
        feed.publish(&first);
        // It found no space and comes again.
        feed.publish(&first);
        assert_eq!(sent(&mut standby), [1]);
        feed.durable(first.place.next);
        assert_eq!(sent(&mut standby), [-2]);
        let mut late = feed.subscribe("b", 1, origin()).await;
        assert_eq!(sent(&mut late), [1, -2], "one that comes later gets what it lacks");
        feed.end();
        assert!(late.next().await.is_none());
    }

    #[tokio::test]
    async fn only_the_first_by_rank_is_fed_and_the_next_one_when_it_leaves() {
        let feed = owned(1, false);
        let mut names = ["b", "c", "d"];
        names.sort_by_key(|name| std::cmp::Reverse(rank(name)));
        let mut last = feed.subscribe(names[2], 1, origin()).await;
        assert_eq!(sent(&mut last), [-1], "it is the only one");
        let mut second = feed.subscribe(names[1], 1, origin()).await;
        let mut first = feed.subscribe(names[0], 1, origin()).await;
        assert!(last.next().await.is_none(), "its stream goes to another one");
        assert_eq!((sent(&mut first), sent(&mut second)), (vec![-1], vec![]));
        assert_eq!(*feed.standbys().borrow(), 1);
        drop(first);
        assert_eq!(sent(&mut second), [-1]);
    }

    #[tokio::test]
    async fn a_standby_that_is_too_slow_or_has_another_history_is_cut_off() {
        let feed = owned(2, false);
        let mut slow = feed.subscribe("b", 1, origin()).await;
        let mut before = origin();
        // Random bytes cannot be compressed; these are as many as the ring holds, and more.
        for _ in 0..70 {
            let mut large = row(before, 10);
            large.body = vec![0; 1 << 20].into();
            feed.publish(&large);
            before = large.place;
        }
        assert!(slow.next().await.is_none());
        let other = Place { link: Link([9; 16]), ..before };
        assert!(feed.subscribe("b", 1, other).await.next().await.is_none());
        assert_eq!(sent(&mut feed.subscribe("b", 1, before).await), [-1]);
    }

    #[tokio::test]
    async fn answers_wait_for_a_receipt_and_the_lack_of_a_standby_is_told() {
        let feed = owned(1, true);
        let (first, lacks) = (row(origin(), 10), feed.lacks_standby());
        feed.publish(&first);
        let next = first.place.next;
        assert!(!feed.received(next, async {}).await);
        feed.note_lack();
        assert!(lacks.load(Ordering::Acquire));
        let standby = feed.subscribe("b", 1, origin()).await;
        standby.receipts().received(origin().next);
        assert!(feed.received(next, pending()).now_or_never().is_none(), "it has not received this batch");
        standby.receipts().received(next);
        assert!(feed.received(next, pending()).await);
        assert!(!lacks.load(Ordering::Acquire));
        assert!(owned(1, false).received(next, pending()).now_or_never().is_some(), "nobody asked for it");
    }

    /// The node was replaced and owns the ledger again, and a failover has undone what the standby had received.
    #[tokio::test]
    async fn receipts_of_an_earlier_ownership_count_for_nothing() {
        let feed = owned(1, true);
        let mut standby = feed.subscribe("b", 1, origin()).await;
        let mut waiting = feed.subscribe("a", 1, origin()).await;
        let (undone, other) = (row(origin(), 10), row(origin(), 20));
        feed.publish(&undone);
        assert_eq!((sent(&mut standby).len() + sent(&mut waiting).len()), 2);
        standby.receipts().received(undone.place.next);
        waiting.receipts().received(undone.place.next);
        feed.end();
        feed.begin_after(origin(), 3);
        feed.publish(&other);
        assert!(feed.received(other.place.next, pending()).now_or_never().is_none());
        standby.receipts().received(other.place.next);
        assert!(feed.received(other.place.next, pending()).now_or_never().is_none());
        assert!(standby.next().await.is_none() && waiting.next().await.is_none(), "they subscribe again");
    }
}
