//! Databases that an earlier version has created.

use ledger::postgres::{self, BatchRow, SCHEMA_VERSION};
use ledger::{ErrorKind, Link, Position};
use test_servers::postgres::{execute, shared};

use crate::{CLUSTER, append, batch, database_options, read, server};

/// The schema of version 1, as a development version has created it.
const VERSION_1: &str = include_str!("schema-1.sql");
const BATCHES: u64 = 4;

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("'\\x{digits}'")
}

/// A database of version 1 with some batches of three records.
fn old_database() -> String {
    let url = shared().create_database();
    execute(&url, VERSION_1);
    let mut link = Link::origin(CLUSTER.id, 0);
    let insert = |first: u64, next: u64, link: Link, row: Option<&BatchRow>| {
        let (at, epoch, codec) = row.map_or((0, 0, 0), |row| (row.at, row.epoch, row.codec));
        let body = hex(row.map_or(&[][..], |row| &row.body));
        let link = hex(&link.0);
        let values = format!("(0, {first}, {next}, {at}, {epoch}, {link}, {codec}, {body})");
        execute(&url, &format!("INSERT INTO lessor.batch VALUES {values}"));
    };
    insert(0, 1, link, None);
    for number in 0..BATCHES {
        let row = BatchRow::new(&batch(Position(1 + 3 * number), 3), link, 1);
        link = row.place.link;
        insert(row.place.first.0, row.place.next.0, link, Some(&row));
    }
    execute(&url, "INSERT INTO lessor.table_state (shard) VALUES (0)");
    execute(&url, "INSERT INTO lessor.node (node, address) VALUES ('old', 'old:1')");
    let (id, key_print) = (hex(&CLUSTER.id.0), hex(&CLUSTER.key_print));
    let columns = "(id, shards, schema_version, format, key_print)";
    execute(&url, &format!("INSERT INTO lessor.cluster {columns} VALUES ({id}, 1, 1, 1, {key_print})"));
    url
}

/// Columns and storage options.
fn definitions(url: &str) -> [Vec<Vec<String>>; 2] {
    let columns = "SELECT table_name, column_name, data_type, is_nullable, column_default \
         FROM information_schema.columns WHERE table_schema = 'lessor' ORDER BY 1, 2";
    let options = "SELECT relname, array(SELECT unnest(reloptions) ORDER BY 1)::text FROM pg_class \
         WHERE relnamespace = 'lessor'::regnamespace ORDER BY 1";
    [columns, options].map(|query| execute(url, query))
}

#[test]
fn c20_a_database_of_version_1_is_migrated_by_the_first_node_and_its_batches_stay_as_they_are() {
    let url = old_database();
    let rows = "SELECT first, xmin, encode(link, 'hex') FROM lessor.batch ORDER BY first LIMIT 5";
    let before = execute(&url, rows);
    let mut ledger = postgres::open(server(&url), database_options("a")).unwrap().ledger;
    assert_eq!(execute(&url, rows), before, "no row was written anew");
    assert_eq!(ledger.next(), Position(1 + 3 * BATCHES));
    append(&mut *ledger, 5);
    assert_eq!(read(&*ledger.reader(), 1), 1 + 3 * BATCHES + 5);
    assert_eq!(execute(&url, "SELECT schema_version FROM lessor.cluster"), [[SCHEMA_VERSION.to_string()]]);
    assert_eq!(
        execute(&url, "SELECT address, draining FROM lessor.node WHERE node = 'old'"),
        [["old:1", "f"]]
    );
}

#[test]
fn a_migrated_database_is_defined_as_a_new_one() {
    let url = old_database();
    postgres::open(server(&url), database_options("a")).unwrap();
    let new = shared().create_database();
    postgres::initialize(&server(&new), CLUSTER).unwrap();
    assert_eq!(definitions(&url), definitions(&new));
}

#[test]
fn c20_a_schema_of_newer_software_that_only_added_something_is_used() {
    let url = old_database();
    let open = || postgres::open(server(&url), database_options("a"));
    open().unwrap();
    execute(&url, "UPDATE lessor.cluster SET schema_version = 99");
    append(&mut *open().unwrap().ledger, 5);
    assert_eq!(execute(&url, "SELECT schema_version FROM lessor.cluster"), [["99"]]);
}

#[test]
fn several_nodes_that_start_at_once_migrate_once() {
    let url = old_database();
    std::thread::scope(|scope| {
        let open = || postgres::open(server(&url), database_options("a")).map(|_| ());
        let starting: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
        starting.into_iter().for_each(|node| node.join().unwrap().unwrap());
    });
    assert_eq!(execute(&url, "SELECT schema_version FROM lessor.cluster"), [[SCHEMA_VERSION.to_string()]]);
}

#[test]
fn a_database_that_was_not_migrated_is_read_by_no_tool_and_changed_by_no_node_with_another_key() {
    let url = old_database();
    let refused = postgres::inspect(server(&url), 0).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.to_string().contains("start a node"), "{refused}");
    let other = postgres::Options { key_print: [1; 16], ..database_options("a") };
    assert!(postgres::open(server(&url), other).is_err());
    assert_eq!(execute(&url, "SELECT schema_version FROM lessor.cluster"), [["1"]]);
}
