//! Limits the concurrent POSTs to one target. Each is an open connection, and the connections of the process are shared
//! out evenly, so that a target that hangs uses up its own share only.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct ConnectionBudget {
    max: usize,
    targets: AtomicUsize,
}

impl ConnectionBudget {
    pub(super) fn new(max: usize) -> ConnectionBudget {
        ConnectionBudget { max, targets: AtomicUsize::new(0) }
    }

    pub(super) fn set_targets(&self, targets: usize) {
        self.targets.store(targets, Ordering::Relaxed);
    }

    /// What one target may use. However many there are, each has one.
    pub(super) fn share(&self) -> usize {
        (self.max / self.targets.load(Ordering::Relaxed).max(1)).max(1)
    }
}

#[derive(Debug, Default)]
pub(super) struct ConnectionLimiter {
    inside: AtomicUsize,
    left: Notify,
}

/// Leaves when it is dropped.
pub(super) struct ConnectionPermit<'a>(&'a ConnectionLimiter);

impl ConnectionLimiter {
    /// How many more could enter now.
    pub(super) fn free_connections(&self, connections: &ConnectionBudget) -> usize {
        connections.share().saturating_sub(self.inside.load(Ordering::Acquire))
    }

    pub(super) async fn enter(&self, connections: &ConnectionBudget) -> ConnectionPermit<'_> {
        loop {
            let left = self.left.notified();
            let enter = |inside| (inside < connections.share()).then_some(inside + 1);
            if self.inside.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter).is_ok() {
                return ConnectionPermit(self);
            }
            left.await;
        }
    }
}

impl Drop for ConnectionPermit<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::AcqRel);
        self.0.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn p9_a_target_waits_when_its_share_of_the_connections_is_used() {
        let (connections, limiter) = (ConnectionBudget::new(8), ConnectionLimiter::default());
        connections.set_targets(4);
        let (one, other) = (limiter.enter(&connections).await, limiter.enter(&connections).await);
        assert_eq!(limiter.free_connections(&connections), 0);
        let mut third = std::pin::pin!(limiter.enter(&connections));
        tokio::select! {
            biased;
            _ = &mut third => panic!("there is no room"),
            () = std::future::ready(()) => {}
        }
        drop(one);
        let third = third.await;
        drop((other, third));
        assert_eq!(limiter.free_connections(&connections), 2);
    }

    #[test]
    fn however_many_targets_there_are_each_has_a_connection() {
        let connections = ConnectionBudget::new(8);
        for (targets, share) in [(0, 8), (1, 8), (3, 2), (8, 1), (1_000, 1)] {
            connections.set_targets(targets);
            assert_eq!(connections.share(), share);
        }
    }
}
