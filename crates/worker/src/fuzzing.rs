//! The decoders of what a worker gets from its server and reads from its machine, for the fuzz targets. Nothing else may
//! use them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use blobs::{Digest, DigestFunction};
use execution::reapi::Tree;
use execution::{Directory, stays_within};
use prost::Message;
use wire::grpc::LeasedTask;

use crate::Resources;
use crate::agent::held_lease::HeldLease;
use crate::cache::index::{file_name, key};
use crate::command::payload::Payload;
use crate::executors::cgroups::mounts::Mounts;
use crate::executors::users::User;
use crate::inputs::tree::TreeBuilder;

const NOW: Duration = Duration::from_secs(1_000);
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
/// Heartbeats that are closer together are a load and no use.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Takes a leased task as it came from the server. Its heartbeats have a distance, and its lease does not end in the past.
pub fn leased_task(bytes: &[u8]) {
    let Ok(task) = LeasedTask::decode(bytes) else { return };
    let held = HeldLease::new(&task, None, NOW, DEFAULT_INTERVAL);
    assert!(held.heartbeat_interval >= MIN_INTERVAL, "heartbeats every {:?}", held.heartbeat_interval);
    assert!(held.clock.valid_until() >= NOW, "a lease ends at {:?}", held.clock.valid_until());
    let _ = Resources::parse(&task.resources_json);
}

/// Decodes the payload of a command. What is accepted can be given to a new process.
pub fn command_payload(json: &[u8]) {
    let Ok(payload) = Payload::decode(json) else { return };
    assert!(payload.command.first().is_some_and(|program| !program.is_empty()), "there is a program");
    let texts = payload.command.iter().chain(payload.env.keys()).chain(payload.env.values());
    assert!(texts.into_iter().all(|text| !text.contains('\0')), "no text has a NUL");
}

/// Parses the resources of a task. No sum of them is negative.
pub fn resources(json: &[u8]) {
    let Ok(resources) = Resources::parse(json) else { return };
    let sum = resources.plus(&resources);
    assert!(resources.cpu_cores >= 0.0 && sum.cpu_cores >= resources.cpu_cores);
    assert!(sum.memory_bytes >= resources.memory_bytes && sum.disk_bytes >= resources.disk_bytes);
}

/// Builds an input tree from the directories of a Tree message. An accepted tree has no link out of its root.
pub fn input_tree(bytes: &[u8]) {
    let Ok(tree) = Tree::decode(bytes) else { return };
    let root = tree.root.unwrap_or_default().encode_to_vec();
    let encoded = tree.children.iter().map(Message::encode_to_vec).chain([root.clone()]);
    let named: HashMap<_, _> =
        encoded.map(|bytes| (Digest::of(DigestFunction::Sha256, &bytes), bytes)).collect();
    let mut builder = TreeBuilder::new(Digest::of(DigestFunction::Sha256, &root), false);
    let mut depth = 0;
    while let Ok(Some(level)) = builder.next_level() {
        for digest in level {
            let decoded = named.get(&digest).and_then(|bytes| Directory::decode(&digest, bytes).ok());
            let Some(directory) = decoded.map(Arc::new) else { return };
            if builder.add(digest, directory.clone()).is_err() {
                return;
            }
            assert!(directory.symlinks.iter().all(|(_, target)| stays_within(target, depth)));
        }
        depth += 1;
    }
    if let Ok(tree) = builder.finish() {
        assert!(tree.root().is_some() && tree.files().is_sorted(), "a tree is whole");
    }
}

/// Reads the name of a file in the content cache. A name that is accepted is the one that the cache gives.
pub fn cache_file_name(name: &str) {
    if let Some(key) = key(name) {
        assert!(file_name(&key).ends_with(&format!("/{name}")), "{name:?} has one spelling");
    }
}

/// Reads the lists of mounts, groups and users of the machine.
pub fn system_files(text: &str) {
    let _ = Mounts::parse(text, text);
    for named in ["build", "1000", "1000:1000"] {
        let _ = User::parse(named, text);
    }
    let _ = User::parse(text, "");
}
