//! The inputs of an action: they are looked up before the action is accepted, and all missing ones are named.

use bazel_remote_apis::build::bazel::remote::execution::v2::{
    Action, Command, Directory, DirectoryNode, FileNode,
};
use prost::Message;
use tonic::Code;
use tonic_types::StatusExt;

use crate::support::{Served, ask, digest};

fn file(name: &str, content: &[u8]) -> FileNode {
    FileNode { name: name.into(), digest: Some(digest(content)), ..FileNode::default() }
}

fn subjects(status: &tonic::Status) -> Vec<String> {
    let details = status.get_error_details();
    let violations = &details.precondition_failure().expect("a precondition failure").violations;
    assert!(violations.iter().all(|violation| violation.r#type == "MISSING"));
    violations.iter().map(|violation| violation.subject.clone()).collect()
}

#[tokio::test]
async fn r31_everything_that_is_missing_is_named_at_once() {
    let served = Served::start().await;
    let inner =
        Directory { files: vec![file("gone", b"gone"), file("here", b"here")], ..Directory::default() };
    let root = Directory {
        files: vec![file("also-gone", b"also gone")],
        directories: vec![
            DirectoryNode { name: "inner".into(), digest: Some(digest(&inner.encode_to_vec())) },
            DirectoryNode { name: "lost".into(), digest: Some(digest(b"a directory that is nowhere")) },
        ],
        ..Directory::default()
    };
    let command = Command { arguments: vec!["true".into()], ..Command::default() };
    let action = Action {
        command_digest: Some(digest(&command.encode_to_vec())),
        input_root_digest: Some(digest(&root.encode_to_vec())),
        ..Action::default()
    };
    let (root, inner, action) = (root.encode_to_vec(), inner.encode_to_vec(), action.encode_to_vec());
    served.upload(&[&root, &inner, b"here", &action]).await;
    let refused = served.execute(ask(&digest(&action))).await.err().expect("refused");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let mut named = subjects(&refused);
    named.sort();
    let mut expected: Vec<String> =
        [&command.encode_to_vec()[..], b"gone", b"also gone", b"a directory that is nowhere"]
            .iter()
            .map(|bytes| format!("blobs/{}/{}", digest(bytes).hash, bytes.len()))
            .collect();
    expected.sort();
    assert_eq!(named, expected);
    assert_eq!(served.tasks().await, 0);
    served.stop().await;
}

#[tokio::test]
async fn r31_an_action_that_is_not_there_is_named_itself() {
    let served = Served::start().await;
    let refused = served.execute(ask(&digest(b"no such action"))).await.err().expect("refused");
    assert_eq!(subjects(&refused), [format!("blobs/{}/14", digest(b"no such action").hash)]);
    served.stop().await;
}

/// R12: names that would lead out of the directory, or are out of order.
#[tokio::test]
async fn directories_with_names_that_lead_elsewhere_are_refused() {
    let served = Served::start().await;
    for names in [&[".."][..], &["."], &[""], &["a/b"], &["/etc"], &["a\0b"], &["b", "a"], &["a", "a"]] {
        let root =
            Directory { files: names.iter().map(|name| file(name, b"x")).collect(), ..Directory::default() };
        let command = Command { arguments: vec!["true".into()], ..Command::default() }.encode_to_vec();
        let root = root.encode_to_vec();
        let action = Action {
            command_digest: Some(digest(&command)),
            input_root_digest: Some(digest(&root)),
            ..Action::default()
        };
        let action = action.encode_to_vec();
        served.upload(&[&command, &root, &action, b"x"]).await;
        let refused = served.execute(ask(&digest(&action))).await.err().expect("refused");
        assert_eq!(refused.code(), Code::InvalidArgument, "{names:?}");
    }
    assert_eq!(served.tasks().await, 0);
    served.stop().await;
}

#[tokio::test]
async fn garbage_in_the_place_of_messages_is_refused() {
    let served = Served::start().await;
    let garbage = [0xff; 40];
    served.upload(&[&garbage]).await;
    let refused = served.execute(ask(&digest(&garbage))).await.err().expect("refused");
    assert_eq!(refused.code(), Code::InvalidArgument);
    let empty = served.action(&[]).await;
    assert_eq!(served.execute(ask(&empty)).await.err().expect("refused").code(), Code::InvalidArgument);
    served.stop().await;
}
