//! Small files of a data directory and of a machine: identities, keys, offsets, settings, lists.

use std::fs;
use std::sync::Arc;

use authority::Position;
use fake_disk::FakeDisk;
use files::Identity;
use ledger::ProjectionOffsets;
use ledger::file::{FileLedger, OffsetFiles, Options};
use lessor::fuzzing;

use crate::seeds::{self, texts, with_text};

const MAGIC: [u8; 8] = *b"LESSOR-L";
const PROJECTION: &str = "action-cache";

/// The identity of a directory. There is one way to write it, and a ledger opens with a sound one only.
pub(crate) fn identity(input: &[u8]) {
    let decoded = Identity::decode(MAGIC, input);
    if let Some(identity) = &decoded {
        assert_eq!(identity.encode(), input);
    }
    let disk = FakeDisk::new();
    disk.put("identity", input.to_vec());
    let opened = FileLedger::open(Arc::new(disk), Options::default());
    assert!(opened.is_err(), "a directory without a segment is no ledger");
}

pub(crate) fn identities() -> Vec<Vec<u8>> {
    [1, 2].map(|version| Identity { magic: MAGIC, version, id: [1; 16] }.encode().to_vec()).to_vec()
}

/// The offset of a projection.
pub(crate) fn offset(input: &[u8]) {
    let disk = FakeDisk::new();
    disk.put(PROJECTION, input.to_vec());
    let offsets = OffsetFiles::new(Arc::new(disk));
    if let Ok(Some(position)) = offsets.load(PROJECTION) {
        assert!(offsets.save(PROJECTION, position, 0).is_ok());
        assert!(offsets.load(PROJECTION).is_ok_and(|loaded| loaded == Some(position)));
    }
}

pub(crate) fn offsets() -> Vec<Vec<u8>> {
    let disk = FakeDisk::new();
    let saved = OffsetFiles::new(Arc::new(disk.clone())).save(PROJECTION, Position(1_234_567), 0);
    assert!(saved.is_ok(), "the disk takes it");
    vec![disk.content(PROJECTION).unwrap_or_default(), b"1234567\n".to_vec()]
}

pub(crate) fn lease_key(input: &[u8]) {
    fuzzing::lease_key(input);
}

pub(crate) fn lease_keys() -> Vec<Vec<u8>> {
    vec![vec![7; 32], files::append_checksum(&[7; 32])]
}

pub(crate) fn config_file(input: &[u8]) {
    with_text(input, fuzzing::config_file);
}

pub(crate) fn config_files() -> Vec<Vec<u8>> {
    texts([
        "[server]\nlisten = \"127.0.0.1:8980\"\nallowed_hosts = [\"build.example\"]\n",
        "[auth]\nmode = \"keys\"\n\n[[auth.issuers]]\nissuer = \"https://ci.example\"\naudiences = [\"lessor\"]\njwks_file = \"keys.json\"\nalgorithms = [\"RS256\"]\n\n[[auth.issuers.rules]]\nclaims = { repository = \"acme/*\" }\ntenants = [\"acme\"]\nroles = [\"builder\"]\n",
        "[data]\ndir = \"data\"\nmax_state_mib = 1024\n\n[limits.tenant.acme]\nmax_tasks = 10\n",
        "[server]\nlistn = \"x\"\n",
    ])
}

pub(crate) fn worker_file(input: &[u8]) {
    with_text(input, fuzzing::worker_file);
}

pub(crate) fn worker_files() -> Vec<Vec<u8>> {
    texts([
        "[worker]\nworker_id = \"w1\"\nbackend = \"host\"\nslots = 4\n",
        "[worker]\nserver = \"http://127.0.0.1:8980\"\n\n[worker.docker]\nimage = \"debian\"\nulimits = [\"nofile=1024:2048\"]\n",
        "[worker.limits]\ncpu_cores = 1.5\nmemory_bytes = 1048576\n",
    ])
}

/// The `.gitignore` of an input directory.
pub(crate) fn ignore_file(input: &[u8]) {
    // A full disk is no finding.
    let Ok(directory) = seeds::directory() else { return };
    if fs::write(directory.path().join(".gitignore"), input).is_ok() {
        fuzzing::ignore_file(directory.path());
    }
}

pub(crate) fn ignore_files() -> Vec<Vec<u8>> {
    texts(["*.o\n/target/\n!kept.o\n", "# all\n**/node_modules/**\n[a-z]?.tmp\n\\#x\n{a,b}\n"])
}

pub(crate) fn command_line_value(input: &[u8]) {
    with_text(input, fuzzing::command_line_value);
}

pub(crate) fn command_line_values() -> Vec<Vec<u8>> {
    texts([
        "500ms",
        "1h30m",
        "1d",
        "2030-01-31T12:00:00Z",
        "1234",
        "localhost:8980",
        "[::]:8980",
        "@file",
        "{\"a\":1}",
        "info,server=debug",
    ])
}

pub(crate) fn submit_lines(input: &[u8]) {
    fuzzing::submit_lines(input);
}

pub(crate) fn line_files() -> Vec<Vec<u8>> {
    texts([
        "{\"queue\":\"mail\",\"payload\":1}\n\n{\"queue\":\"mail\",\"payload\":{\"to\":\"ada\"},\"dedupKey\":\"k\"}\n",
    ])
}

/// Lists of mounts, groups and users.
pub(crate) fn system_files(input: &[u8]) {
    with_text(input, worker::fuzzing::system_files);
}

pub(crate) fn system_lists() -> Vec<Vec<u8>> {
    texts([
        "36 35 0:31 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n",
        "4:memory:/user.slice\n0::/init.scope\n",
        "root:x:0:0:root:/root:/bin/sh\nbuild:x:1000:1000::/srv/build:/bin/sh\n",
    ])
}
