//! ActionCache: results by the digest of their action.

use bazel_remote_apis::build::bazel::remote::execution::v2::{
    ActionResult, Digest, Directory, FileNode, GetActionResultRequest, OutputDirectory, OutputFile, Tree,
    UpdateActionResultRequest,
};
use prost::Message;
use tonic::{Code, Response};

use super::actions::Draft;
use super::client::Remote;
use super::content::{random, unknown_digest};
use crate::finding::must;
use crate::grpc::{done, refused};
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["R26"], "an action without a result is NOT_FOUND", |s| Box::pin(absent(s))),
    Check::new(&["R26"], "a result is NOT_FOUND when anything that it names is missing", |s| {
        Box::pin(incomplete(s))
    }),
    Check::new(&["R26"], "small outputs come within the result where that is asked for", |s| {
        Box::pin(inlined(s))
    }),
    Check::new(
        &["R27"],
        "a result can be uploaded and is given back, unless the capabilities forbid it",
        |s| Box::pin(uploaded(s)),
    ),
    Check::new(&["R27"], "an upload without a result or a digest is INVALID_ARGUMENT", |s| {
        Box::pin(malformed(s))
    }),
];

async fn can_upload(remote: &Remote<'_>) -> Result<bool, Finding> {
    let answer = remote.cache().await?.action_cache_update_capabilities;
    Ok(answer.is_some_and(|answer| answer.update_enabled))
}

async fn needs_uploads(remote: &Remote<'_>) -> Result<(), Finding> {
    if can_upload(remote).await? {
        Ok(())
    } else {
        Err(Finding::Skipped("the server announces update_enabled = false".into()))
    }
}

fn file(path: &str, digest: &Digest) -> OutputFile {
    OutputFile { path: path.to_owned(), digest: Some(digest.clone()), ..OutputFile::default() }
}

async fn absent(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    refused("GetActionResult", remote.cached(&unknown_digest()?).await, &[Code::NotFound])
}

async fn incomplete(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    needs_uploads(&remote).await?;
    let (here, gone) = (remote.put_one(&random(100)?).await?, unknown_digest()?);
    let tree = |of: &Digest| {
        let file = FileNode { name: "f".into(), digest: Some(of.clone()), ..FileNode::default() };
        let child = Directory { files: vec![file], ..Directory::default() };
        Tree { root: Some(Directory::default()), children: vec![child] }.encode_to_vec()
    };
    let directory = |tree: &Digest| OutputDirectory {
        path: "d".into(),
        tree_digest: Some(tree.clone()),
        ..OutputDirectory::default()
    };
    let none = ActionResult::default();
    let broken_tree = remote.put_one(&tree(&gone)).await?;
    for (what, result) in [
        ("an output file", ActionResult { output_files: vec![file("f", &gone)], ..none.clone() }),
        ("the standard output", ActionResult { stdout_digest: Some(gone.clone()), ..none.clone() }),
        ("the standard error", ActionResult { stderr_digest: Some(gone.clone()), ..none.clone() }),
        ("a tree", ActionResult { output_directories: vec![directory(&gone)], ..none.clone() }),
        (
            "a file of a tree",
            ActionResult { output_directories: vec![directory(&broken_tree)], ..none.clone() },
        ),
    ] {
        let action = remote.action("true").await?;
        match remote.cache_result(&action, &result).await {
            // A server may look before it takes a result.
            Err(status) if matches!(status.code(), Code::FailedPrecondition | Code::InvalidArgument) => {}
            answer => {
                done("UpdateActionResult", answer.map(Response::new))?;
            }
        }
        let call = format!("GetActionResult while {what} is missing");
        refused(&call, remote.cached(&action).await, &[Code::NotFound])?;
    }
    let action = remote.action("true").await?;
    let whole = remote.put_one(&tree(&here)).await?;
    let result = ActionResult {
        output_files: vec![file("f", &here)],
        output_directories: vec![directory(&whole)],
        ..none
    };
    done("UpdateActionResult", remote.cache_result(&action, &result).await.map(Response::new))?;
    done("GetActionResult", remote.cached(&action).await.map(Response::new)).map(|_| ())
}

async fn inlined(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    needs_uploads(&remote).await?;
    let (out, err, content) = (random(100)?, random(100)?, random(100)?);
    let digests = remote.put(&[&out, &err, &content]).await?;
    let result = ActionResult {
        stdout_digest: Some(digests[0].clone()),
        stderr_digest: Some(digests[1].clone()),
        output_files: vec![file("f", &digests[2])],
        ..ActionResult::default()
    };
    let action = remote.action("true").await?;
    done("UpdateActionResult", remote.cache_result(&action, &result).await.map(Response::new))?;
    let asked = GetActionResultRequest {
        instance_name: remote.instance(),
        action_digest: Some(action),
        inline_stdout: true,
        inline_stderr: true,
        inline_output_files: vec!["f".into()],
        ..GetActionResultRequest::default()
    };
    let answer =
        done("GetActionResult", remote.action_cache().get_action_result(remote.scoped(asked)).await)?;
    must(answer.stdout_raw == out && answer.stderr_raw == err, || {
        "the standard output and error of 100 bytes should be within the result".into()
    })?;
    must(answer.output_files.first().is_some_and(|file| file.contents == content), || {
        "an output file of 100 bytes should be within the result".into()
    })
}

async fn uploaded(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let can_upload = can_upload(&remote).await?;
    let blob = remote.put_one(&random(100)?).await?;
    let result = ActionResult { output_files: vec![file("f", &blob)], ..ActionResult::default() };
    let draft = Draft::of("true")?;
    let action = remote.prepare(&draft).await?;
    let answer = remote.cache_result(&action, &result).await;
    if !can_upload {
        return refused("UpdateActionResult", answer, &[Code::PermissionDenied]);
    }
    done("UpdateActionResult", answer.map(Response::new))?;
    let answer = done("GetActionResult", remote.cached(&action).await.map(Response::new))?;
    must(answer.output_files == result.output_files && answer.exit_code == 0, || {
        format!("another result came back: {answer:?}")
    })
}

async fn malformed(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    needs_uploads(&remote).await?;
    let action = remote.action("true").await?;
    let nothing = UpdateActionResultRequest {
        instance_name: remote.instance(),
        action_digest: Some(action),
        ..UpdateActionResultRequest::default()
    };
    let nobody = UpdateActionResultRequest {
        instance_name: remote.instance(),
        action_result: Some(ActionResult::default()),
        ..UpdateActionResultRequest::default()
    };
    for (what, asked) in [("a result", nothing), ("a digest", nobody)] {
        let answer = remote.action_cache().update_action_result(remote.scoped(asked)).await;
        refused(&format!("UpdateActionResult without {what}"), answer, &[Code::InvalidArgument])?;
    }
    Ok(())
}
