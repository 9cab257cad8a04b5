//! A full disk (D6), a store at its capacity, too many readers: refusals name the cause, stored content stays readable and
//! right, and the blobs that executions need stay (R31).

use bazel_remote_apis::build::bazel::remote::execution::v2::action_cache_client::ActionCacheClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    ActionResult, BatchReadBlobsRequest, BatchUpdateBlobsRequest, Digest, FindMissingBlobsRequest,
    UpdateActionResultRequest, batch_update_blobs_request::Request as Blob,
};
use bazel_remote_apis::google::bytestream::byte_stream_client::ByteStreamClient;
use bazel_remote_apis::google::bytestream::{ReadRequest, WriteRequest};
use tonic::Code;

use crate::small_disk::SmallDisk;
use crate::support::{Served, Setup, ask, digest, in_time};

/// Content that differs with its seed from the first bytes on.
fn sample(seed: u32, bytes: usize) -> Vec<u8> {
    let rest = (0..bytes as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8);
    seed.to_le_bytes().into_iter().chain(rest).take(bytes).collect()
}

async fn batch_update(served: &Served, content: &[u8]) -> i32 {
    let requests = vec![Blob { digest: Some(digest(content)), data: content.to_vec(), ..Blob::default() }];
    let request = BatchUpdateBlobsRequest { requests, ..Default::default() };
    let told = served.cas().await.batch_update_blobs(request).await.unwrap().into_inner();
    told.responses[0].status.as_ref().map_or(0, |status| status.code)
}

async fn stream(served: &Served, content: &[u8]) -> Result<(), tonic::Status> {
    let resource_name = format!("uploads/u/blobs/{}/{}", digest(content).hash, content.len());
    let pieces: Vec<_> = content
        .chunks(100_000)
        .enumerate()
        .map(|(n, piece)| WriteRequest {
            resource_name: resource_name.clone(),
            write_offset: (n * 100_000) as i64,
            finish_write: (n + 1) * 100_000 >= content.len(),
            data: piece.to_vec(),
        })
        .collect();
    ByteStreamClient::new(served.channel().await).write(tokio_stream::iter(pieces)).await.map(drop)
}

async fn missing(served: &Served, digests: Vec<Digest>) -> Vec<Digest> {
    let request = FindMissingBlobsRequest { blob_digests: digests, ..Default::default() };
    served.cas().await.find_missing_blobs(request).await.unwrap().into_inner().missing_blob_digests
}

async fn content_of(served: &Served, digest: &Digest) -> Vec<u8> {
    let request = BatchReadBlobsRequest { digests: vec![digest.clone()], ..Default::default() };
    let told = served.cas().await.batch_read_blobs(request).await.unwrap().into_inner();
    told.responses.into_iter().next().unwrap().data
}

#[tokio::test]
async fn d6_a_full_disk_refuses_writes_and_harms_nothing_else() {
    let disk = SmallDisk::mount(4 << 20);
    let store = blobs::Options { pack_bytes: 1 << 20, keep_free_bytes: 0, ..blobs::Options::default() };
    let content = Some(disk.path().join("store"));
    let served = Served::set_up(Setup { store, content, ..Setup::default() }).await;
    // Something of somebody else's that goes later.
    let filler = disk.path().join("filler");
    std::fs::write(&filler, vec![0; 1 << 20]).unwrap();
    let action = served.action(&["true"]).await;
    let mut stored = Vec::new();
    let mut refused = [0, 0];
    for n in 0..400 {
        let content = sample(n, if n % 2 == 0 { 30_000 } else { 2_000 });
        match batch_update(&served, &content).await {
            0 => stored.push(content),
            code if code == Code::ResourceExhausted as i32 => refused[n as usize % 2] += 1,
            code => panic!("{n}: {code}"),
        }
    }
    assert!(refused[0] > 20 && stored.len() > 20, "{refused:?} {}", stored.len());
    let large = sample(9_999, 1 << 20);
    assert_eq!(stream(&served, &large).await.unwrap_err().code(), Code::ResourceExhausted);
    // Fill what is left to the last byte, so that small things have no room either.
    let _ = std::fs::write(disk.path().join("rest"), vec![0; 8 << 20]);
    for n in 0..600 {
        batch_update(&served, &sample(50_000 + n, 1_000)).await;
    }
    assert_eq!(batch_update(&served, &sample(60_000, 2_000)).await, Code::ResourceExhausted as i32);
    let result = UpdateActionResultRequest {
        action_digest: Some(digest(b"some action")),
        action_result: Some(ActionResult { stdout_raw: sample(1, 50_000), ..Default::default() }),
        ..Default::default()
    };
    let mut cache = ActionCacheClient::new(served.channel().await);
    assert_eq!(cache.update_action_result(result).await.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(missing(&served, vec![digest(&large)]).await.len(), 1);
    for content in &stored {
        assert_eq!(content_of(&served, &digest(content)).await, *content, "reads go on");
    }
    // An execution needs no room in the store before it has outputs; its result is told although it cannot be cached.
    let waiting = served.execute(ask(&action)).await.unwrap();
    let mut worker = served.worker("w").await;
    let task = worker.lease().await;
    let stdout_raw = sample(2, 50_000);
    worker.complete(&task, ActionResult { stdout_raw: stdout_raw.clone(), ..Default::default() }).await;
    assert_eq!(waiting.response().await.result.unwrap().stdout_raw, stdout_raw);
    // With room again everything goes on, and nothing is corrupt after a restart.
    std::fs::remove_file(&filler).unwrap();
    let served = served.restart().await;
    for content in &stored {
        assert_eq!(content_of(&served, &digest(content)).await, *content);
    }
    assert_eq!(batch_update(&served, &sample(70_000, 2_000)).await, 0);
    drop(served.stop().await);
}

/// A store with room for a few blobs. What an execution needs stays from the moment that it is accepted, over a restart,
/// until it is over; what nobody needs makes room.
#[tokio::test]
async fn what_an_execution_needs_is_not_evicted_until_it_is_over() {
    const BLOB_BYTES: usize = 40_000;
    let store = blobs::Options {
        cap_bytes: 400_000,
        pack_bytes: 16 << 10,
        keep_free_bytes: 0,
        ..blobs::Options::default()
    };
    let served = Served::set_up(Setup { store, ..Setup::default() }).await;
    let input = sample(1, BLOB_BYTES);
    served.upload(&[&input]).await;
    let action = served.action_on(&["true"], &[("input", &input)]).await;
    let mut waiting = served.execute(ask(&action)).await.unwrap();
    let operation = waiting.name().await;
    let flood = async |served: &Served, seeds: std::ops::Range<u32>| {
        for seed in seeds {
            assert_eq!(batch_update(served, &sample(seed, BLOB_BYTES)).await, 0);
        }
    };
    flood(&served, 100..130).await;
    assert_eq!(
        missing(&served, vec![digest(&sample(100, BLOB_BYTES))]).await.len(),
        1,
        "others were evicted"
    );
    assert_eq!(missing(&served, vec![digest(&input), action.clone()]).await, []);
    drop(waiting);
    let served = served.restart().await;
    // What was on its way before is found again in the background; asking for the operation does not wait for it.
    let waiting = served.wait_execution(&operation).await.unwrap();
    in_time(served.pinned_again()).await;
    flood(&served, 200..230).await;
    assert_eq!(missing(&served, vec![digest(&input), action.clone()]).await, []);
    let mut worker = served.worker("w").await;
    let task = worker.lease().await;
    worker.complete(&task, ActionResult::default()).await;
    waiting.response().await;
    in_time(async {
        // Over, it may go: as soon as the server has heard of the end.
        for seed in 300.. {
            assert_eq!(batch_update(&served, &sample(seed, BLOB_BYTES)).await, 0);
            if !missing(&served, vec![digest(&input)]).await.is_empty() {
                return;
            }
            flood(&served, 1_000 * seed..1_000 * seed + 12).await;
        }
    })
    .await;
    served.stop().await;
}

/// More than fit into the status of a call are named in a message.
#[tokio::test]
async fn r31_thousands_of_missing_blobs_are_all_named() {
    let served = Served::start().await;
    let gone: Vec<(String, Vec<u8>)> = (0..5_000).map(|n| (format!("f{n:05}"), sample(n, 100))).collect();
    let files: Vec<(&str, &[u8])> =
        gone.iter().map(|(name, content)| (name.as_str(), &content[..])).collect();
    let action = served.action_on(&["true"], &files).await;
    let status = served.execute(ask(&action)).await.unwrap().response().await.status.unwrap();
    assert_eq!(status.code, Code::FailedPrecondition as i32);
    let named = crate::support::subjects(&status);
    assert_eq!(named.len(), gone.len());
    for (_, content) in &gone {
        assert!(named.contains(&format!("blobs/{}/{}", digest(content).hash, content.len())));
    }
    assert_eq!(served.tasks().await, 0);
    served.stop().await;
}

/// A reader that takes nothing holds its place for a while, and then it is cut off.
#[tokio::test]
async fn a5_readers_are_bounded_and_those_that_take_nothing_are_let_go() {
    let receiving =
        server::Receiving { max_stall: std::time::Duration::from_secs(5), ..server::Receiving::default() };
    let served = Served::set_up(Setup { receiving, max_reads: Some(1), ..Setup::default() }).await;
    let content = sample(3, 30 << 20);
    stream(&served, &content).await.unwrap();
    let request = || ReadRequest {
        resource_name: format!("blobs/{}/{}", digest(&content).hash, content.len()),
        ..ReadRequest::default()
    };
    let mut slow = ByteStreamClient::new(served.channel().await).read(request()).await.unwrap().into_inner();
    let refused = ByteStreamClient::new(served.channel().await).read(request()).await;
    assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
    in_time(async {
        // The place is free again once the first is let go.
        while ByteStreamClient::new(served.channel().await).read(request()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut received = 0;
    let ended = loop {
        match slow.message().await {
            Ok(Some(piece)) => received += piece.data.len(),
            Ok(None) => break None,
            Err(status) => break Some(status.code()),
        }
    };
    assert_eq!(ended, Some(Code::DeadlineExceeded), "it is told that not all has come");
    assert!(received < content.len());
    served.stop().await;
}
