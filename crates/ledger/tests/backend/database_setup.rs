//! Which databases are used, and which are refused.

use ledger::postgres::{self, Cluster, Server};
use ledger::{ClusterId, ErrorKind, Position};
use test_servers::postgres::{execute, shared};

use crate::{Backend, CLUSTER, Database, append, database_options, server};

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
    for column in ["schema_version", "format"] {
        let url = shared().create_database();
        postgres::initialize(&server(&url), CLUSTER).unwrap();
        execute(&url, &format!("UPDATE lessor.cluster SET {column} = 7"));
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
