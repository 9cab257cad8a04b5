//! The messages of executions: payloads, results, commands, directories, trees, digests and paths.

use blobs::{Digest, DigestFunction};
use execution::{
    Directory, ExecutionPayload, RelativePath, action, command, decode_proto, digest, result, stays_within,
    tree_directories,
};
use prost::Message;

use bazel_remote_apis::build::bazel::remote::execution::v2 as reapi;

use crate::seeds::{texts, with_text};

const HASH: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
/// Few enough that the limit is met.
const MAX_ENTRIES: usize = 8;

/// The payload of a task, which the server wrote and any client may write.
pub(crate) fn payload(input: &[u8]) {
    let Ok(payload) = ExecutionPayload::decode(input) else { return };
    let _ = payload.action();
    let again = payload.encode().and_then(|encoded| ExecutionPayload::decode(&encoded));
    assert!(again.is_ok_and(|again| again == payload), "a payload changes on its way");
}

pub(crate) fn payloads() -> Vec<Vec<u8>> {
    texts([
        format!(
            r#"{{"operationName":"operations/x-1","actionDigest":"{HASH}/5","digestFunction":"SHA256"}}"#
        ),
        format!(
            r#"{{"actionDigest":"{HASH}/5","doNotCache":true,"timeoutMs":60000,"origin":{{"tool":"bazel 7"}}}}"#
        ),
    ])
}

/// The result of a task as it is recorded.
pub(crate) fn recorded_result(input: &[u8]) {
    let Ok(decoded) = result::decode(input) else { return };
    let again = result::encode(&decoded).and_then(|encoded| result::decode(&encoded));
    assert!(again.is_ok_and(|again| again == decoded), "a result changes on its way");
}

pub(crate) fn recorded_results() -> Vec<Vec<u8>> {
    let file = reapi::OutputFile { path: "out".into(), digest: proto_digest(), ..Default::default() };
    let result = reapi::ActionResult { output_files: vec![file], exit_code: 1, ..Default::default() };
    result::encode(&result).into_iter().collect()
}

/// An action and its command.
pub(crate) fn action_and_command(input: &[u8]) {
    if let Ok(action) = reapi::Action::decode(input) {
        let _ = (action::timeout(&action), action::platform(&action, &reapi::Command::default()));
    }
    let Ok(decoded) = reapi::Command::decode(input) else { return };
    if command::check(&decoded).is_ok() {
        assert!(!decoded.arguments.is_empty(), "a command has a program");
        let directory = &decoded.working_directory;
        let depth = directory.split('/').filter(|name| !name.is_empty()).count();
        for (path, depth) in decoded.output_paths.iter().map(|path| (path, depth)).chain([(directory, 0)]) {
            assert!(stays_within(path, depth), "{path:?} leads out of the input root");
        }
    }
}

pub(crate) fn actions_and_commands() -> Vec<Vec<u8>> {
    let variable = reapi::command::EnvironmentVariable { name: "LANG".into(), value: "C".into() };
    let command = reapi::Command {
        arguments: vec!["cc".into(), "-c".into(), "a.c".into()],
        environment_variables: vec![variable],
        output_paths: vec!["out/a.o".into(), "../a.d".into()],
        working_directory: "src".into(),
        ..Default::default()
    };
    let action = reapi::Action {
        command_digest: proto_digest(),
        input_root_digest: proto_digest(),
        do_not_cache: true,
        ..Default::default()
    };
    vec![command.encode_to_vec(), action.encode_to_vec()]
}

/// A directory as the server checks it and as a worker lays it out.
pub(crate) fn directory(input: &[u8]) {
    let named = Digest::of(DigestFunction::Sha256, input);
    if let Ok(message) = decode_proto(&named, input, MAX_ENTRIES) {
        let entries = message.files.len() + message.directories.len() + message.symlinks.len();
        assert!(entries <= MAX_ENTRIES, "{entries} entries pass");
    }
    let Ok(directory) = Directory::decode(&named, input) else { return };
    let files = directory.files.iter().map(|file| &file.name);
    let names: Vec<_> = files.chain(directory.directories.iter().map(|(name, _)| name)).collect();
    assert!(
        names.iter().all(|name| RelativePath::parse(name).is_ok_and(|path| path.components().len() == 1))
    );
    assert!(directory.files.is_sorted_by(|one, other| one.name < other.name), "no name is there twice");
}

pub(crate) fn directories() -> Vec<Vec<u8>> {
    vec![sample_directory("hello.c").encode_to_vec(), sample_directory("a").encode_to_vec()]
}

/// A Tree message, whose directories are found without decoding it.
pub(crate) fn tree(input: &[u8]) {
    let named = Digest::of(DigestFunction::Sha256, input);
    let found: Result<Vec<_>, _> = tree_directories(&named, input).collect();
    let bytes: usize = found.iter().flatten().map(|directory| directory.encoded.len()).sum();
    assert!(bytes <= input.len(), "a tree does not grow");
    if let Ok(tree) = reapi::Tree::decode(input) {
        let Ok(found) = found else { panic!("a tree that can be decoded has directories that can be found") };
        let children = found.iter().filter(|directory| !directory.is_root).count();
        assert_eq!(children, tree.children.len());
        assert_eq!(found.len() > children, tree.root.is_some());
    }
}

pub(crate) fn trees() -> Vec<Vec<u8>> {
    let child = sample_directory("a");
    let digest = Digest::of(DigestFunction::Sha256, &child.encode_to_vec());
    let below = reapi::DirectoryNode { name: "sub".into(), digest: Some(digest::to_proto(&digest)) };
    let root = reapi::Directory { directories: vec![below], ..sample_directory("hello.c") };
    vec![reapi::Tree { root: Some(root), children: vec![child] }.encode_to_vec()]
}

/// A digest as text and as a message. There is one way to write it.
pub(crate) fn digest_text(input: &[u8]) {
    with_text(input, |text| {
        for function in DigestFunction::ALL {
            if let Ok(digest) = Digest::parse(function, text) {
                assert_eq!(digest.to_string(), text);
                assert_eq!(
                    digest::from_proto(Some(&digest::to_proto(&digest)), function, "it").ok(),
                    Some(digest)
                );
            }
        }
        let _ = digest::function_from_name(text);
    });
}

pub(crate) fn digest_texts() -> Vec<Vec<u8>> {
    texts([format!("{HASH}/5"), format!("{HASH}/0"), "BLAKE3".to_owned()])
}

/// A path of a command or an output. It cannot lead out of its directory.
pub(crate) fn path(input: &[u8]) {
    with_text(input, |text| {
        if let Ok(path) = RelativePath::parse(text) {
            assert_eq!(path.to_string(), text);
            assert!(stays_within(text, 0) && !text.starts_with('/') && !text.contains('\0'), "{text:?}");
        }
    });
}

pub(crate) fn paths() -> Vec<Vec<u8>> {
    texts(["bazel-out/k8/bin/a.o", "a", "a/../b", "./x", "/etc/passwd"])
}

fn proto_digest() -> Option<reapi::Digest> {
    Some(reapi::Digest { hash: HASH.into(), size_bytes: 5 })
}

fn sample_directory(name: &str) -> reapi::Directory {
    let file = reapi::FileNode {
        name: name.into(),
        digest: proto_digest(),
        is_executable: true,
        ..Default::default()
    };
    let link = reapi::SymlinkNode { name: "link".into(), target: "../x".into(), ..Default::default() };
    reapi::Directory { files: vec![file], symlinks: vec![link], ..Default::default() }
}
