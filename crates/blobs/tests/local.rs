//! The asynchronous face of the store, through its traits.

mod common;

use std::sync::Arc;

use blobs::{
    ActionCache, ActionKey, Begun, Blobs, Digest, DigestFunction, Error, Expect, Local, Origin, Progress,
    RawKey, Serve, Tenant, UploadRequest,
};
use bytes::Bytes;
use common::*;

async fn read_all(
    blobs: &dyn Blobs,
    digest: Digest,
    offset: u64,
    limit: Option<u64>,
) -> Result<Vec<u8>, Error> {
    let mut reader = blobs.read(&tenant(), digest, offset, limit).await?;
    let mut content = Vec::new();
    while let Some(piece) = reader.next().await? {
        content.extend_from_slice(&piece);
    }
    assert!(reader.next().await?.is_none(), "the end stays the end");
    Ok(content)
}

async fn write_all(blobs: &dyn Blobs, request: UploadRequest, content: &Bytes) -> Result<Digest, Error> {
    let Begun::Writer(mut writer) = blobs.write(&tenant(), request).await? else { panic!("it is here") };
    let mut offset = writer.committed();
    while offset < content.len() as u64 {
        let piece = content.slice(offset as usize..content.len().min(offset as usize + 16_384));
        let bytes = piece.len() as u64;
        if writer.write(offset, piece).await? == Progress::Present {
            break;
        }
        offset += bytes;
        assert_eq!(writer.committed(), offset);
    }
    writer.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_go_in_and_come_out() {
    let root = tempfile::tempdir().unwrap();
    let blobs: Arc<dyn Blobs> = Arc::new(Local::new(open(root.path())));
    for bytes in [0, 10, 1000, 1001, 300_000, 3_000_000] {
        let content = content(bytes as u64, bytes);
        let request = UploadRequest::new(Expect::Anything(DigestFunction::Sha256));
        let digest = write_all(&*blobs, request, &content).await.unwrap();
        assert_eq!(digest, sha256(&content));
        assert!(read_all(&*blobs, digest, 0, None).await.unwrap() == content);
        let middle = bytes / 2;
        let part = read_all(&*blobs, digest, middle as u64, Some(5)).await.unwrap();
        assert!(part == content[middle..bytes.min(middle + 5)]);
        assert!(read_all(&*blobs, digest, bytes as u64 + 1, None).await.is_err());
        assert!(matches!(
            blobs.write(&tenant(), UploadRequest::named(digest, "u", 0)).await,
            Ok(Begun::Present)
        ));
        assert!(blobs.write_status(&tenant(), "u", digest).await.complete);
    }
    let batch: Vec<_> = (0..10).map(|n| content(n, 100)).map(|content| (sha256(&content), content)).collect();
    let digests: Vec<Digest> = batch.iter().map(|(digest, _)| *digest).collect();
    assert_eq!(blobs.find_missing(&tenant(), &digests).await.unwrap(), digests);
    assert!(blobs.put_many(&tenant(), batch.clone()).await.iter().all(Result::is_ok));
    assert_eq!(blobs.find_missing(&tenant(), &digests).await.unwrap(), []);
    for (answer, (_, content)) in blobs.get_many(&tenant(), &digests).await.iter().zip(&batch) {
        assert_eq!(answer.as_ref().unwrap(), content);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_resumes_where_the_store_says() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let blobs = Local::new(store.clone());
    let content = content(1, 1_000_000);
    let digest = sha256(&content);
    let begun = blobs.write(&tenant(), UploadRequest::named(digest, "u", 0)).await.unwrap();
    let Begun::Writer(mut writer) = begun else { panic!("it is not here") };
    writer.write(0, content.slice(..400_000)).await.unwrap();
    assert!(matches!(
        writer.write(1, Bytes::new()).await,
        Err(Error::WrongOffset { committed: 400_000, offset: 1 })
    ));
    drop(writer);
    let committed = blobs.write_status(&tenant(), "u", digest).await.committed;
    assert_eq!(committed, 400_000);
    let finished = write_all(&blobs, UploadRequest::named(digest, "u", committed), &content).await;
    assert_eq!(finished.unwrap(), digest);
    assert!(read_all(&blobs, digest, 0, None).await.unwrap() == content);
}

/// R24: whatever a writer has gathered and not written when it goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_leaves_says_where_to_go_on() {
    const PIECE_BYTES: usize = 40_000;
    let root = tempfile::tempdir().unwrap();
    let blobs = Local::new(open(root.path()));
    for (pieces, leaves) in [(1, true), (10, true), (10, false)] {
        let content = content(pieces as u64 + u64::from(leaves), 1_000_000);
        let digest = sha256(&content);
        let begun = blobs.write(&tenant(), UploadRequest::named(digest, "u", 0)).await.unwrap();
        let Begun::Writer(mut writer) = begun else { panic!("it is not here") };
        for at in (0..pieces).map(|n| n * PIECE_BYTES) {
            writer.write(at as u64, content.slice(at..at + PIECE_BYTES)).await.unwrap();
        }
        let sent = (pieces * PIECE_BYTES) as u64;
        assert_eq!(writer.committed(), sent);
        if leaves {
            assert_eq!(writer.leave().await.unwrap(), sent);
        } else {
            drop(writer);
        }
        let committed = blobs.write_status(&tenant(), "u", digest).await.committed;
        assert!(committed > 0 && if leaves { committed == sent } else { committed < sent }, "{committed}");
        let finished = write_all(&blobs, UploadRequest::named(digest, "u", committed), &content).await;
        assert_eq!(finished.unwrap(), digest);
    }
    let small = sha256(&content(99, 500));
    let begun = blobs.write(&tenant(), UploadRequest::named(small, "u", 0)).await.unwrap();
    let Begun::Writer(mut writer) = begun else { panic!("it is not here") };
    writer.write(0, content(99, 400)).await.unwrap();
    assert_eq!(writer.leave().await.unwrap(), 0);
    assert_eq!(blobs.write_status(&tenant(), "u", small).await.committed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_and_raw_entries_are_kept() {
    let root = tempfile::tempdir().unwrap();
    let local = Local::new(open(root.path()));
    let cache: &dyn ActionCache = &local;
    let key = ActionKey { instance: "".into(), action: sha256(b"action") };
    cache.put_result(&tenant(), &key, Origin::Committed, "result".into()).await.unwrap();
    let found = cache.get_result(&tenant(), &key, Serve::Committed).await.unwrap().unwrap();
    assert_eq!((found.origin, found.bytes), (Origin::Committed, "result".into()));
    cache.remove_result(&tenant(), &key).await.unwrap();
    assert_eq!(cache.get_result(&tenant(), &key, Serve::Any).await.unwrap(), None);
    let body = put(local.store(), &content(1, 10)).unwrap();
    let raw = RawKey { prefix: "".into(), key: key.action.hash };
    cache.put_raw(&tenant(), &raw, body).await.unwrap();
    assert_eq!(cache.get_raw(&tenant(), &raw).await.unwrap(), Some(body));
}

/// D27, also for what is answered on the spot.
#[tokio::test(flavor = "multi_thread")]
async fn damage_is_seen_on_every_way_to_a_small_blob() {
    let root = tempfile::tempdir().unwrap();
    let local = Local::new(open(root.path()));
    let contents: Vec<Bytes> = (0..2).map(|n| content(n, 500)).collect();
    contents.iter().for_each(|content| assert!(put(local.store(), content).is_ok()));
    let key = ActionKey { instance: "".into(), action: sha256(b"action") };
    local.put_result(&tenant(), &key, Origin::Committed, "result".into()).await.unwrap();
    let path = only_file(root.path(), ".pack");
    let mut bytes = std::fs::read(&path).unwrap();
    let end = bytes.len();
    // The last byte of each of the three records.
    for at in [end - 1, end - 1 - (84 + 6), end - 1 - (84 + 6) - (84 + 500)] {
        bytes[at] ^= 1;
    }
    std::fs::write(&path, bytes).unwrap();
    let digests: Vec<Digest> = contents.iter().map(|content| sha256(content)).collect();
    assert!(matches!(local.get_many(&tenant(), &digests[..1]).await[0], Err(Error::Damaged(_))));
    assert!(matches!(local.read(&tenant(), digests[1], 0, None).await, Err(Error::Damaged(_))));
    assert_eq!(local.get_result(&tenant(), &key, Serve::Any).await.unwrap(), None);
    assert_eq!(local.find_missing(&tenant(), &digests).await.unwrap(), digests);
}

#[tokio::test]
async fn tenants_that_share_a_cache_see_the_content_of_each_other_and_nobody_else_does() {
    let root = tempfile::tempdir().unwrap();
    let [a, b, stranger] = ["a", "b", "stranger"].map(|name| Tenant::new(name).unwrap());
    let key = ActionKey { instance: "".into(), action: digest_of(b"action") };
    let (content, result) = (Bytes::from_static(b"content"), Bytes::from_static(b"result"));
    let digest = digest_of(&content);
    let shared = Local::new(open(root.path())).with_shared_cache([a.clone(), b.clone()]);
    shared.put_many(&a, vec![(digest, content.clone())]).await.pop().unwrap().unwrap();
    shared.put_result(&a, &key, Origin::Committed, result.clone()).await.unwrap();
    for member in [&a, &b] {
        assert_eq!(shared.get_many(member, &[digest]).await.pop().unwrap().unwrap(), content);
        assert!(shared.find_missing(member, &[digest]).await.unwrap().is_empty());
        let found = shared.get_result(member, &key, Serve::Committed).await.unwrap();
        assert_eq!(found.unwrap().bytes, result);
    }
    assert_eq!(shared.find_missing(&stranger, &[digest]).await.unwrap(), [digest]);
    assert!(shared.get_result(&stranger, &key, Serve::Committed).await.unwrap().is_none());
    let staged = b.staging_area("worker");
    let other = digest_of(b"output");
    shared.put_many(&staged, vec![(other, Bytes::from_static(b"output"))]).await.pop().unwrap().unwrap();
    assert_eq!(shared.find_missing(&a, &[other]).await.unwrap(), [other], "a staging area is not shared");
    shared.promote(&staged, &b, &[other]).await.unwrap();
    assert!(shared.find_missing(&a, &[other]).await.unwrap().is_empty());
    let alone = Local::new(shared.store().clone());
    for tenant in [&a, &b, &stranger] {
        assert_eq!(alone.find_missing(tenant, &[digest]).await.unwrap(), [digest], "{tenant:?}");
    }
}

fn digest_of(content: &[u8]) -> Digest {
    Digest::of(DigestFunction::Sha256, content)
}
