//! A database that lets nobody in for a while who would append: it is read-only, or has another password, or too many
//! sessions.

use test_servers::postgres::{Postgres, execute, shared, try_execute};

use crate::database_failures::cut;
use crate::lost_answers::Session;
use crate::proxy::Proxy;
use crate::{Backend, CLUSTER, Database, append, read, server};

/// Appends while no session is let in, lets it be refused twice, and lets sessions in again. `url` is that of the ledger,
/// `admin` that of the test.
fn refuse_for_a_while<T>(url: &str, admin: &str, refuse: impl FnOnce() -> T, let_in: impl FnOnce(T)) {
    ledger::postgres::initialize(&server(url), CLUSTER).unwrap();
    let proxy = Proxy::to(url);
    let mut ledger = Database(server(&proxy.url)).open().ledger;
    append(&mut *ledger, 1);
    let refused = refuse();
    let known = proxy.connections();
    let appending = std::thread::spawn(move || {
        append(&mut *ledger, 1);
        ledger
    });
    // Each attempt begins when the one before it was refused.
    proxy.until_connections(known + 3);
    assert!(!appending.is_finished());
    assert_eq!(execute(admin, "SELECT max(next) FROM lessor.batch"), [["2"]]);
    let_in(refused);
    let mut ledger = appending.join().expect("the append was held");
    append(&mut *ledger, 1);
    ledger.confirm().unwrap();
    assert_eq!(read(&*ledger.reader(), 1), 4);
}

/// The address for another user, with a password if there is one.
fn of_user(url: &str, user: &str) -> String {
    url.replace("postgres://postgres@", &format!("postgres://{user}@"))
}

#[test]
fn c12_a_database_that_is_read_only_for_a_while_is_waited_for() {
    let url = shared().create_database();
    let (_, name) = url.rsplit_once('/').unwrap();
    let read_only = |value: &str| {
        let set = format!("ALTER DATABASE {name} SET default_transaction_read_only = {value}");
        shared().execute("postgres", &set);
    };
    let refuse = || {
        read_only("on");
        cut(&url);
    };
    refuse_for_a_while(&url, &url, refuse, |()| read_only("off"));
}

#[test]
fn c12_a_role_that_has_too_many_sessions_for_a_while_is_waited_for() {
    let admin = shared().create_database();
    let (_, name) = admin.rsplit_once('/').unwrap();
    let role = format!("limited_{name}");
    execute(&admin, &format!("CREATE ROLE {role} LOGIN; ALTER DATABASE {name} OWNER TO {role}"));
    let url = of_user(&admin, &role);
    let refuse = || {
        let other = Session::begin(&url, "SELECT 1");
        execute(&admin, &format!("ALTER ROLE {role} CONNECTION LIMIT 1"));
        let cut = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'lessor' \
                   AND datname = current_database()";
        execute(&admin, cut);
        other
    };
    // A slot more would do for the append alone.
    let let_in = |_other| drop(execute(&admin, &format!("ALTER ROLE {role} CONNECTION LIMIT -1")));
    refuse_for_a_while(&url, &admin, refuse, let_in);
}

#[test]
fn c12_a_role_whose_password_is_another_one_for_a_while_is_waited_for() {
    let server = Postgres::start(&["fsync=off"]);
    let admin = server.create_database();
    let (_, name) = admin.rsplit_once('/').unwrap();
    execute(&admin, &format!("CREATE ROLE app LOGIN PASSWORD 'one'; ALTER DATABASE {name} OWNER TO app"));
    let hba_file = execute(&admin, "SHOW hba_file").remove(0).remove(0);
    let rules = std::fs::read_to_string(&hba_file).unwrap();
    std::fs::write(&hba_file, format!("host all app 127.0.0.1/32 scram-sha-256\n{rules}")).unwrap();
    execute(&admin, "SELECT pg_reload_conf()");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let is_let_in = |url: &str| runtime.block_on(async { try_execute(url, "SELECT 1").await.is_ok() });
    while is_let_in(&of_user(&admin, "app:wrong")) {}

    let password = |password: &str| drop(execute(&admin, &format!("ALTER ROLE app PASSWORD '{password}'")));
    let refuse = || {
        password("two");
        cut(&admin);
    };
    refuse_for_a_while(&of_user(&admin, "app:one"), &admin, refuse, |()| password("one"));
}
