//! Refusals and failures of executions.

use std::collections::BTreeSet;

use bazel_remote_apis::build::bazel::remote::execution::v2::{
    Action, Digest, Directory, DirectoryNode, FileNode,
};
use prost::Message;
use tonic::Code;
use tonic_types::StatusExt;

use super::actions::Draft;
use super::client::Remote;
use super::content::{digest, random, unknown_digest};
use crate::finding::must;
use crate::grpc::refused;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        &["R29", "R30"],
        "a request that is no request is refused before there is an operation",
        |s| Box::pin(malformed(s)),
    ),
    Check::new(&["R29"], "a command that fails is a result, and no error", |s| Box::pin(failed(s))),
    Check::new(&["R30"], "what is no action, no command and no directory is INVALID_ARGUMENT", |s| {
        Box::pin(garbage(s))
    }),
    Check::new(&["R30", "R31"], "an action that is missing is named", |s| Box::pin(no_action(s))),
    Check::new(&["R31"], "all blobs that are missing are named at once, each once", |s| Box::pin(missing(s))),
];

async fn malformed(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let bad = |hash: &str, size_bytes: i64| Digest { hash: hash.to_owned(), size_bytes };
    for action in [None, Some(bad("not-a-hash", 10)), Some(bad(&digest(b"x").hash, -1))] {
        let mut asked = remote.ask(&digest(b""));
        asked.action_digest = action.clone();
        let answer = remote.execute(asked).await.map(|_| ());
        refused(&format!("Execute of {action:?}"), answer, &[Code::InvalidArgument])?;
    }
    Ok(())
}

async fn failed(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let action = remote.action("echo said; exit 7").await?;
    // `run` refuses an operation with an error, and a response whose status is not OK.
    let (_, result) = remote.run(remote.ask(&action)).await?;
    let said = remote.stdout(&result).await?;
    must(result.exit_code == 7 && said == b"said\n", || {
        format!("`exit 7` ended with {} and wrote {said:?}", result.exit_code)
    })
}

async fn garbage(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    // No message of Protocol Buffers begins with a field of the number zero.
    let mut garbage = random(50)?;
    garbage[0] = 0;
    let none = remote.put_one(&garbage).await?;
    let draft = Draft::of("true")?;
    let [command, root, _] = draft.messages();
    remote.put(&[&command, &root]).await?;
    let action = |command: Digest, root: Digest| Action {
        command_digest: Some(command),
        input_root_digest: Some(root),
        ..draft.action.clone()
    };
    let no_command = remote.put_one(&action(none.clone(), digest(&root)).encode_to_vec()).await?;
    let no_root = remote.put_one(&action(digest(&command), none.clone()).encode_to_vec()).await?;
    let mut idle = draft.clone();
    idle.command.arguments.clear();
    let nothing = remote.prepare(&idle).await?;
    for (what, action) in [
        ("the action is garbage", none),
        ("the command is garbage", no_command),
        ("the input root is garbage", no_root),
        ("there are no arguments", nothing),
    ] {
        let answer = remote.outcome(remote.ask(&action)).await?;
        refused(&format!("Execute where {what}"), answer, &[Code::InvalidArgument])?;
    }
    Ok(())
}

/// The subjects of the violations that say that something is missing.
async fn named(remote: &Remote<'_>, action: &Digest) -> Result<Vec<String>, Finding> {
    let Err(status) = remote.outcome(remote.ask(action)).await? else {
        return Err(Finding::broken("an action whose inputs are missing was executed"));
    };
    let details = status.get_error_details();
    let violations = details.precondition_failure().map(|failure| failure.violations.clone());
    refused("Execute with missing inputs", Err::<(), _>(status), &[Code::FailedPrecondition])?;
    let violations = violations
        .ok_or_else(|| Finding::broken("the refusal has no PreconditionFailure among its details"))?;
    must(violations.iter().all(|one| one.r#type == "MISSING"), || {
        format!("a violation is not of the type MISSING: {violations:?}")
    })?;
    Ok(violations.into_iter().map(|one| one.subject).collect())
}

fn subject_of(digest: &Digest) -> String {
    format!("blobs/{}/{}", digest.hash, digest.size_bytes)
}

async fn no_action(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let action = unknown_digest()?;
    let answer = named(&remote, &action).await?;
    must(answer == [subject_of(&action)], || format!("the action is missing, and {answer:?} was named"))
}

async fn missing(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let (file, other, below) = (unknown_digest()?, unknown_digest()?, unknown_digest()?);
    let node = |name: &str, digest: &Digest| FileNode {
        name: name.to_owned(),
        digest: Some(digest.clone()),
        ..FileNode::default()
    };
    let child = Directory { files: vec![node("x", &other), node("y", &file)], ..Directory::default() };
    let child = remote.put_one(&child.encode_to_vec()).await?;
    let directory =
        |name: &str, digest: &Digest| DirectoryNode { name: name.to_owned(), digest: Some(digest.clone()) };
    let mut draft = Draft::of("true")?;
    draft.command.working_directory = format!("w{}", &file.hash[..8]);
    draft.root = Directory {
        files: vec![node("a", &file)],
        directories: vec![directory("b", &child), directory("c", &below)],
        ..Directory::default()
    };
    let [command, root, action] = draft.messages();
    remote.put(&[&root, &action]).await?;
    let answer = named(&remote, &digest(&action)).await?;
    let expected: BTreeSet<String> = [digest(&command), file, other, below].iter().map(subject_of).collect();
    let distinct: BTreeSet<String> = answer.iter().cloned().collect();
    must(distinct == expected && answer.len() == expected.len(), || {
        format!("a command, a directory and two files are missing, and {answer:?} was named")
    })
}
