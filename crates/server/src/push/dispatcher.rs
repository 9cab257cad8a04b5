//! Runs one target dispatcher for each queue with a push target; the authority limits the number of queues.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use authority::{PushTarget, QueueKey};
use coordinator::Unavailable;
use rustls::ClientConfig;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::client::{self, Client, NoClient};
use super::connection_limiter::ConnectionLimiter;
use super::health::Health;
use super::holder;
use super::target_dispatcher::{PAUSE, TargetDispatcher, give_back_unstarted};
use crate::app::App;

/// Pushes tasks until the server stops. The leases of what was pushed stay.
pub(crate) async fn run(app: App, listening: SocketAddr, is_tls: bool) {
    let dispatching = async {
        loop {
            // In a cluster, the owner pushes.
            app.handle.owned().await;
            let dispatcher = Dispatcher {
                callback_base_url: app.push.options.callback_base_url(listening, is_tls).into(),
                is_guessed: app.push.options.is_guessed(listening),
                tls: None,
                targets: HashMap::new(),
                chores: JoinSet::new(),
                app: app.clone(),
            };
            tokio::select! {
                () = dispatcher.run() => return,
                () = app.handle.disowned() => {}
            }
        }
    };
    tokio::select! {
        () = dispatching => {}
        () = app.draining() => {}
    }
}

struct Dispatcher {
    app: App,
    callback_base_url: Arc<str>,
    /// Whether the callback URL is not configured and cannot be known.
    is_guessed: bool,
    /// Made for the first target: reading the certificates takes a while.
    tls: Option<ClientConfig>,
    targets: HashMap<Arc<QueueKey>, RunningTarget>,
    chores: JoinSet<()>,
}

struct RunningTarget {
    target: Arc<PushTarget>,
    /// None for a target that must not be called.
    task: Option<AbortOnDropHandle<()>>,
}

impl Dispatcher {
    async fn run(mut self) {
        loop {
            match self.app.handle.push_targets().await {
                Ok(targets) => self.follow(targets).await,
                Err(Unavailable::Stopped) => return,
                Err(_) => {
                    sleep(PAUSE).await;
                    continue;
                }
            }
            while self.chores.try_join_next().is_some() {}
            self.app.push.changed.notified().await;
        }
    }

    /// Stops the dispatchers whose target changed or is gone, and starts those that are missing.
    async fn follow(&mut self, targets: Vec<(Arc<QueueKey>, Arc<PushTarget>)>) {
        let wanted: HashMap<_, _> = targets.into_iter().collect();
        let stale = self.targets.iter().filter(|(key, running)| wanted.get(*key) != Some(&running.target));
        for key in stale.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.end(&key).await;
            if !wanted.contains_key(&key) {
                self.chores.spawn(give_back_unstarted(self.app.clone(), key));
            }
        }
        self.app.push.connections.set_targets(wanted.len());
        for (key, target) in wanted {
            if !self.targets.contains_key(&key) {
                let task = self.begin(&key, &target);
                self.targets.insert(key, RunningTarget { target, task });
            }
        }
    }

    /// The dispatcher has ended when this returns, so that its successor finds every lease that it left.
    async fn end(&mut self, key: &QueueKey) {
        if let Some(RunningTarget { task: Some(task), .. }) = self.targets.remove(key) {
            task.abort();
            let _ = task.await;
        }
    }

    fn begin(&mut self, key: &Arc<QueueKey>, target: &Arc<PushTarget>) -> Option<AbortOnDropHandle<()>> {
        if std::mem::take(&mut self.is_guessed) {
            tracing::warn!(
                callback_url = %self.callback_base_url,
                "push targets on other machines cannot call back there; say where they can with --callback-url \
                 (push.callback_url in the file)"
            );
        }
        let tls = self.tls.get_or_insert_with(client::tls).clone();
        let shared = &self.app.push;
        let opened = self.app.push_secrets.open_target(key, target).map_err(NoClient::from);
        let client =
            opened.and_then(|target| Client::new(&target, shared.guard, shared.look_ups.clone(), tls));
        let client = match client {
            Ok(client) => client,
            Err(why) => {
                tracing::warn!(queue = %key.name, %why, "nothing is pushed from a queue: its target must not be called");
                return None;
            }
        };
        let dispatcher = TargetDispatcher {
            app: self.app.clone(),
            queue: key.clone(),
            holder: holder(&key.name),
            target: target.clone(),
            client,
            callback_base_url: self.callback_base_url.clone(),
            health: Health::default(),
            limiter: ConnectionLimiter::default(),
        };
        Some(AbortOnDropHandle::new(tokio::spawn(Arc::new(dispatcher).run())))
    }
}
