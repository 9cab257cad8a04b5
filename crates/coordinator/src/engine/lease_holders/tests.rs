//! Tests of the bounds of the table; what it answers is tested through the handle.

use authority::Scope;

use super::*;

fn lease(tenant: &str, n: usize) -> LeaseRef {
    let scope = Scope { tenant: tenant.into(), workspace: "w".into() };
    let (task, fencing_token) = (TaskId(n as u128), Position(n as u64));
    LeaseRef { scope, worker: "w".into(), task, attempt: 1, fencing_token }
}

#[test]
fn tenants_share_the_table_and_leases_that_are_over_make_room() {
    let (holders, identity) = (LeaseHolders::default(), Arc::from("i"));
    let note = |lease: LeaseRef| holders.note(Some(&identity), &[lease]);
    (0..MAX_LEASES).for_each(|n| note(lease("greedy", n)));
    let greedy = holders.lock().leases.len();
    assert_eq!(greedy, MAX_LEASES / 8 * 7);
    (0..MAX_LEASES).for_each(|n| note(lease("modest", MAX_LEASES + n)));
    let len = holders.lock().leases.len();
    assert!(greedy < len && len < MAX_LEASES, "there is room for others: {len}");
    holders.prune(&State::new(), Time(1));
    let table = holders.lock();
    assert!(table.leases.is_empty() && table.holders.is_empty() && table.by_tenant.is_empty());
}

#[test]
fn a_lease_that_comes_back_with_another_key_is_no_more_the_first_ones() {
    let (holders, one, other) = (LeaseHolders::default(), Arc::from("one"), Arc::from("other"));
    let lease = lease("t", 1);
    let key = (lease.fencing_token, lease.task);
    holders.note(Some(&one), std::slice::from_ref(&lease));
    holders.refund(&key, 1);
    holders.lock().set_uploaded(&key, 5);
    for identity in [None, Some(&other), Some(&other), None] {
        holders.note(identity, std::slice::from_ref(&lease));
    }
    let table = holders.lock();
    let holder = LeaseHolder { tenant: "t".into(), identity: other };
    assert_eq!(table.holders.keys().collect::<Vec<_>>(), [&holder]);
    assert_eq!(table.leases[&key].holder.as_ref(), Some(&holder));
    assert_eq!(table.holders[&holder].by_upload.first(), Some(&(5, 1)), "what was uploaded counts on");
}
