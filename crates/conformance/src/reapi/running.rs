//! The run of an action: its program, its environment, its directory and its isolation.

use bazel_remote_apis::build::bazel::remote::execution::v2::command::EnvironmentVariable;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    ActionResult, Directory, DirectoryNode, ExecutedActionMetadata, FileNode,
};
use bazel_remote_apis::google::protobuf::Timestamp;
use prost::Message;
use tonic::Code;

use super::actions::Draft;
use super::client::Remote;
use super::content::{digest, random, random_hex};
use crate::finding::must;
use crate::grpc::refused;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["R45"], "a program is found by its path from the working directory, or in PATH", |s| {
        Box::pin(program(s))
    }),
    Check::new(&["R46"], "a command has the environment that it asks for", |s| Box::pin(environment(s))),
    Check::new(&["R46"], "a command runs in its working directory, which must be there", |s| {
        Box::pin(directory(s))
    }),
    Check::new(&["R51"], "files are executable as their nodes say, on the way in and out", |s| {
        Box::pin(modes(s))
    }),
    Check::new(&["R51"], "a node property that nobody knows is INVALID_ARGUMENT", |s| {
        Box::pin(properties(s))
    }),
    Check::new(&["R52"], "a result says who made it, and when each step began and ended", |s| {
        Box::pin(times(s))
    }),
    Check::new(&["R53"], "a result has both outputs, and says how the command ended", |s| Box::pin(said(s))),
    Check::new(&["R54"], "a command cannot damage the inputs of another", |s| Box::pin(damage(s))),
];

pub(super) fn file(name: &str, content: &[u8], is_executable: bool) -> FileNode {
    FileNode { name: name.to_owned(), digest: Some(digest(content)), is_executable, ..FileNode::default() }
}

/// The result of a draft, whatever its exit code.
pub(super) async fn ran(remote: &Remote<'_>, draft: &Draft) -> Result<ActionResult, Finding> {
    let action = remote.prepare(draft).await?;
    Ok(remote.run(remote.ask(&action)).await?.1)
}

async fn says(remote: &Remote<'_>, draft: &Draft, expected: &str) -> Result<(), Finding> {
    let result = ran(remote, draft).await?;
    let out = String::from_utf8_lossy(&remote.stdout(&result).await?).into_owned();
    must(result.exit_code == 0 && out.trim() == expected, || {
        format!("{:?} ended with {} and wrote {out:?}", draft.command.arguments, result.exit_code)
    })
}

async fn program(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let tool = b"#!/bin/sh\necho found";
    let below = Directory { files: vec![file("tool", tool, true)], ..Directory::default() }.encode_to_vec();
    remote.put(&[tool, &below]).await?;
    let mut draft = Draft::of("")?;
    draft.command.arguments = vec!["./tool".into()];
    draft.command.working_directory = "w".into();
    let node = DirectoryNode { name: "w".into(), digest: Some(digest(&below)) };
    draft.root = Directory { directories: vec![node], ..Directory::default() };
    says(&remote, &draft, "found").await?;
    let mut draft = Draft::of("")?;
    draft.command.arguments = ["sh", "-c", "echo found"].map(str::to_owned).to_vec();
    says(&remote, &draft, "found").await?;
    draft.command.environment_variables[0].value = "/no/such/directory".into();
    let action = remote.prepare(&draft).await?;
    match remote.outcome(remote.ask(&action)).await? {
        Err(_) => Ok(()),
        Ok(response) => must(response.result.is_some_and(|result| result.exit_code != 0), || {
            "a program was found although the command's PATH has no such directory".into()
        }),
    }
}

async fn environment(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let mark = random_hex(8)?;
    let mut draft = Draft::of("echo \"$MARK $PATH\"")?;
    let variable = EnvironmentVariable { name: "MARK".into(), value: mark.clone() };
    draft.command.environment_variables.insert(0, variable);
    says(&remote, &draft, &format!("{mark} /bin:/usr/bin")).await
}

async fn directory(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let empty = Directory::default().encode_to_vec();
    remote.put(&[&empty]).await?;
    let mut draft = Draft::of("basename \"$PWD\"")?;
    let node = |name: &str| DirectoryNode { name: name.to_owned(), digest: Some(digest(&empty)) };
    draft.root = Directory { directories: vec![node("here"), node("other")], ..Directory::default() };
    draft.command.working_directory = "here".into();
    says(&remote, &draft, "here").await?;
    draft.command.working_directory = "nowhere".into();
    let action = remote.prepare(&draft).await?;
    let answer = remote.outcome(remote.ask(&action)).await?;
    let codes = [Code::InvalidArgument, Code::FailedPrecondition];
    refused("a working directory that is not among the inputs", answer, &codes)
}

async fn modes(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let script = "test -x tool && test ! -x text && echo as said; echo > plain; echo > run; chmod +x run";
    let mut draft = Draft::of(script)?;
    remote.put(&[b"content"]).await?;
    draft.root = Directory {
        files: vec![file("text", b"content", false), file("tool", b"content", true)],
        ..<_>::default()
    };
    draft.command.output_paths = vec!["plain".into(), "run".into()];
    says(&remote, &draft, "as said").await?;
    let result = ran(&remote, &draft).await?;
    let answer: Vec<(&str, bool)> =
        result.output_files.iter().map(|file| (file.path.as_str(), file.is_executable)).collect();
    must(answer == [("plain", false), ("run", true)], || format!("the outputs were told as {answer:?}"))
}

async fn properties(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let mut draft = Draft::of("true")?;
    draft.command.output_node_properties = vec!["no-such-property".into()];
    let action = remote.prepare(&draft).await?;
    let answer = remote.outcome(remote.ask(&action)).await?;
    refused("a node property that nobody knows", answer, &[Code::InvalidArgument])
}

async fn times(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let result = ran(&remote, &Draft::of("true")?).await?;
    let answer: ExecutedActionMetadata =
        result.execution_metadata.ok_or_else(|| Finding::broken("the result has no execution_metadata"))?;
    must(!answer.worker.is_empty(), || "the result does not say which worker made it".into())?;
    let steps = [
        ("queued", &answer.queued_timestamp),
        ("worker_start", &answer.worker_start_timestamp),
        ("input_fetch_start", &answer.input_fetch_start_timestamp),
        ("input_fetch_completed", &answer.input_fetch_completed_timestamp),
        ("execution_start", &answer.execution_start_timestamp),
        ("execution_completed", &answer.execution_completed_timestamp),
        ("output_upload_start", &answer.output_upload_start_timestamp),
        ("output_upload_completed", &answer.output_upload_completed_timestamp),
        ("worker_completed", &answer.worker_completed_timestamp),
    ];
    let mut before: Option<(&str, (i64, i32))> = None;
    for (step, at) in steps {
        let Some(Timestamp { seconds, nanos }) = *at else {
            return Err(Finding::broken(format!("{step}_timestamp is missing")));
        };
        // The first is by the server's clock, which need not agree with the worker's.
        if let Some((earlier, then)) = before.filter(|(earlier, _)| *earlier != "queued") {
            must(then <= (seconds, nanos), || format!("{step} comes before {earlier}"))?;
        }
        before = Some((step, (seconds, nanos)));
    }
    Ok(())
}

async fn said(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let result = ran(&remote, &Draft::of("echo out; echo err >&2; exit 3")?).await?;
    let err = match (&result.stderr_digest, result.stderr_raw.is_empty()) {
        (Some(digest), true) => remote.get(digest).await?,
        _ => result.stderr_raw.clone(),
    };
    let out = remote.stdout(&result).await?;
    must(result.exit_code == 3 && out == b"out\n" && err == b"err\n", || {
        format!("`exit 3` ended with {}, wrote {out:?} and {err:?}", result.exit_code)
    })?;
    let killed = ran(&remote, &Draft::of("kill -9 $$")?).await?;
    must(killed.exit_code != 0, || "a command that a signal ended is told as one that succeeded".into())
}

async fn damage(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let content = random_hex(16)?.into_bytes();
    remote.put(&[&content]).await?;
    let root = Directory { files: vec![file("input", &content, false)], ..Directory::default() };
    let vandal = "chmod 666 input; echo broken > input; truncate -s 0 input; rm -f input; exit 0";
    let mut draft = Draft::of(vandal)?;
    draft.root = root.clone();
    for _ in 0..2 {
        draft.action.salt = random(16)?;
        // Whether it succeeds, and what it is told, is the server's policy.
        let action = remote.prepare(&draft).await?;
        let _ = remote.outcome(remote.ask(&action)).await?;
    }
    let mut draft = Draft::of("cat input")?;
    draft.root = root;
    says(&remote, &draft, &String::from_utf8_lossy(&content)).await
}
