//! The names of blobs, and the names within directories.

use bazel_remote_apis::build::bazel::remote::execution::v2::{
    Directory, DirectoryNode, FileNode, SymlinkNode,
};
use bazel_remote_apis::google::bytestream::ReadRequest;
use prost::Message;
use tonic::{Code, Request};

use super::actions::Draft;
use super::client::Remote;
use super::content::{digest, random};
use crate::finding::must;
use crate::grpc::{done, refused};
use crate::{Check, Finding, Subject};

/// Where a call says which blob it is about, for whoever routes it.
const NAME_HEADER: &str = "build.bazel.remote.execution.v2.resource-name";

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["R9"], "what follows the size in the name of an upload is ignored", |s| {
        Box::pin(metadata(s))
    }),
    Check::new(&["R9"], "what names no blob is INVALID_ARGUMENT", |s| Box::pin(malformed(s))),
    Check::new(&["R11"], "a resource name in a header must be that of the message", |s| Box::pin(header(s))),
    Check::new(&["R12"], "a directory with a name that leads elsewhere is INVALID_ARGUMENT", |s| {
        Box::pin(directories(s))
    }),
];

async fn metadata(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let blob = random(2_000)?;
    let digest = digest(&blob);
    let name = format!("{}/src/main.c", remote.write_name(&digest)?);
    done("ByteStream.Write", remote.upload(&name, &blob).await.map(tonic::Response::new))?;
    must(remote.must_read(&remote.read_name(&digest)).await? == blob, || {
        "what was written with metadata in its name read as something else".into()
    })
}

async fn malformed(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let digest = remote.put_one(&random(30)?).await?;
    remote.must_read(&remote.read_name(&digest)).await?;
    let (prefix, hash) = (remote.prefix(), digest.hash);
    for name in [
        String::new(),
        format!("{prefix}blobs"),
        format!("{prefix}blobs/{hash}"),
        format!("{prefix}blobs/{hash}/thirty"),
        format!("{prefix}blobs/{hash}/-30"),
        format!("{prefix}blobs/{}/30", &hash[2..]),
        format!("{prefix}blob/{hash}/30"),
        format!("{prefix}compressed-blobs/{hash}/30"),
        format!("uploads/blobs/{hash}/30"),
    ] {
        let call = format!("Read of {name:?}");
        refused(&call, remote.read(&name, 0, 0).await, &[Code::InvalidArgument])?;
    }
    let answer = remote.upload(&format!("{prefix}blobs/{hash}/30"), &[0; 30]).await;
    refused("Write to a name without uploads", answer, &[Code::InvalidArgument])
}

async fn header(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let blob = random(100)?;
    let name = remote.read_name(&remote.put_one(&blob).await?);
    let other = remote.read_name(&digest(b"another blob"));
    let asked = |said: &str| -> Result<Request<ReadRequest>, Finding> {
        let asked = ReadRequest { resource_name: name.clone(), ..ReadRequest::default() };
        let mut asked = remote.scoped(asked);
        let said = said.parse().map_err(|_| Finding::Skipped("the name is not ASCII".into()))?;
        asked.metadata_mut().insert(NAME_HEADER, said);
        Ok(asked)
    };
    let answer = remote.read_as(asked(&name)?).await;
    must(answer.is_ok_and(|read| read == blob), || "Read with its own name in a header failed".into())?;
    let answer = remote.read_as(asked(&other)?).await;
    refused("Read with another name in a header", answer, &[Code::InvalidArgument])
}

async fn directories(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let file = remote.put_one(&random(10)?).await?;
    let below = remote.put_one(&Directory::default().encode_to_vec()).await?;
    for name in ["..", ".", "", "/etc/passwd", "a/b", "../../escaped", "nul\0"] {
        let name = name.to_owned();
        let as_file = Directory {
            files: vec![FileNode { name: name.clone(), digest: Some(file.clone()), ..FileNode::default() }],
            ..Directory::default()
        };
        let as_directory = Directory {
            directories: vec![DirectoryNode { name: name.clone(), digest: Some(below.clone()) }],
            ..Directory::default()
        };
        let as_symlink = Directory {
            symlinks: vec![SymlinkNode { name: name.clone(), target: "x".into(), ..SymlinkNode::default() }],
            ..Directory::default()
        };
        for root in [as_file, as_directory, as_symlink] {
            let action = remote.prepare(&Draft { root, ..Draft::of("true")? }).await?;
            let answer = remote.outcome(remote.ask(&action)).await?;
            refused(&format!("an input named {name:?}"), answer, &[Code::InvalidArgument])?;
        }
    }
    Ok(())
}
