//! Nodes that have their blobs and results on a content server: a server of its own, which all of them use.

use std::sync::Arc;

use blobs::DigestFunction::Sha256;
use blobs::{
    ActionCache, ActionKey, Begun, Blobs, Digest, Error, Expect, Local, Origin, RawKey, Serve, Tenant,
    UploadRequest,
};
use bytes::Bytes;
use execution::cached_result;
use reapi_client::ContentServer;

use bazel_remote_apis::build::bazel::remote::execution::v2::ActionResult;

use crate::store_server::{StoreServer, node};

struct Cluster {
    nodes: [Arc<ContentServer>; 2],
    server: StoreServer,
    _directory: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        let store = blobs::Store::open(directory.path().join("content"), blobs::Options::default()).unwrap();
        let store = Arc::new(Local::new(store));
        let server = StoreServer::start(store).await;
        let nodes = ["a", "b"].map(|name| node(&server.url, &directory.path().join(name)));
        Cluster { nodes, server, _directory: directory }
    }
}

fn tenant() -> Tenant {
    Tenant::new("t").unwrap()
}

fn blob(content: Vec<u8>) -> (Digest, Bytes) {
    (Digest::of(Sha256, &content), content.into())
}

/// Too large for a batch, and not the same everywhere.
fn large() -> (Digest, Bytes) {
    blob((0..3_000_000_u32).map(|n| (n % 251) as u8).collect())
}

async fn upload(node: &ContentServer, tenant: &Tenant, expect: Expect, content: &Bytes) -> Digest {
    let Begun::Writer(mut writer) = node.write(tenant, UploadRequest::new(expect)).await.unwrap() else {
        panic!("it is there already")
    };
    for piece in content.chunks(700_000) {
        writer.write(writer.committed(), Bytes::copy_from_slice(piece)).await.unwrap();
    }
    writer.finish().await.unwrap()
}

async fn read(node: &ContentServer, digest: Digest, offset: u64, limit: Option<u64>) -> Vec<u8> {
    let mut reader = node.read(&tenant(), digest, offset, limit).await.unwrap();
    let mut content = Vec::new();
    while let Some(piece) = reader.next().await.unwrap() {
        content.extend_from_slice(&piece);
    }
    content
}

#[tokio::test]
async fn what_one_node_stores_another_node_finds_and_reads() {
    let cluster = Cluster::start().await;
    let ([a, b], t) = (&cluster.nodes, tenant());
    let ((small, small_bytes), (large, large_bytes)) = (blob(vec![1; 100]), large());
    let digests = [small, large, small];
    assert_eq!(b.find_missing(&t, &digests).await.unwrap(), [small, large]);
    assert!(matches!(b.get_many(&t, &[small]).await[..], [Err(Error::NotFound(_))]));
    assert!(matches!(b.read(&t, large, 0, None).await.err(), Some(Error::NotFound(_))));

    assert!(a.put_many(&t, vec![(small, small_bytes.clone())]).await[0].is_ok());
    assert_eq!(upload(a, &t, Expect::Digest(large), &large_bytes).await, large);
    assert_eq!(b.find_missing(&t, &digests).await.unwrap(), []);
    assert_eq!(b.get_many(&t, &[small]).await.remove(0).unwrap(), small_bytes);
    assert!(read(b, large, 0, None).await == large_bytes);
    assert_eq!(read(b, large, 2_999_990, Some(4)).await, &large_bytes[2_999_990..2_999_994]);
    let begun = b.write(&t, UploadRequest::named(large, "again", 0)).await.unwrap();
    assert!(matches!(begun, Begun::Present), "nothing need be sent twice");
    assert!(b.write_status(&t, "again", large).await.complete);

    let other = Tenant::new("other").unwrap();
    assert_eq!(b.find_missing(&other, &[small]).await.unwrap(), [small], "tenants stay apart");
}

#[tokio::test]
async fn content_without_a_known_size_is_found_by_its_hash_through_any_node() {
    let cluster = Cluster::start().await;
    let ([a, b], t) = (&cluster.nodes, tenant());
    let (digest, content) = large();
    assert_eq!(b.find(&t, Sha256, digest.hash).await.unwrap(), None);
    assert_eq!(upload(a, &t, Expect::Hash(Sha256, digest.hash), &content).await, digest);
    assert_eq!(b.find(&t, Sha256, digest.hash).await.unwrap(), Some(digest));
    let body = upload(a, &t, Expect::Anything(Sha256), &Bytes::from_static(b"body")).await;
    let key = RawKey { prefix: "p".into(), key: digest.hash };
    a.put_raw(&t, &key, body).await.unwrap();
    assert_eq!(b.get_raw(&t, &key).await.unwrap(), Some(body));
    assert_eq!(b.get_raw(&t, &RawKey { prefix: "q".into(), ..key }).await.unwrap(), None);
}

#[tokio::test]
async fn content_that_does_not_fit_its_digest_reaches_no_server() {
    let cluster = Cluster::start().await;
    let ([a, b], t) = (&cluster.nodes, tenant());
    let ((digest, _), lie) = (large(), Bytes::from(vec![9; 3_000_000]));
    assert!(matches!(a.put_many(&t, vec![(digest, lie.clone())]).await[..], [Err(Error::Mismatch { .. })]));
    let begun = a.write(&t, UploadRequest::new(Expect::Digest(digest))).await.unwrap();
    let Begun::Writer(mut writer) = begun else { panic!("it is not there") };
    writer.write(0, lie).await.unwrap();
    assert!(matches!(writer.finish().await, Err(Error::Mismatch { .. })));
    assert_eq!(b.find_missing(&t, &[digest]).await.unwrap(), [digest]);
}

#[tokio::test]
async fn a_staging_area_is_promoted_by_another_node_than_its_uploader_used() {
    let cluster = Cluster::start().await;
    let ([a, b], t) = (&cluster.nodes, tenant());
    let area = t.staging_area("worker");
    let ((small, small_bytes), (large, large_bytes)) = (blob(vec![1; 100]), large());
    assert!(a.put_many(&area, vec![(small, small_bytes)]).await[0].is_ok());
    upload(a, &area, Expect::Digest(large), &large_bytes).await;
    assert_eq!(a.find_missing(&t, &[small, large]).await.unwrap(), [small, large]);
    b.promote(&area, &t, &[small, large]).await.unwrap();
    assert_eq!(a.find_missing(&t, &[small, large]).await.unwrap(), []);
    let missing = blob(vec![2; 100]).0;
    let refused = b.promote(&area, &t, &[missing]).await;
    assert!(matches!(refused, Err(Error::NotFound(digest)) if digest == missing), "{refused:?}");
}

#[tokio::test]
async fn results_keep_their_origin_and_position_through_another_node() {
    let cluster = Cluster::start().await;
    let ([a, b], t) = (&cluster.nodes, tenant());
    let key = ActionKey { instance: "default".into(), action: blob(b"action".to_vec()).0 };
    let result = |text: &[u8]| ActionResult { stdout_raw: text.to_vec(), ..ActionResult::default() };
    let put = async |origin, position, text: &[u8]| {
        let entry = cached_result::encode(position, &result(text));
        a.put_result(&t, &key, origin, entry.into()).await.unwrap();
    };
    let get = async |serve| {
        let found = b.get_result(&t, &key, serve).await.unwrap();
        found.map(|found| (found.origin, cached_result::decode(&found.bytes).unwrap()))
    };
    assert_eq!(get(Serve::Any).await, None);
    put(Origin::Uploaded, 0, b"uploaded").await;
    assert_eq!(get(Serve::Any).await, Some((Origin::Uploaded, (0, result(b"uploaded")))));
    assert_eq!(get(Serve::Committed).await, None, "an upload is not the result of an execution");
    put(Origin::Committed, 7, b"committed").await;
    for serve in [Serve::Any, Serve::Committed] {
        assert_eq!(get(serve).await, Some((Origin::Committed, (7, result(b"committed")))));
    }
    let other = ActionKey { instance: "other".into(), ..key.clone() };
    assert!(b.get_result(&t, &other, Serve::Any).await.unwrap().is_none(), "instances stay apart");
    b.remove_result(&t, &key).await.unwrap();
    assert_eq!(get(Serve::Any).await, None);
}

#[tokio::test]
async fn a_content_server_that_is_away_is_unavailable_by_its_name() {
    let Cluster { nodes: [a, b], server, _directory } = Cluster::start().await;
    let (t, (digest, content)) = (tenant(), blob(vec![1; 100]));
    assert!(a.put_many(&t, vec![(digest, content.clone())]).await[0].is_ok());
    let url = server.url.clone();
    server.stop().await;
    let refused = b.find_missing(&t, &[digest]).await;
    assert!(matches!(&refused, Err(Error::Unavailable(why)) if why.contains(&url)), "{refused:?}");
    let refused = b.put_many(&t, vec![(digest, content.clone())]).await;
    assert!(matches!(&refused[..], [Err(Error::Unavailable(_))]), "{refused:?}");
    let key = ActionKey { instance: "default".into(), action: digest };
    let refused = b.get_result(&t, &key, Serve::Any).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
}
