//! GetTree: sends a directory and everything below it, in pages (R17). Each directory is sent once, however often it
//! is shared; a missing subtree is left out.

use std::collections::{HashSet, VecDeque};

use blobs::Digest;
use bytes::Bytes;
use execution::{Directory, check_bounds, digest};
use futures_util::stream::{BoxStream, try_unfold};
use tonic::{Request, Status};

use crate::edge::paced_stream::at_pace;
use crate::reapi::execution::inputs;
use crate::reapi::messages::{self, GetTreeRequest, GetTreeResponse};
use crate::reapi::store::Store;
use crate::reapi::{Reapi, instance};

/// Most directories on a page, and the default.
const PAGE: usize = 1_000;
/// Most bytes of directories on a page, so that a client can read it.
const PAGE_BYTES: u64 = 2 * 1_024 * 1_024;

pub(super) type TreeStream = BoxStream<'static, Result<GetTreeResponse, Status>>;

pub(super) async fn get_tree(reapi: &Reapi, request: &Request<GetTreeRequest>) -> Result<TreeStream, Status> {
    let asked = request.get_ref();
    let scope = instance::scope(request.metadata(), &asked.instance_name)?;
    let function = digest::function_from_proto(asked.digest_function)?;
    let root = digest::from_proto(asked.root_digest.as_ref(), function, "root_digest")?;
    let page = match asked.page_size {
        0 => PAGE,
        size => usize::try_from(size)
            .map_err(|_| Status::invalid_argument("page_size: must not be negative"))?
            .min(PAGE),
    };
    let skip = match asked.page_token.as_str() {
        "" => 0,
        token => {
            token.parse().map_err(|_| Status::invalid_argument("page_token: is not one of this server"))?
        }
    };
    let store = reapi.store_for(request.extensions(), &scope)?;
    let permit = store.limits.tree(&store.tenant)?;
    let missing = store.missing(&[root]).await?;
    if !missing.is_empty() {
        return Err(Status::not_found(format!("directory {root} is not here")));
    }
    let mut walk =
        Walk { store, page, sent: 0, bytes: 0, seen: HashSet::from([root]), ahead: VecDeque::from([root]) };
    walk.pass_over(skip).await?;
    let pages = try_unfold((walk, permit), |(mut walk, permit)| async move {
        Ok(walk.next_page().await?.map(|page| (page, (walk, permit))))
    });
    let max_stall = reapi.app.bodies.receiving.max_stall;
    Ok(at_pace(pages, max_stall, || Status::deadline_exceeded("the tree was taken too slowly")))
}

/// Walks level by level from the root, always in the same order, so that a number of directories is an offset.
struct Walk {
    store: Store,
    page: usize,
    sent: usize,
    /// Of all directories that were requested from the store.
    bytes: u64,
    seen: HashSet<Digest>,
    ahead: VecDeque<Digest>,
}

impl Walk {
    async fn next_page(&mut self) -> Result<Option<GetTreeResponse>, Status> {
        let directories = self.take(self.page).await?;
        if directories.is_empty() {
            return Ok(None);
        }
        self.sent += directories.len();
        let next_page_token = if self.ahead.is_empty() { String::new() } else { self.sent.to_string() };
        Ok(Some(GetTreeResponse { directories, next_page_token }))
    }

    async fn pass_over(&mut self, skip: usize) -> Result<(), Status> {
        while self.sent < skip {
            let passed = self.take(self.page.min(skip - self.sent)).await?.len();
            if passed == 0 {
                return Ok(());
            }
            self.sent += passed;
        }
        Ok(())
    }

    /// The next directories, at most `count`, fewer at the end or when they are large.
    async fn take(&mut self, count: usize) -> Result<Vec<messages::Directory>, Status> {
        let mut taken = Vec::new();
        while taken.is_empty() && !self.ahead.is_empty() {
            let mut bytes = 0;
            let fit = self.ahead.iter().take(count).take_while(|digest| {
                bytes += digest.size;
                bytes <= PAGE_BYTES
            });
            let batch: Vec<Digest> = self.ahead.drain(..fit.count().max(1)).collect();
            self.bytes = batch.iter().fold(self.bytes, |sum, digest| sum.saturating_add(digest.size));
            check_bounds(self.seen.len(), 0, self.bytes)?;
            let found = inputs::directories(&self.store, &batch).await?;
            let bytes = found.iter().flatten().map(Bytes::len).sum();
            let decoded = self.store.limits.compute.run_on(bytes, move || decode(&batch, &found)).await??;
            for (message, children) in decoded {
                for child in children {
                    if self.seen.insert(child) {
                        self.ahead.push_back(child);
                    }
                }
                taken.push(message);
            }
            check_bounds(self.seen.len(), 0, self.bytes)?;
        }
        Ok(taken)
    }
}
/// The directories that are present, each with the digests of those below it.
fn decode(
    batch: &[Digest],
    found: &[Option<Bytes>],
) -> Result<Vec<(messages::Directory, Vec<Digest>)>, Status> {
    let present = batch.iter().zip(found).filter_map(|(digest, bytes)| Some((digest, bytes.as_ref()?)));
    let decode = |(digest, bytes): (&Digest, &Bytes)| {
        let message = inputs::decode_sorted(digest, bytes)?;
        let below = Directory::from_proto(digest, message.clone())?.directories;
        Ok((message, below.into_iter().map(|(_, child)| child).collect()))
    };
    present.map(decode).collect()
}
