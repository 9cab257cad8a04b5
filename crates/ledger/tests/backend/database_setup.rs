//! Which databases are used, and which are refused.

use ledger::postgres::{self, Cluster, Finalized, Import, Server};
use ledger::{ClusterId, ErrorKind, Link, Position, Reader};
use test_servers::postgres::{execute, shared};

use crate::database_failures::{cut, url};
use crate::proxy::Proxy;
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

/// Nodes write the format of the database until all of them read the next one.
#[test]
fn c20_a_record_format_is_enabled_when_every_node_reads_it() {
    let database = Database::create();
    let url = url(&database);
    let finalize = || postgres::finalize(&database.0, CLUSTER.key_print).unwrap();
    let enabled = "SELECT format FROM lessor.cluster";
    let Finalized::Already { format } = finalize() else { panic!("a new database has the newest format") };
    let (older, newest) = (format - 1, vec![vec![format.to_string()]]);

    execute(&url, &format!("UPDATE lessor.cluster SET format = {older}"));
    let node = |name: &str, format: u32| {
        let values = format!("('{name}', '{name}:1', '0.{format}', {format})");
        execute(&url, &format!("INSERT INTO lessor.node (node, address, version, format) VALUES {values}"));
    };
    node("old", older);
    node("new", format);
    let Finalized::Refused { format: refused, nodes } = finalize() else { panic!("a node does not read it") };
    let names: Vec<_> = nodes.iter().map(|node| (&*node.name, &*node.version, node.format)).collect();
    assert_eq!((refused, names), (format, vec![("old", &*format!("0.{older}"), older)]));
    assert_eq!(execute(&url, enabled), [[older.to_string()]], "nothing was changed");
    let other_key = postgres::finalize(&database.0, [1; 16]).unwrap_err();
    assert_eq!(other_key.kind(), ErrorKind::Refused);

    execute(&url, &format!("UPDATE lessor.node SET format = {format} WHERE node = 'old'"));
    assert_eq!(finalize(), Finalized::Enabled { format });
    assert_eq!(execute(&url, enabled), newest);
    assert_eq!(finalize(), Finalized::Already { format });
    append(&mut *database.open().ledger, 3);
}

/// It would write records that it cannot read back after a restart.
#[test]
fn c20_a_node_that_runs_does_not_append_to_a_database_whose_records_it_does_not_read() {
    let url = url(&Database::create());
    let proxy = Proxy::to(&url);
    let mut ledger = Database(server(&proxy.url)).open().ledger;
    append(&mut *ledger, 3);
    execute(&url, "UPDATE lessor.cluster SET format = 7");
    cut(&url);
    let (known, stop) = (proxy.connections(), ledger.stop_waiting().expect("it may wait without end"));
    let appending = std::thread::spawn(move || ledger.append(&batch(Position(4), 1)));
    // Each attempt begins when the one before it was refused.
    proxy.until_connections(known + 3);
    stop();
    assert!(appending.join().unwrap().is_err());
    assert_eq!(execute(&url, "SELECT max(next) FROM lessor.batch"), [["4"]]);
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
