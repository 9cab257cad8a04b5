//! The instances that a worker without an instance serves: the default instance from the start, and any other instance of
//! the default tenant from its first execution on.
//!
//! An instance is a workspace, and an agent works for one, so each instance has its own agent with its own id. The agents
//! share slots, resources, the cache of inputs and the work directories. Results stay separate (R56). Other tenants need
//! their own workers.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use authority::Scope;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;
use wire::DEFAULT_SCOPE_NAME;
use worker::{Agent, Config, Error, Pool, Stopper, Work};

/// Most instances besides the default one: any client may name any instance, and each costs a connection.
const MAX_INSTANCES: usize = 64;
/// The capacity of the channel; an instance that does not fit is sent again with its next execution.
const CHANNEL_CAPACITY: usize = 256;

/// The pause before a worker whose id was taken registers again.
const NAME_PAUSE: Duration = Duration::from_secs(5);

/// Receives the instances that have executions.
pub(crate) struct Instances(mpsc::Receiver<Scope>);

impl Instances {
    pub(crate) fn channel() -> (mpsc::Sender<Scope>, Instances) {
        let (to, from) = mpsc::channel(CHANNEL_CAPACITY);
        (to, Instances(from))
    }

    /// Serves all instances until a stop, or until the agent of the default instance ends. With `keeps_id`, a worker whose
    /// id was taken takes it back: any client of the server can register under the id of the embedded worker and must not
    /// be able to end the work here.
    pub(crate) async fn serve(
        mut self,
        config: Config,
        work: Arc<Work>,
        stop: Stopper,
        keeps_id: bool,
    ) -> Result<(), Error> {
        let pool = Pool::new(&config);
        let serve = |config: Config| Agent::serve_from(&pool, config, work.clone(), stop.clone());
        let mut default = tokio::spawn(serve(config.clone()));
        let mut others = JoinSet::new();
        let mut known = HashSet::from([Arc::from(DEFAULT_SCOPE_NAME)]);
        let ended = loop {
            tokio::select! {
                ended = &mut default => {
                    let error = match ended {
                        Ok(Err(error @ Error::Superseded { .. })) if keeps_id => error,
                        ended => break ended,
                    };
                    tracing::error!(
                        %error,
                        pause_ms = NAME_PAUSE.as_millis() as u64,
                        "the worker of this process lost its name and what it ran, and registers again after a \
                         pause; give whatever else works under this name another one (--id)"
                    );
                    let (agent, stop) = (serve(config.clone()), stop.clone());
                    default = tokio::spawn(async move {
                        tokio::select! {
                            () = stop.stop_requested() => Ok(()),
                            () = sleep(NAME_PAUSE) => agent.await,
                        }
                    });
                }
                Some(Scope { tenant, workspace }) = self.0.recv() => {
                    let is_new = *tenant == *DEFAULT_SCOPE_NAME && !known.contains(&workspace);
                    if !is_new || known.len() > MAX_INSTANCES {
                        continue;
                    }
                    known.insert(workspace.clone());
                    tracing::info!(instance = &*workspace, "working for this instance too");
                    let config = Config {
                        worker_id: format!("{}-{workspace}", config.worker_id),
                        workspace: Some(workspace.to_string()),
                        ..config.clone()
                    };
                    let agent = serve(config);
                    others.spawn(async move { (agent.await, workspace) });
                }
                Some(ended) = others.join_next(), if !others.is_empty() => {
                    // Its next execution starts another agent.
                    if let Ok((ended, workspace)) = ended {
                        known.remove(&workspace);
                        if let Err(error) = ended {
                            tracing::warn!(%error, instance = &*workspace, "the worker for this instance has ended");
                        }
                    }
                }
            }
        };
        // The operator's stop ends one agent; the others follow. A second stop would end their grace period.
        if !stop.is_stop_requested() {
            stop.stop();
        }
        while others.join_next().await.is_some() {}
        match ended {
            Ok(ended) => ended,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}
