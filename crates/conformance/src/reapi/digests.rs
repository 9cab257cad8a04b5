//! Digests: what is none, what lies, and which function computes them.

use bazel_remote_apis::build::bazel::remote::execution::v2::Digest;
use bazel_remote_apis::build::bazel::remote::execution::v2::digest_function::Value as Function;
use tonic::Code;

use super::actions::Draft;
use super::client::{Remote, uuid};
use super::content::{KNOWN, digest, digest_by, random};
use crate::finding::must;
use crate::grpc::{done, refused};
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["R6"], "what is no hash, or no size, is INVALID_ARGUMENT", |s| Box::pin(malformed(s))),
    Check::new(&["R6"], "a right hash with a wrong size is refused, and is the name of nothing", |s| {
        Box::pin(wrong_size(s))
    }),
    Check::new(&["R6"], "content that is not what its digest says is refused, and never seen", |s| {
        Box::pin(wrong_content(s))
    }),
    Check::new(&["R7"], "each announced digest function is served, also as part of a name", |s| {
        Box::pin(functions(s))
    }),
    Check::new(&["R7"], "a digest function that is not announced is INVALID_ARGUMENT", |s| {
        Box::pin(unknown_function(s))
    }),
    Check::new(&["R8"], "a digest by one function is nothing by another", |s| Box::pin(apart(s))),
    Check::new(&["R8"], "the result of an action has digests by the action's function", |s| {
        Box::pin(result_function(s))
    }),
    Check::new(&["R10"], "the empty blob is always there, by every function", |s| Box::pin(empty(s))),
];

async fn malformed(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.missing(&[]).await?;
    let good = digest(&random(20)?);
    let hash = good.hash.clone();
    let of = |hash: String, size_bytes: i64| Digest { hash, size_bytes };
    for bad in [
        of(format!("ABCDEF{}", &hash[6..]), 20),
        of(hash[1..].to_owned(), 20),
        of(format!("{hash}0"), 20),
        of(format!("{}g", &hash[1..]), 20),
        of(String::new(), 20),
        of(format!("../{}", &hash[3..]), 20),
        of(hash.clone(), -1),
    ] {
        let call = format!("FindMissingBlobs of {}/{}", bad.hash, bad.size_bytes);
        refused(&call, remote.try_missing(&[bad], Function::Unknown).await, &[Code::InvalidArgument])?;
    }
    Ok(())
}

async fn wrong_size(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let blob = random(1_000)?;
    let good = digest(&blob);
    for size_bytes in [999, 1_001, 0] {
        let lie = Digest { size_bytes, ..good.clone() };
        let code = remote.put_code(lie.clone(), blob.clone(), Function::Unknown).await;
        must(code == Code::InvalidArgument, || {
            format!("BatchUpdateBlobs of 1000 bytes as {size_bytes} answered {code:?}")
        })?;
        let answer = remote.upload(&remote.write_name(&lie)?, &blob).await;
        refused(&format!("Write of 1000 bytes as {size_bytes}"), answer, &[Code::InvalidArgument])?;
    }
    remote.must_be_missing(&good, "it was only ever uploaded with a wrong size").await?;
    remote.put_one(&blob).await?;
    let lie = Digest { size_bytes: 999, ..good };
    let answer = remote.read(&remote.read_name(&lie), 0, 0).await;
    refused("Read of a right hash with a wrong size", answer, &[Code::NotFound, Code::InvalidArgument])
}

async fn wrong_content(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let (named, sent) = (random(300_000)?, random(300_000)?);
    let lie = digest(&named);
    let code = remote.put_code(lie.clone(), sent.clone(), Function::Unknown).await;
    must(code == Code::InvalidArgument, || format!("BatchUpdateBlobs of other content answered {code:?}"))?;
    refused(
        "Write of other content",
        remote.upload(&remote.write_name(&lie)?, &sent).await,
        &[Code::InvalidArgument],
    )?;
    remote.must_be_missing(&lie, "only other content was ever uploaded in its name").await?;
    let answer = remote.read(&remote.read_name(&lie), 0, 0).await;
    refused("Read of what was refused", answer, &[Code::NotFound])
}

/// The announced functions that the suite can compute.
async fn announced(remote: &Remote<'_>) -> Result<Vec<Function>, Finding> {
    let answer = remote.cache().await?.digest_functions;
    Ok(KNOWN.into_iter().filter(|function| answer.contains(&(*function as i32))).collect())
}

/// As part of a name; SHA-256 is told by its length.
fn in_path(function: Function) -> String {
    match function {
        Function::Sha256 => String::new(),
        other => format!("{}/", other.as_str_name().to_lowercase()),
    }
}

async fn functions(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let functions = announced(&remote).await?;
    if functions.is_empty() {
        return Err(Finding::Skipped("the server announces none of SHA256 and BLAKE3".into()));
    }
    for function in functions {
        let (one, other) = (random(500)?, random(90_000)?);
        let digest = digest_by(function, &one);
        let code = remote.put_code(digest.clone(), one.clone(), function).await;
        must(code == Code::Ok, || format!("BatchUpdateBlobs with {function:?} answered {code:?}"))?;
        let missing =
            done("FindMissingBlobs", remote.try_missing(std::slice::from_ref(&digest), function).await)?;
        must(missing.is_empty(), || format!("a blob uploaded with {function:?} is missing"))?;
        let of_path = in_path(function);
        let name = format!("{}blobs/{of_path}{}/{}", remote.prefix(), digest.hash, digest.size_bytes);
        must(remote.must_read(&name).await? == one, || format!("{name} read as something else"))?;
        let digest = digest_by(function, &other);
        let (hash, size) = (&digest.hash, digest.size_bytes);
        let name = format!("{}uploads/{}/blobs/{of_path}{hash}/{size}", remote.prefix(), uuid()?);
        done("ByteStream.Write", remote.upload(&name, &other).await.map(tonic::Response::new))?;
        let missing = done("FindMissingBlobs", remote.try_missing(&[digest], function).await)?;
        must(missing.is_empty(), || format!("what was written as {name} is missing"))?;
    }
    Ok(())
}

async fn unknown_function(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let answer = remote.cache().await?.digest_functions;
    let strange = [Function::Md5, Function::Sha1, Function::Sha512, Function::Sha256tree];
    for function in strange.into_iter().filter(|function| !answer.contains(&(*function as i32))) {
        let asked = remote.try_missing(&[digest(b"x")], function).await;
        refused(&format!("FindMissingBlobs with {function:?}"), asked, &[Code::InvalidArgument])?;
    }
    Ok(())
}

async fn apart(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    if announced(&remote).await?.len() < 2 {
        return Err(Finding::Skipped("the server announces only one of SHA256 and BLAKE3".into()));
    }
    let blob = random(400)?;
    let by_sha = remote.put_one(&blob).await?;
    let missing =
        done("FindMissingBlobs", remote.try_missing(std::slice::from_ref(&by_sha), Function::Blake3).await)?;
    must(missing.len() == 1, || "a SHA256 digest was found as a BLAKE3 digest".into())?;
    let code = remote.put_code(by_sha, blob, Function::Blake3).await;
    must(code == Code::InvalidArgument, || {
        format!("BatchUpdateBlobs with BLAKE3 and a SHA256 digest answered {code:?}")
    })
}

async fn result_function(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    for function in announced(&remote).await? {
        let mut draft = Draft::of("printf words")?;
        let of = |bytes: &[u8]| digest_by(function, bytes);
        let [command, root, _] = draft.messages();
        draft.action.command_digest = Some(of(&command));
        draft.action.input_root_digest = Some(of(&root));
        let action = prost::Message::encode_to_vec(&draft.action);
        let blobs = [command, root, action.clone()].map(|bytes| (of(&bytes), bytes)).to_vec();
        done("BatchUpdateBlobs", remote.try_put(blobs, function).await)?;
        let mut asked = remote.ask(&of(&action));
        asked.digest_function = function.into();
        let (_, result) = remote.run(asked).await?;
        let answer = result.stdout_digest.unwrap_or_default();
        must(answer == of(b"words") || result.stdout_raw == b"words", || {
            format!("the standard output of an action with {function:?} has the digest {}", answer.hash)
        })?;
    }
    Ok(())
}

async fn empty(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    for function in announced(&remote).await? {
        let nothing = digest_by(function, b"");
        let missing =
            done("FindMissingBlobs", remote.try_missing(std::slice::from_ref(&nothing), function).await)?;
        must(missing.is_empty(), || format!("the empty blob is missing with {function:?}"))?;
        let name = format!("{}blobs/{}{}/0", remote.prefix(), in_path(function), nothing.hash);
        must(remote.must_read(&name).await?.is_empty(), || format!("{name} is not empty"))?;
    }
    must(remote.get(&digest(b"")).await?.is_empty(), || "the empty blob is not empty".into())
}
