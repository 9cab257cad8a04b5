//! Tests of the server's configuration file: what is accepted, and the messages for what is not.

use super::*;

/// The server configuration of the remote execution plan, word for word in its keys.
const DOCUMENT: &str = r#"
[server]
address = "0.0.0.0:8980"
instance_name = "production"

[storage.cas]
backend = "filesystem"
root_dir = "/var/lib/example/cas"

[storage.action_cache]
backend = "filesystem"
root_dir = "/var/lib/example/cache"

[execution]
backend = "scheduler"

[execution.scheduler]
lease_duration_seconds = 240
heartbeat_timeout_seconds = 110
long_poll_timeout_seconds = 20
max_queue_size = 77

[capabilities]
exec_enabled = true
"#;

fn faults(text: &str) -> String {
    file::parse::<Config>(text).unwrap_err().join("\n")
}

#[test]
fn s3_62_address_and_instance_name_are_read() {
    let config = file::parse::<Config>(DOCUMENT).unwrap();
    assert_eq!(config.server.address, "0.0.0.0:8980".parse().unwrap());
    assert_eq!(config.server.instance_name, "production");
    assert_eq!(&*config.exec_queue().0.scope.workspace, "production");
}

#[test]
fn s3_63_both_stores_are_on_the_filesystem() {
    let config = file::parse::<Config>(DOCUMENT).unwrap();
    assert_eq!(config.storage.cas.root_dir.as_deref(), Some(Path::new("/var/lib/example/cas")));
    assert_eq!(config.storage.action_cache.root_dir.as_deref(), Some(Path::new("/var/lib/example/cache")));
    assert!(faults("[storage.cas]\nbackend = \"tape\"").contains("filesystem"));
}

#[test]
fn s3_64_executions_go_to_the_scheduler() {
    assert_eq!(file::parse::<Config>(DOCUMENT).unwrap().execution.backend, ExecutionBackend::Scheduler);
    assert!(faults("[execution]\nbackend = \"local\"").contains("scheduler"));
}

#[test]
fn s3_65_the_scheduler_has_the_documents_keys_and_defaults() {
    let scheduler = file::parse::<Config>(DOCUMENT).unwrap().execution.scheduler;
    assert_eq!((scheduler.heartbeat_timeout_seconds, scheduler.long_poll_timeout_seconds), (110, 20));
    let settings = file::parse::<Config>(DOCUMENT).unwrap().scheduler();
    assert_eq!((settings.heartbeat_timeout.as_secs(), settings.long_poll_timeout.as_secs()), (110, 20));
    let (key, queue) = file::parse::<Config>(DOCUMENT).unwrap().exec_queue();
    assert_eq!((&*key.name, queue.lease_ms, queue.max_queue_size), ("exec", Some(240_000), Some(77)));
    let plain = file::parse::<Config>("").unwrap().execution.scheduler;
    assert_eq!(
        (plain.lease_duration_seconds, plain.heartbeat_timeout_seconds, plain.long_poll_timeout_seconds),
        (300, 120, 30)
    );
    assert_eq!(plain.max_queue_size, 10_000);
}

#[test]
fn s3_66_execution_can_be_switched_off() {
    assert!(file::parse::<Config>("").unwrap().capabilities.exec_enabled);
    assert!(
        !file::parse::<Config>("[capabilities]\nexec_enabled = false").unwrap().capabilities.exec_enabled
    );
}

#[test]
fn p14_an_unknown_key_names_the_nearest_known_one_and_its_line() {
    let told =
        faults("[server]\n\nadress = \"0.0.0.0:1\"\n[dta]\ndir = \"x\"\n[data]\nlong_poll_timeout_secs = 3");
    assert!(told.contains("line 3: unknown key server.adress; did you mean server.address?"), "{told}");
    assert!(told.contains("line 4: unknown key dta; did you mean data?"), "{told}");
    assert!(told.contains("did you mean execution.scheduler.long_poll_timeout_seconds?"), "{told}");
    let told = faults("[server]\nxylophone = 1");
    assert!(told.contains("known at [server]: address, allowed_hosts, instance_name"), "{told}");
}

#[test]
fn p14_a_value_of_the_wrong_kind_or_size_is_named() {
    for (text, words) in [
        ("[server]\naddress = 5", "address"),
        ("[server]\naddress = \"nowhere\"", "line 2"),
        ("[server]\naddress = \"nowhere\"", "such as 127.0.0.1:8980"),
        ("[server]\ninstance_name = \"a\\tb\"", "server.instance_name"),
        ("[data]\nsegment_mib = 1", "data.segment_mib must be between 32 and 4096"),
        ("[data]\nmax_state_mib = 1", "data.max_state_mib must be at least 16"),
        ("[data]\nhistory_days = -1", "history_days"),
        (
            "[execution.scheduler]\nlease_duration_seconds = 99999999",
            "execution.scheduler.lease_duration_seconds must be between 1 and 86400, but is 99999999",
        ),
        (
            "[execution.scheduler]\nmax_queue_size = 0",
            "execution.scheduler.max_queue_size must be at least 1",
        ),
        ("[data]\ndir = \"\"", "data.dir is empty"),
        ("[storage.cas]\nroot_dir = \"\"", "storage.cas.root_dir is empty"),
        ("[storage]\nshared_cache_tenants = [\"a\", \"\"]", "storage.shared_cache_tenants: \"\""),
        ("[metrics]\nqueues = [\"\"]", "metrics.queues"),
        ("[execution.scheduler]\nlong_poll_timeout_seconds = 3600", "must be between 1 and 60"),
        (
            "[server]\nallowed_hosts = [\"a.example:80\"]",
            "server.allowed_hosts: \"a.example:80\" is not the name of a host",
        ),
        ("[queues]\ncreate = \"some\"", "expected `any` or `configured`"),
        ("data = 3", "data"),
        ("[server", "line 1"),
    ] {
        assert!(faults(text).contains(words), "{text}: {}", faults(text));
    }
}

#[test]
fn what_is_shown_is_read_back_as_the_same() {
    for config in [Config::default(), Config::with_every_key(), file::parse::<Config>(DOCUMENT).unwrap()] {
        assert_eq!(toml::from_str::<Config>(&toml::to_string(&config).unwrap()).unwrap(), config);
    }
}

#[test]
fn an_open_address_is_warned_of() {
    assert_eq!(Config::default().warnings().count(), 0);
    let mut open = file::parse::<Config>(DOCUMENT).unwrap();
    assert_eq!(open.warnings().count(), 1);
    open.auth.mode = Mode::Keys;
    let warning = open.warnings().next().unwrap();
    assert!(warning.contains("unencrypted") && warning.contains("--tls-certificate"), "{warning}");
    open.server.tls.certificate = Some("server.pem".into());
    assert_eq!(open.warnings().count(), 0);
}

#[test]
fn clients_write_to_the_action_cache_on_loopback_or_where_that_is_configured() {
    let allowed = |text: &str| file::parse::<Config>(text).unwrap().reapi().allow_uploads;
    let open = "[server]\naddress = \"0.0.0.0:8980\"\n";
    assert!(allowed(""));
    assert!(!allowed(open));
    assert!(allowed(&format!("{open}[capabilities]\naction_cache_update_enabled = true")));
    assert!(!allowed("[capabilities]\naction_cache_update_enabled = false"));
}

#[test]
fn the_free_disk_reserve_of_the_content_store_is_read_and_bounded() {
    assert_eq!(file::parse::<Config>("").unwrap().storage.min_free_mib, 1_024);
    assert_eq!(file::parse::<Config>("[storage]\nmin_free_mib = 0").unwrap().storage.min_free_mib, 0);
    let fault = faults("[storage]\nmin_free_mib = 1073741824");
    assert!(fault.contains("storage.min_free_mib"), "{fault}");
}

#[test]
fn limits_of_a_tenant_override_those_of_all() {
    let config = file::parse::<Config>(
        "[limits.tenant]\nrequests_per_second = 100\npolls = 7\nstate_mib = 2\n\
         [limits.tenants.acme]\npolls = 9\nrequest_burst = 300\nblob_mib = 3\nopen_tasks = 5\n",
    )
    .unwrap();
    let requests = config.limits.of_requests();
    assert_eq!((requests.others.polls, requests.others.requests_per_second), (Some(7), 100.try_into().ok()));
    let acme = requests.tenants["acme"];
    assert_eq!((acme.polls, acme.requests_per_second), (Some(9), 100.try_into().ok()));
    assert_eq!((acme.request_burst, acme.streams), (300.try_into().ok(), None));
    let tasks = config.limits.of_tasks();
    assert_eq!((tasks.of("acme").open_tasks, tasks.of("acme").bytes), (Some(5), Some(2 << 20)));
    assert_eq!((tasks.of("other").open_tasks, tasks.of("other").bytes), (None, Some(2 << 20)));
    let unlimited = file::parse::<Config>("").unwrap();
    assert_eq!(unlimited.limits.of_requests(), server::LimitsByTenant::default());
    let text = toml::to_string(&config).unwrap();
    assert_eq!(file::parse::<Config>(&text).unwrap(), config, "what check-config prints is valid: {text}");
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    assert!(faults("[limits.tenant]\npoll = 7").contains("did you mean limits.tenant.polls?"));
    assert!(faults("[limits.tenants.acme]\npoll = 7").contains("unknown key limits.tenants.acme.poll"));
    assert!(faults("[limits.tenant]\npolls = 0").contains("limits.tenant.polls"));
    assert!(faults("[limits.tenant]\nrequest_burst = 5").contains("needs limits.tenant.requests_per_second"));
    assert!(faults("[limits.tenants.a]\nrequest_burst = 5").contains("limits.tenants.a.request_burst needs"));
    assert!(faults("[limits.tenants.\"a\\tb\"]\npolls = 5").contains("the name"));
}
