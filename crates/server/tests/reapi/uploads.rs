//! Uploads that lie, stop, race or come back (I15, I16, N16, A7, A8, R25): the digest decides, and nothing is left over.

use std::time::Instant;

use bazel_remote_apis::google::bytestream::byte_stream_client::ByteStreamClient;
use bazel_remote_apis::google::bytestream::{
    QueryWriteStatusRequest, QueryWriteStatusResponse, ReadRequest, WriteRequest, WriteResponse,
};
use blobs::ZstdEncoder;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use crate::support::{Served, Setup, digest, in_time};

const PIECE_BYTES: usize = 64 << 10;
/// Large enough for a file of its own.
const LARGE_BYTES: usize = 600_000;

fn sample(seed: u8) -> Vec<u8> {
    (0..LARGE_BYTES).map(|n| (n * n / 7) as u8 ^ seed).collect()
}

fn name(upload: &str, content: &[u8]) -> String {
    format!("uploads/{upload}/blobs/{}/{}", digest(content).hash, content.len())
}

fn zstd_name(content: &[u8], size: usize) -> String {
    format!("uploads/z/compressed-blobs/zstd/{}/{size}", digest(content).hash)
}

/// Writes from an offset on, and finishes if that is wanted.
async fn write(
    served: &Served,
    name: &str,
    data: &[u8],
    offset: usize,
    finish: bool,
) -> Result<WriteResponse, Status> {
    let mut messages = Vec::new();
    let mut at = offset;
    for piece in data.chunks(PIECE_BYTES) {
        messages.push(WriteRequest {
            resource_name: name.to_owned(),
            write_offset: at as i64,
            finish_write: false,
            data: piece.to_vec(),
        });
        at += piece.len();
    }
    if finish {
        let resource_name = name.to_owned();
        messages.push(WriteRequest {
            resource_name,
            write_offset: at as i64,
            finish_write: true,
            data: vec![],
        });
    }
    let mut client = ByteStreamClient::new(served.channel().await);
    client.write(tokio_stream::iter(messages)).await.map(tonic::Response::into_inner)
}

async fn status(served: &Served, name: &str) -> QueryWriteStatusResponse {
    let request = QueryWriteStatusRequest { resource_name: name.to_owned() };
    let mut client = ByteStreamClient::new(served.channel().await);
    client.query_write_status(request).await.unwrap().into_inner()
}

async fn read(served: &Served, name: String, offset: i64, limit: i64) -> Result<Vec<u8>, Status> {
    let request = ReadRequest { resource_name: name, read_offset: offset, read_limit: limit };
    let mut pieces = ByteStreamClient::new(served.channel().await).read(request).await?.into_inner();
    let mut content = Vec::new();
    while let Some(piece) = pieces.message().await? {
        content.extend_from_slice(&piece.data);
    }
    Ok(content)
}

fn blob(content: &[u8]) -> String {
    format!("blobs/{}/{}", digest(content).hash, content.len())
}

/// Neither a file nor room is taken by uploads once what could come back is over.
async fn nothing_is_left(served: &Served) {
    let store = served.blobs.store().clone();
    // A writer that is gone lets go on another thread.
    let gone = tokio::task::spawn_blocking(move || {
        let later = Instant::now() + blobs::Options::default().upload_idle * 2;
        loop {
            store.maintain(later);
            if store.open_uploads() == 0 && store.usage().upload_bytes == 0 {
                return;
            }
            std::thread::yield_now();
        }
    });
    in_time(gone).await.unwrap();
    assert_eq!(served.content_path().join("temp").read_dir().unwrap().count(), 0);
}

#[tokio::test]
async fn i5_an_upload_that_is_not_what_its_name_says_is_refused_and_leaves_nothing() {
    let served = Served::start().await;
    let content = sample(1);
    for (what, data) in [
        ("other content", sample(2)),
        ("too short", content[1..].to_vec()),
        ("too long", [&content[..], b"!"].concat()),
        ("nothing", Vec::new()),
    ] {
        let refused = write(&served, &name("lie", &content), &data, 0, true).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{what}: {refused:?}");
        assert_eq!(read(&served, blob(&content), 0, 0).await.unwrap_err().code(), Code::NotFound, "{what}");
    }
    nothing_is_left(&served).await;
    served.stop().await;
}

#[tokio::test]
async fn i15_compressed_uploads_that_are_bombs_or_broken_are_refused_and_leave_nothing() {
    let served = Served::start().await;
    let content = sample(3);
    let honest = ZstdEncoder::compress(&content).unwrap().to_vec();
    // A gigabyte of zeros in some tens of kilobytes.
    let zeros = vec![0; 64 << 20];
    let bomb: Vec<u8> = std::iter::repeat_n(ZstdEncoder::compress(&zeros).unwrap(), 16).flatten().collect();
    assert!(bomb.len() < 200_000, "{}", bomb.len());
    for (what, data, size) in [
        ("a bomb", bomb, LARGE_BYTES),
        ("truncated", honest[..honest.len() / 2].to_vec(), LARGE_BYTES),
        ("followed by garbage", [&honest[..], b"garbage"].concat(), LARGE_BYTES),
        ("followed by another", [&honest[..], &honest[..]].concat(), LARGE_BYTES),
        ("not compressed", content.clone(), LARGE_BYTES),
        ("announced smaller", honest.clone(), LARGE_BYTES - 1),
        ("announced larger", honest.clone(), LARGE_BYTES + 1),
    ] {
        let refused = write(&served, &zstd_name(&content, size), &data, 0, true).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{what}: {refused:?}");
        assert_eq!(read(&served, blob(&content), 0, 0).await.unwrap_err().code(), Code::NotFound, "{what}");
    }
    nothing_is_left(&served).await;
    let told = write(&served, &zstd_name(&content, LARGE_BYTES), &honest[..honest.len() / 2], 0, false)
        .await
        .unwrap();
    assert_eq!(told.committed_size, 0, "what came compressed is not kept for later");
    let told = write(&served, &zstd_name(&content, LARGE_BYTES), &honest, 0, true).await.unwrap();
    assert_eq!(told.committed_size, honest.len() as i64);
    assert_eq!(read(&served, blob(&content), 0, 0).await.unwrap(), content);
    served.stop().await;
}

/// Each decompressor may hold megabytes, so there are only so many. A further upload waits until one is free.
#[tokio::test]
async fn i15_only_so_many_uploads_are_decompressed_at_one_time() {
    // Of 64; the others are for other tenants.
    const MAX_OF_TENANT: usize = 56;
    let patience = std::time::Duration::from_secs(300);
    let receiving =
        server::Receiving { max_pause: patience, max_body: patience, ..server::Receiving::default() };
    let served = std::sync::Arc::new(Served::set_up(Setup { receiving, ..Setup::default() }).await);
    let content = sample(13);
    let compressed = ZstdEncoder::compress(&content).unwrap().to_vec();
    let channel = served.channel().await;
    let mut open = Vec::new();
    for _ in 0..MAX_OF_TENANT {
        let (to, receiver) = mpsc::channel(1);
        let data = compressed[..compressed.len() / 2].to_vec();
        let resource_name = zstd_name(&content, LARGE_BYTES);
        to.send(WriteRequest { resource_name, write_offset: 0, finish_write: false, data }).await.unwrap();
        let mut client = ByteStreamClient::new(channel.clone());
        open.push((to, tokio::spawn(async move { client.write(ReceiverStream::new(receiver)).await })));
    }
    in_time(async {
        while served.blobs.store().open_uploads() < MAX_OF_TENANT {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let other = sample(14);
    let further = tokio::spawn({
        let served = served.clone();
        let (name, data) = (zstd_name(&other, LARGE_BYTES), ZstdEncoder::compress(&other).unwrap());
        async move { write(&served, &name, &data, 0, true).await }
    });
    // What is not compressed needs no place.
    write(&served, &name("u", &content), &content, 0, true).await.unwrap();
    assert!(!further.is_finished());
    assert_eq!(read(&served, blob(&other), 0, 0).await.unwrap_err().code(), Code::NotFound);
    let (to, leaves) = open.pop().unwrap();
    leaves.abort();
    drop(to);
    in_time(further).await.unwrap().unwrap();
    assert_eq!(read(&served, blob(&other), 0, 0).await.unwrap(), other);
    drop(open);
    std::sync::Arc::into_inner(served).unwrap().stop().await;
}

#[tokio::test]
async fn i16_reads_begin_within_the_blob() {
    let served = Served::start().await;
    let content = sample(4);
    write(&served, &name("u", &content), &content, 0, true).await.unwrap();
    let size = LARGE_BYTES as i64;
    for (offset, limit, expected) in [
        (-1, 0, Code::OutOfRange),
        (i64::MIN, 0, Code::OutOfRange),
        (size + 1, 0, Code::OutOfRange),
        (i64::MAX, 0, Code::OutOfRange),
        (0, -1, Code::InvalidArgument),
    ] {
        let refused = read(&served, blob(&content), offset, limit).await.unwrap_err();
        assert_eq!(refused.code(), expected, "{offset} {limit}");
    }
    assert_eq!(read(&served, blob(&content), size, 0).await.unwrap(), Vec::<u8>::new());
    assert_eq!(read(&served, blob(&content), size - 3, i64::MAX).await.unwrap(), content[LARGE_BYTES - 3..]);
    let compressed = format!("compressed-blobs/zstd/{}/{size}", digest(&content).hash);
    let refused = read(&served, compressed, 0, 5).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    served.stop().await;
}

/// QueryWriteStatus says where it goes on, and nowhere else does it.
#[tokio::test]
async fn n16_an_interrupted_upload_goes_on_where_it_stands_and_nowhere_else() {
    let served = Served::start().await;
    let content = sample(5);
    let name = name("resumed", &content);
    let half = LARGE_BYTES / 2;
    assert_eq!(status(&served, &name).await, QueryWriteStatusResponse { committed_size: 0, complete: false });
    let told = write(&served, &name, &content[..half], 0, false).await.unwrap();
    let stands = status(&served, &name).await;
    assert_eq!(told.committed_size, stands.committed_size, "what a client is told is what the store keeps");
    assert!(
        !stands.complete && stands.committed_size > 0 && stands.committed_size <= half as i64,
        "{stands:?}"
    );
    let at = stands.committed_size as usize;
    for wrong in [at + 1, at - 1, LARGE_BYTES, 1] {
        let refused =
            write(&served, &name, &content[wrong.min(LARGE_BYTES - 1)..], wrong, true).await.unwrap_err();
        assert!(matches!(refused.code(), Code::InvalidArgument | Code::OutOfRange), "{wrong}: {refused:?}");
        assert_eq!(status(&served, &name).await, stands, "what is there stays");
    }
    write(&served, &name, &content[at..], at, true).await.unwrap();
    let done = QueryWriteStatusResponse { committed_size: LARGE_BYTES as i64, complete: true };
    assert_eq!(status(&served, &name).await, done);
    assert_eq!(read(&served, blob(&content), 0, 0).await.unwrap(), content);
    nothing_is_left(&served).await;
    served.stop().await;
}

/// Gaps and overlaps within one upload.
#[tokio::test]
async fn n16_pieces_follow_each_other() {
    let served = Served::start().await;
    let content = sample(6);
    for wrong in [PIECE_BYTES as i64 + 1, PIECE_BYTES as i64 - 1, 0, -5, i64::MAX] {
        let piece = |offset: i64, finish_write: bool| WriteRequest {
            resource_name: name("gap", &content),
            write_offset: offset,
            finish_write,
            data: content[..PIECE_BYTES].to_vec(),
        };
        let mut client = ByteStreamClient::new(served.channel().await);
        let refused =
            client.write(tokio_stream::iter([piece(0, false), piece(wrong, true)])).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{wrong}");
    }
    nothing_is_left(&served).await;
    served.stop().await;
}

/// Same id and other ids, honest and lying, all at once: the honest ones succeed and the liars do not.
#[tokio::test]
async fn a8_uploads_of_one_blob_that_race_are_each_judged_by_their_content() {
    let served = std::sync::Arc::new(Served::start().await);
    let content = std::sync::Arc::new(sample(7));
    let mut racing = tokio::task::JoinSet::new();
    for n in 0..24 {
        let (served, content) = (served.clone(), content.clone());
        racing.spawn(async move {
            let upload = if n % 3 == 0 { "same".to_owned() } else { format!("own-{n}") };
            let lies = n % 4 == 3;
            let mut data = content.to_vec();
            data[LARGE_BYTES - 1] ^= u8::from(lies);
            (lies, write(&served, &name(&upload, &content), &data, 0, true).await)
        });
    }
    while let Some(ended) = racing.join_next().await {
        match ended.unwrap() {
            // A liar that is overtaken by an honest one need not send its lie to the end.
            (true, told) => assert!(told.map_or_else(|why| why.code() == Code::InvalidArgument, |_| true)),
            (false, told) => assert_eq!(told.unwrap().committed_size, LARGE_BYTES as i64),
        }
    }
    assert_eq!(read(&served, blob(&content), 0, 0).await.unwrap(), *content);
    nothing_is_left(&served).await;
    std::sync::Arc::into_inner(served).unwrap().stop().await;
}

/// One id for two blobs is two uploads, and a name that changes within one is refused.
#[tokio::test]
async fn a8_an_id_that_is_used_for_two_blobs_mixes_nothing() {
    let served = Served::start().await;
    let (one, other) = (sample(8), sample(9));
    write(&served, &name("shared", &one), &one[..LARGE_BYTES / 2], 0, false).await.unwrap();
    write(&served, &name("shared", &other), &other, 0, true).await.unwrap();
    let at = status(&served, &name("shared", &one)).await.committed_size as usize;
    write(&served, &name("shared", &one), &one[at..], at, true).await.unwrap();
    assert_eq!(read(&served, blob(&one), 0, 0).await.unwrap(), one);
    assert_eq!(read(&served, blob(&other), 0, 0).await.unwrap(), other);
    let third = sample(10);
    let piece = |resource_name: String, offset: usize| WriteRequest {
        resource_name,
        write_offset: offset as i64,
        finish_write: false,
        data: third[..PIECE_BYTES].to_vec(),
    };
    let mixed = [piece(name("m", &third), 0), piece(name("m", &sample(11)), PIECE_BYTES)];
    let refused = ByteStreamClient::new(served.channel().await).write(tokio_stream::iter(mixed)).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    served.stop().await;
}

/// A client that vanishes mid-upload leaves what it sent for a while, within a bound on all of them, and then nothing.
#[tokio::test]
async fn a7_uploads_that_are_never_finished_are_bounded_and_expire() {
    let max_uploads_per_tenant = 3;
    let store = blobs::Options { max_uploads_per_tenant, ..blobs::Options::default() };
    let served = Served::set_up(Setup { store, ..Setup::default() }).await;
    let content = sample(12);
    for n in 0..10 {
        let (to, receiver) = mpsc::channel(4);
        let resource_name = name(&format!("vanishes-{n}"), &content);
        let data = content[..LARGE_BYTES / 2].to_vec();
        let piece =
            WriteRequest { resource_name: resource_name.clone(), write_offset: 0, finish_write: false, data };
        to.send(piece).await.unwrap();
        let mut client = ByteStreamClient::new(served.channel().await);
        let upload = tokio::spawn(async move { client.write(ReceiverStream::new(receiver)).await });
        // Its bytes are there before it goes.
        in_time(async {
            while status(&served, &resource_name).await.committed_size == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        upload.abort();
        drop(to);
        // The server has heard of it once the upload has no writer any more, so that the next one finds room.
        in_time(async {
            while served.blobs.store().open_uploads() > max_uploads_per_tenant {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    let usage = served.blobs.store().usage();
    assert!(usage.upload_bytes <= 3 * (1 << 20), "what is unfinished counts, and is bounded: {usage:?}");
    nothing_is_left(&served).await;
    assert_eq!(read(&served, blob(&content), 0, 0).await.unwrap_err().code(), Code::NotFound);
    write(&served, &name("whole", &content), &content, 0, true).await.unwrap();
    served.stop().await;
}
