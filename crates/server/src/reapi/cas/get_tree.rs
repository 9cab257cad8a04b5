//! GetTree: a directory and all below it, in pages (R17). Each directory comes once, however often it is shared; a
//! subtree that is missing is left out.

use std::collections::{HashSet, VecDeque};

use blobs::Digest;
use futures_util::stream::{BoxStream, try_unfold};
use tonic::{Request, Status};

use crate::edge::paced_stream::at_pace;
use crate::reapi::execution::{directory, inputs};
use crate::reapi::messages::{Directory, GetTreeRequest, GetTreeResponse};
use crate::reapi::store::Store;
use crate::reapi::{Reapi, digest, instance};

/// Directories on a page when the client does not say, and at most.
const PAGE: usize = 1_000;
/// Bytes of directories on a page, so that a client can read it.
const PAGE_BYTES: u64 = 2 * 1_024 * 1_024;

pub type TreeStream = BoxStream<'static, Result<GetTreeResponse, Status>>;

pub async fn get_tree(reapi: &Reapi, request: &Request<GetTreeRequest>) -> Result<TreeStream, Status> {
    let asked = request.get_ref();
    let scope = instance::scope(request.metadata(), &asked.instance_name)?;
    let function = digest::function(asked.digest_function)?;
    let root = digest::asked(asked.root_digest.as_ref(), function, "root_digest")?;
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
    let store = reapi.store(&scope)?;
    let permit = store.limits.tree()?;
    let missing = store.missing(&[root]).await?;
    if !missing.is_empty() {
        return Err(Status::not_found(format!("directory {root} is not here")));
    }
    let mut walk =
        Walk { store, page, told: 0, bytes: 0, seen: HashSet::from([root]), ahead: VecDeque::from([root]) };
    walk.pass_over(skip).await?;
    let pages = try_unfold((walk, permit), |(mut walk, permit)| async move {
        Ok(walk.next_page().await?.map(|page| (page, (walk, permit))))
    });
    let max_stall = reapi.app().bodies().receiving().max_stall;
    Ok(at_pace(pages, max_stall, || Status::deadline_exceeded("the tree was taken too slowly")))
}

/// Level by level from the root, always in the same order, so that a number of directories is a place in it.
struct Walk {
    store: Store,
    page: usize,
    told: usize,
    /// Of the directories that were looked for.
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
        self.told += directories.len();
        let next_page_token = if self.ahead.is_empty() { String::new() } else { self.told.to_string() };
        Ok(Some(GetTreeResponse { directories, next_page_token }))
    }

    async fn pass_over(&mut self, skip: usize) -> Result<(), Status> {
        while self.told < skip {
            let passed = self.take(self.page.min(skip - self.told)).await?.len();
            if passed == 0 {
                return Ok(());
            }
            self.told += passed;
        }
        Ok(())
    }

    /// The next directories, at most so many, fewer at the end or when they are large.
    async fn take(&mut self, count: usize) -> Result<Vec<Directory>, Status> {
        let mut taken = Vec::new();
        while taken.is_empty() && !self.ahead.is_empty() {
            let mut bytes = 0;
            let fit = self.ahead.iter().take(count).take_while(|digest| {
                bytes += digest.size;
                bytes <= PAGE_BYTES
            });
            let batch: Vec<Digest> = self.ahead.drain(..fit.count().max(1)).collect();
            self.bytes = batch.iter().fold(self.bytes, |sum, digest| sum.saturating_add(digest.size));
            inputs::within_bounds(self.seen.len(), 0, self.bytes)?;
            for (digest, bytes) in batch.iter().zip(inputs::directories(&self.store, &batch).await?) {
                let Some(bytes) = bytes else { continue };
                let directory = directory::read(digest, &bytes)?;
                for node in &directory.directories {
                    let child = digest::named(node.digest.as_ref(), digest.function)?;
                    if self.seen.insert(child) {
                        self.ahead.push_back(child);
                    }
                }
                taken.push(directory);
            }
            inputs::within_bounds(self.seen.len(), 0, self.bytes)?;
        }
        Ok(taken)
    }
}
