//! Which identities hold leases: every node tells the owner, and any node may ask.

use std::sync::Arc;
use std::time::Duration;

use authority::LeaseRef;
use authority::command::{Grant, LeaseTasks, ReleaseLease};
use authority::event::ReleaseCause;
use coordinator::{
    ChargeUpload, FindHeld, Handle, HeldLeases, LeaseHolder, LeaseKey, Router, RouterOptions, UploadCharge,
};
use ledger::memory::MemoryStorage;

use crate::support::direct_peer::{Answers, DirectPeer, Owner, address};
use crate::support::{completion, lease, lease_ref, submit};

/// A node that does not own the ledger.
struct Edge {
    router: Router,
    handle: Handle,
}

impl Edge {
    fn of(owner: &Owner) -> Edge {
        let (router, handle) = Router::new(RouterOptions::default());
        let edge = Edge { router, handle };
        edge.follow(owner);
        edge
    }

    fn follow(&self, owner: &Owner) {
        let peer = DirectPeer::new(owner.router.inbound(), Answers::Arrive);
        self.router.forward(owner.epoch(), address("owner"), peer);
    }

    /// Leases as many tasks of a queue, and tells whose they are if anybody is named.
    async fn lease(&self, identity: Option<&str>, queue: &str, max_tasks: usize) -> Vec<Grant> {
        let poll = LeaseTasks { max_tasks, ..lease("w", queue) };
        let grants = self.handle.lease(poll, Duration::from_secs(60)).await.unwrap();
        if let Some(identity) = identity {
            self.note_leases(Some(identity), &grants).await;
        }
        grants
    }

    async fn note_leases(&self, identity: Option<&str>, grants: &[Grant]) {
        let leases = grants.iter().map(|grant| lease_ref("w", grant)).collect();
        self.handle.note_leases(identity.map(Arc::from), leases).await.unwrap();
    }

    async fn held(&self, identity: &str, known: &[Grant], after: (u64, u64)) -> HeldLeases {
        let known = known.iter().map(key).collect();
        let asked = FindHeld { holder: holder(identity), queue: "q".into(), known, after };
        *self.handle.held(asked).await.unwrap()
    }

    async fn charge(&self, identity: &str, bytes: u64) -> UploadCharge {
        let (holder, queue, max_bytes) = (holder(identity), "q".into(), 100);
        self.handle.charge_upload(ChargeUpload { holder, queue, bytes, max_bytes }).await.unwrap()
    }
}

fn holder(identity: &str) -> LeaseHolder {
    LeaseHolder { tenant: "default".into(), identity: identity.into() }
}

fn key(grant: &Grant) -> LeaseKey {
    (grant.fencing_token, grant.task)
}

fn refs(grants: &[&Grant]) -> Vec<LeaseRef> {
    grants.iter().map(|grant| lease_ref("w", grant)).collect()
}

async fn submit_all(handle: &Handle, ids: std::ops::RangeInclusive<u128>, queue: &str) {
    handle.submit_batch(ids.map(|id| submit(id, queue)).collect()).await.unwrap();
}

#[tokio::test]
async fn a_lease_that_one_node_told_of_is_found_through_the_others_until_it_is_over() {
    let owner = Owner::start(&MemoryStorage::default());
    let (a, b) = (Edge::of(&owner), Edge::of(&owner));
    submit_all(&a.handle, 1..=3, "q").await;
    submit_all(&a.handle, 4..=4, "other").await;
    let grants = a.lease(Some("ada"), "q", 2).await;
    a.lease(Some("ada"), "other", 1).await;
    let told = b.held("ada", &[], (0, 0)).await;
    assert_eq!(told.found, refs(&[&grants[0], &grants[1]]), "those of the queue");
    assert_eq!((told.has_more, told.unclaimed_before), (false, None));
    assert_eq!(b.held("eve", &[], (0, 0)).await.found, []);
    // What was told is not repeated.
    let third = a.lease(Some("ada"), "q", 1).await.remove(0);
    let told = b.held("ada", &grants, told.next).await;
    assert_eq!((told.found, told.lost), (refs(&[&third]), Vec::new()));
    // At once, through whichever node it ends.
    a.handle.complete(completion("w", &grants[0])).await.unwrap();
    let release = ReleaseLease { lease: lease_ref("w", &grants[1]), cause: ReleaseCause::Worker };
    a.handle.release(release).await.unwrap();
    let told = b.held("ada", &[grants[0].clone(), grants[1].clone(), third.clone()], (0, 0)).await;
    assert_eq!(told.lost, [key(&grants[0]), key(&grants[1])]);
    assert_eq!(told.found, refs(&[&third]));
    // Whoever says that it has the lease of another one is not believed.
    assert_eq!(b.held("eve", std::slice::from_ref(&third), (0, 0)).await.lost, [key(&third)]);
}

#[tokio::test]
async fn many_leases_are_found_a_part_at_a_time() {
    let owner = Owner::start(&MemoryStorage::default());
    let (a, b) = (Edge::of(&owner), Edge::of(&owner));
    let mut leases = Vec::new();
    for n in 0..11 {
        submit_all(&a.handle, n * 100 + 1..=(n + 1) * 100, "q").await;
        leases.extend(refs(&a.lease(Some("ada"), "q", 100).await.iter().collect::<Vec<_>>()));
    }
    let first = b.held("ada", &[], (0, 0)).await;
    assert!(first.has_more);
    let rest = b.held("ada", &[], first.next).await;
    assert!(!rest.has_more);
    assert_eq!([first.found, rest.found].concat(), leases);
}

/// The table is lost with the owner, as that of a single server is with a restart.
#[tokio::test]
async fn after_a_takeover_leases_may_be_anybodys_until_they_are_told_again() {
    let storage = MemoryStorage::default();
    let first = Owner::start(&storage);
    let (a, b) = (Edge::of(&first), Edge::of(&first));
    submit_all(&a.handle, 1..=3, "q").await;
    submit_all(&a.handle, 4..=4, "other").await;
    let grants = a.lease(Some("ada"), "q", 3).await;
    let other = a.lease(Some("ada"), "other", 1).await;
    let before = b.held("ada", &[], (0, 0)).await;
    let second = Owner::start(&storage);
    [&a, &b].iter().for_each(|edge| edge.follow(&second));
    // What a node knows is confirmed, and what it does not know may be anybody's.
    let told = b.held("ada", &grants, before.next).await;
    assert_eq!((told.lost, told.found), (Vec::new(), Vec::new()));
    let since = told.unclaimed_before.unwrap();
    let position = a.handle.status().await.unwrap().position;
    assert!(grants[2].fencing_token < since && since <= position, "{since:?} at {position:?}");
    assert_eq!(a.charge("ada", 1).await, UploadCharge::NoLease { is_any_unclaimed: true });
    a.note_leases(Some("ada"), &grants[..1]).await;
    assert_eq!(
        b.held("ada", &[], before.next).await.found,
        refs(&[&grants[0]]),
        "in another order than before"
    );
    a.note_leases(None, &grants[1..2]).await;
    assert_eq!(b.held("ada", &[], (0, 0)).await.unclaimed_before, Some(since), "the third");
    a.handle.complete(completion("w", &grants[2])).await.unwrap();
    assert_eq!(b.held("ada", &[], (0, 0)).await.unclaimed_before, None);
    // A lease of any queue takes uploads.
    assert_eq!(b.charge("eve", 1).await, UploadCharge::NoLease { is_any_unclaimed: true });
    a.note_leases(None, &other).await;
    assert_eq!(b.charge("eve", 1).await, UploadCharge::NoLease { is_any_unclaimed: false });
}

#[tokio::test]
async fn uploads_count_for_the_leases_of_an_identity_whichever_node_takes_them() {
    let owner = Owner::start(&MemoryStorage::default());
    let (a, b) = (Edge::of(&owner), Edge::of(&owner));
    submit_all(&a.handle, 1..=2, "any").await;
    assert_eq!(a.charge("ada", 0).await, UploadCharge::NoLease { is_any_unclaimed: false });
    let one = a.lease(Some("ada"), "any", 1).await.remove(0);
    assert_eq!(a.charge("ada", 60).await, UploadCharge::Charged(key(&one)));
    assert_eq!(b.charge("ada", 50).await, UploadCharge::OverLimit);
    assert_eq!(b.charge("ada", u64::MAX).await, UploadCharge::OverLimit);
    assert_eq!(b.charge("eve", 0).await, UploadCharge::NoLease { is_any_unclaimed: false });
    b.handle.refund_upload(key(&one), 20).await.unwrap();
    assert_eq!(b.charge("ada", 60).await, UploadCharge::Charged(key(&one)));
    let two = b.lease(Some("ada"), "any", 1).await.remove(0);
    assert_eq!(a.charge("ada", 90).await, UploadCharge::Charged(key(&two)), "which has uploaded least");
    assert_eq!(a.charge("ada", 11).await, UploadCharge::OverLimit);
    b.handle.complete(completion("w", &two)).await.unwrap();
    assert_eq!(a.charge("ada", 0).await, UploadCharge::Charged(key(&one)));
    a.handle.complete(completion("w", &one)).await.unwrap();
    assert_eq!(a.charge("ada", 0).await, UploadCharge::NoLease { is_any_unclaimed: false });
}

#[tokio::test]
async fn a_lease_whose_completion_one_node_refused_is_known_to_the_others() {
    let owner = Owner::start(&MemoryStorage::default());
    let (a, b) = (Edge::of(&owner), Edge::of(&owner));
    submit_all(&a.handle, 1..=2, "q").await;
    let grants = a.lease(None, "q", 2).await;
    let keys: Vec<LeaseKey> = grants.iter().map(key).collect();
    assert_eq!(b.handle.refused(keys.clone()).await.unwrap(), []);
    a.handle.set_refused(lease_ref("w", &grants[1]), true).await.unwrap();
    a.note_leases(Some("ada"), &grants).await;
    assert_eq!(b.handle.refused(keys.clone()).await.unwrap(), [keys[1]]);
    b.handle.set_refused(lease_ref("w", &grants[1]), false).await.unwrap();
    assert_eq!(a.handle.refused(keys).await.unwrap(), []);
}
