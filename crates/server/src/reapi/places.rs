//! How many things that take much memory are done at one time, over all calls.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// Most trees that are told at one time. Each may remember 200,000 digests while its client takes them.
const MAX_TREES: usize = 128;
/// Most actions and results that are followed to everything they name at one time. Each may remember a million digests,
/// which take about 300 MiB; an ordinary one takes a millisecond, so that few places serve many.
const MAX_WALKS: usize = 8;

/// Cheap to clone.
#[derive(Clone)]
pub struct Places {
    trees: Arc<Semaphore>,
    walks: Arc<Semaphore>,
}

/// A place that is free again when this is dropped.
pub struct Place {
    _permit: OwnedSemaphorePermit,
}

impl Default for Places {
    fn default() -> Places {
        Places { trees: Arc::new(Semaphore::new(MAX_TREES)), walks: Arc::new(Semaphore::new(MAX_WALKS)) }
    }
}

impl Places {
    /// To tell a tree to a client, who decides how long that takes; so nobody waits for this.
    pub fn tree(&self) -> Result<Place, Status> {
        match self.trees.clone().try_acquire_owned() {
            Ok(permit) => Ok(Place { _permit: permit }),
            Err(_) => Err(Status::resource_exhausted("too many trees are being read at once")),
        }
    }

    /// To follow an action or a result to what it names. Others end soon, and are waited for as long as the call may last.
    pub async fn walk(&self) -> Result<Place, Status> {
        let permit = self.walks.clone().acquire_owned().await;
        permit.map(|permit| Place { _permit: permit }).map_err(|_| Status::unavailable("the server stops"))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a6_walks_beyond_the_places_wait_for_one() {
        let places = Places::default();
        let mut taken = Vec::new();
        for _ in 0..MAX_WALKS {
            taken.push(places.walk().await.unwrap());
        }
        let mut next = Box::pin(places.walk());
        assert!((&mut next).now_or_never().is_none());
        taken.pop();
        assert!(next.await.is_ok());
    }
}
