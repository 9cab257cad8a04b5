//! The nodes of a cluster, as they see each other.

use ledger::postgres::{self, Announcement, Membership, NameHolder, OwnerRow, Place};
use ledger::{Link, Position};

use crate::{Backend, Database, append, database_options};

fn member(database: &Database, node: &str) -> Membership {
    Membership::new(postgres::Database::connect(database.0.clone(), database_options(node)).unwrap())
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

fn owner(node: &str, epoch: u64) -> OwnerRow {
    OwnerRow { node: node.to_owned(), address: format!("{node}:1"), epoch }
}

#[test]
fn a_node_sees_the_owner_its_lock_its_beat_and_the_end_of_the_ledger() {
    let database = Database::create();
    append(&mut *database.open().ledger, 4);
    let (mut a, mut b) = (member(&database, "a"), member(&database, "b"));
    run(async {
        let about = Announcement {
            address: "a:1".to_owned(),
            version: "1".to_owned(),
            applied_next: Position(3),
            is_draining: false,
            connections: 0,
            is_hot: false,
        };
        assert_eq!(a.announce(&about, false).await.unwrap(), NameHolder::This);
        let nobody = b.observe().await.unwrap();
        assert_eq!((nobody.next, nobody.is_locked, nobody.owner), (Position(5), false, None));
        assert!(a.try_lock().await.unwrap() && a.try_lock().await.unwrap(), "it has the lock");
        assert!(!b.try_lock().await.unwrap());
        let last = Place { first: Position(1), next: nobody.next, link: nobody.link };
        a.record_owner(&owner("a", 0), "test", 1, last).await.unwrap();
        a.beat(77).await.unwrap();
        let seen = b.observe().await.unwrap();
        assert_eq!((seen.is_locked, seen.owner, seen.beat), (true, Some(owner("a", 0)), 77));
        let undone = Place { link: Link([9; 16]), ..last };
        for (late, last, why) in [
            (owner("late", 2), last, "the last batch is of another epoch"),
            (owner("undone", 0), undone, "its batches were undone, and another owner has its epoch"),
        ] {
            b.record_owner(&late, "late", 1, last).await.unwrap();
            assert_eq!(b.observe().await.unwrap().owner, Some(owner("a", 0)), "{why}");
        }
        let (nodes, shards) = b.list().await.unwrap();
        assert_eq!(nodes.iter().map(|node| node.applied_next).collect::<Vec<_>>(), [Position(3)]);
        assert_eq!((shards[0].next, &*shards[0].reason), (Position(5), "test"));
    });
}

#[test]
fn a_lock_ends_when_it_is_released_or_its_session_ends_and_the_others_are_told() {
    let database = Database::create();
    let (mut a, mut b) = (member(&database, "a"), member(&database, "b"));
    run(async {
        b.observe().await.unwrap();
        let mut news = b.news();
        assert!(a.try_lock().await.unwrap());
        a.release().await.unwrap();
        news.changed().await.unwrap();
        assert!(b.try_lock().await.unwrap());
        a.end_previous_owner().await.unwrap();
        assert!(!member(&database, "c").try_lock().await.unwrap(), "it was taken");
        assert!(a.try_lock().await.unwrap());
        a.release().await.unwrap();
        assert!(member(&database, "d").try_lock().await.unwrap(), "one release is enough");
    });
}
