//! Keeps one lane for each queue with a push target, and nothing for the others.
//!
//! There are never more lanes than queues, of which the authority has a limit.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use authority::{PushTarget, QueueKey};
use coordinator::Unavailable;
use rustls::ClientConfig;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use super::client::{self, Client};
use super::connection_limiter::ConnectionLimiter;
use super::health::Health;
use super::holder;
use super::target_dispatcher::{PAUSE, TargetDispatcher, give_back_unstarted};
use crate::app::App;

/// Pushes tasks until the server stops. The leases of what was pushed stay.
pub async fn run(app: App, listening: SocketAddr) {
    let dispatcher = Dispatcher {
        callback_base_url: app.push().options.callback_base_url(listening).into(),
        is_guessed: app.push().options.is_guessed(listening),
        tls: None,
        lanes: HashMap::new(),
        chores: JoinSet::new(),
        app: app.clone(),
    };
    tokio::select! {
        () = dispatcher.run() => {}
        () = app.draining() => {}
    }
}

struct Dispatcher {
    app: App,
    callback_base_url: Arc<str>,
    /// Whether nobody said where targets call back, and it cannot be known.
    is_guessed: bool,
    /// Made for the first lane: reading the certificates takes a while.
    tls: Option<ClientConfig>,
    lanes: HashMap<Arc<QueueKey>, Running>,
    chores: JoinSet<()>,
}

struct Running {
    target: Arc<PushTarget>,
    /// None for a target that must not be called.
    lane: Option<AbortOnDrop>,
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Dispatcher {
    async fn run(mut self) {
        loop {
            match self.app.handle().push_targets().await {
                Ok(targets) => self.follow(targets).await,
                Err(Unavailable::Stopped) => return,
                Err(_) => {
                    sleep(PAUSE).await;
                    continue;
                }
            }
            while self.chores.try_join_next().is_some() {}
            self.app.push().changed.notified().await;
        }
    }

    /// Ends the lanes whose target is another or no more, and begins those that are missing.
    async fn follow(&mut self, targets: Vec<(Arc<QueueKey>, Arc<PushTarget>)>) {
        let wanted: HashMap<_, _> = targets.into_iter().collect();
        let stale = self.lanes.iter().filter(|(key, lane)| wanted.get(*key) != Some(&lane.target));
        for key in stale.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.end(&key).await;
            if !wanted.contains_key(&key) {
                self.chores.spawn(give_back_unstarted(self.app.clone(), key));
            }
        }
        self.app.push().connections.set_targets(wanted.len());
        for (key, target) in wanted {
            if !self.lanes.contains_key(&key) {
                let lane = self.begin(&key, &target);
                self.lanes.insert(key, Running { target, lane });
            }
        }
    }

    /// The lane is wholly over when this returns, so that its successor finds every lease that it left.
    async fn end(&mut self, key: &QueueKey) {
        if let Some(Running { lane: Some(mut lane), .. }) = self.lanes.remove(key) {
            lane.0.abort();
            let _ = (&mut lane.0).await;
        }
    }

    fn begin(&mut self, key: &Arc<QueueKey>, target: &Arc<PushTarget>) -> Option<AbortOnDrop> {
        if std::mem::take(&mut self.is_guessed) {
            tracing::warn!(
                callback_url = %self.callback_base_url,
                "push targets on other machines cannot call back there; say where they can with --callback-url \
                 (push.callback_url in the file)"
            );
        }
        let tls = self.tls.get_or_insert_with(client::tls).clone();
        let shared = self.app.push();
        let client = match Client::new(target, shared.guard(), shared.look_ups.clone(), tls) {
            Ok(client) => client,
            Err(why) => {
                tracing::warn!(queue = %key.name, %why, "nothing is pushed from a queue: its target must not be called");
                return None;
            }
        };
        let lane = TargetDispatcher {
            app: self.app.clone(),
            queue: key.clone(),
            holder: holder(&key.name),
            target: target.clone(),
            client,
            callback_base_url: self.callback_base_url.clone(),
            health: Health::default(),
            limiter: ConnectionLimiter::default(),
        };
        Some(AbortOnDrop(tokio::spawn(Arc::new(lane).run())))
    }
}
