//! Which databases are used, and which are refused.

use ledger::postgres::{self, Cluster, Import, Server};
use ledger::{ClusterId, ErrorKind, Link, Position, Reader};
use test_servers::postgres::{execute, shared};

use crate::{Backend, CLUSTER, Database, append, batch, database_options, read, server};

#[test]
fn c21_a_database_without_a_cluster_is_refused() {
    let server = server(&shared().create_database());
    let refused = postgres::open(server, database_options("a")).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.to_string().contains("lessor cluster init"), "{refused}");
}

#[test]
fn c21_a_dropped_schema_is_not_created_again_by_a_start() {
    let url = shared().create_database();
    postgres::initialize(&server(&url), CLUSTER).unwrap();
    execute(&url, "DROP SCHEMA lessor CASCADE");
    assert!(postgres::open(server(&url), database_options("a")).is_err());
    assert_eq!(execute(&url, "SELECT to_regclass('lessor.batch')"), [[""]]);
}

#[test]
fn c21_another_key_is_refused() {
    let database = Database::create();
    let options = postgres::Options { key_print: [1; 16], ..database_options("a") };
    let refused = postgres::open(database.0.clone(), options).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.to_string().contains("key"), "{refused}");
}

#[test]
fn a_cluster_is_initialized_once() {
    let database = Database::create();
    append(&mut *database.open().ledger, 3);
    let other = Cluster { id: ClusterId([6; 16]), ..CLUSTER };
    let refused = postgres::initialize(&database.0, other).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert_eq!(database.open().ledger.next(), Position(4));
}

#[test]
fn c20_a_database_of_newer_software_is_refused_with_both_versions() {
    for newer in ["schema_version = 7, usable_from = 7", "format = 7"] {
        let url = shared().create_database();
        postgres::initialize(&server(&url), CLUSTER).unwrap();
        execute(&url, &format!("UPDATE lessor.cluster SET {newer}"));
        let refused = postgres::open(server(&url), database_options("a")).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Refused);
        assert!(refused.to_string().contains('7') && refused.to_string().contains('1'), "{refused}");
    }
}

#[test]
fn a_server_that_does_not_sync_is_refused() {
    let database = Database::create();
    let server = Server { unsafe_no_sync: false, ..database.0.clone() };
    let refused = postgres::open(server, database_options("a")).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.to_string().contains("fsync"), "{refused}");
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let server = server("postgres://postgres@127.0.0.1:1/nothing");
    let failed = postgres::open(server, database_options("a")).err().unwrap();
    assert_eq!(failed.kind(), ErrorKind::Unavailable);
}

#[test]
fn the_first_host_that_takes_writes_is_used() {
    let database = Database::create();
    let config = &database.0.config;
    let url = format!(
        "postgres://postgres@127.0.0.1:1,127.0.0.1:{}/{}",
        config.get_ports()[0],
        config.get_dbname().unwrap()
    );
    append(&mut *postgres::open(server(&url), database_options("a")).unwrap().ledger, 3);
    assert_eq!(database.open().ledger.next(), Position(4));
}

#[test]
fn an_import_begins_where_its_source_begins_and_is_a_cluster_only_at_its_end() {
    let url = shared().create_database();
    let begin = || Import::begin(server(&url), CLUSTER, Position(50)).unwrap();
    let mut cut_off = begin();
    cut_off.append(&batch(Position(50), 3)).unwrap();
    cut_off.flush().unwrap();
    drop(cut_off);
    let refused = postgres::open(server(&url), database_options("a")).err().unwrap();
    assert!(
        refused.kind() == ErrorKind::Refused && refused.to_string().contains("not finished"),
        "{refused}"
    );
    let refused = postgres::initialize(&server(&url), CLUSTER).unwrap_err();
    assert!(refused.to_string().contains("not finished"), "{refused}");

    let mut import = begin();
    assert_eq!(import.reader().first().unwrap(), Position(50), "nothing is left of the import before");
    import.append(&batch(Position(50), 10)).unwrap();
    assert!(import.append(&batch(Position(61), 1)).is_err(), "without a gap");
    import.append(&batch(Position(60), 5)).unwrap();
    import.flush().unwrap();
    assert_eq!(read(&import.reader(), 50), 65);
    import.finish().unwrap();

    let mut ledger = postgres::open(server(&url), database_options("a")).unwrap().ledger;
    assert_eq!((ledger.reader().first().unwrap(), ledger.next()), (Position(50), Position(65)));
    append(&mut *ledger, 5);
    assert_eq!(read(&*ledger.reader(), 50), 70);
    assert_eq!(ledger.reader().record(Position(49)).unwrap(), None);
    let origin = Link::origin(CLUSTER.id, 0);
    let link = origin.then_batch(&batch(Position(50), 10)).then_batch(&batch(Position(60), 5));
    assert_eq!(
        execute(&url, "SELECT encode(link, 'hex') FROM lessor.batch WHERE first = 60"),
        [[link.to_string()]]
    );
    assert!(Import::begin(server(&url), CLUSTER, Position(1)).is_err());
    assert_eq!(ledger.next(), Position(70));
}

#[test]
fn an_import_may_hold_no_batch() {
    let url = shared().create_database();
    Import::begin(server(&url), CLUSTER, Position(50)).unwrap().finish().unwrap();
    let mut ledger = postgres::open(server(&url), database_options("a")).unwrap().ledger;
    assert_eq!((ledger.reader().first().unwrap(), ledger.next()), (Position(50), Position(50)));
    append(&mut *ledger, 5);
    assert_eq!(read(&*ledger.reader(), 50), 55);
}
