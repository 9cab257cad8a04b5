//! The embedded worker serves every instance of its machine: whoever names one expects his actions to run. It works for
//! the default instance from the start, and for another one from its first execution on.
//!
//! An instance is a workspace, and a worker works for one, so each has an agent of its own under a name of its own; they
//! share the slots and resources of the machine, the cache of inputs and the directories for actions. Results stay apart
//! (R56): this says who runs, not who sees. Other tenants have to bring workers of their own.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use authority::Scope;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;
use wire::DEFAULT_SCOPE_NAME;
use worker::{Agent, Config, Error, Pool, Stopper, Work};

/// Most instances beside the default one. Anybody may name any, and each costs a connection.
const MAX_INSTANCES: usize = 64;
/// Words about instances that wait to be heard; what does not fit is said again with the next execution.
const MAX_UNHEARD: usize = 256;

/// How long a worker whose name was taken leaves it to whoever took it. Two that want it do not take turns any faster.
const NAME_PAUSE: Duration = Duration::from_secs(5);

/// The instances that have executions, as they are heard of.
pub(crate) struct Instances(mpsc::Receiver<Scope>);

impl Instances {
    pub(crate) fn channel() -> (mpsc::Sender<Scope>, Instances) {
        let (to, from) = mpsc::channel(MAX_UNHEARD);
        (to, Instances(from))
    }

    /// Works for all of them until it is told to stop, or the agent of the default one ends. One whose name was taken
    /// takes it back: anybody who reaches the server can register under it, and must not be able to end the work here.
    pub(crate) async fn serve(mut self, config: Config, work: Arc<Work>, stop: Stopper) -> Result<(), Error> {
        let pool = Pool::new(&config);
        let serve = |config: Config| Agent::serve_from(&pool, config, work.clone(), stop.clone());
        let mut default = tokio::spawn(serve(config.clone()));
        let mut others = JoinSet::new();
        let mut known = HashSet::from([Arc::from(DEFAULT_SCOPE_NAME)]);
        let ended = loop {
            tokio::select! {
                ended = &mut default => {
                    let Ok(Err(error @ Error::Superseded { .. })) = ended else { break ended };
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
                    // Heard of again, it is tried again.
                    if let Ok((ended, workspace)) = ended {
                        known.remove(&workspace);
                        if let Err(error) = ended {
                            tracing::warn!(%error, instance = &*workspace, "the worker for this instance has ended");
                        }
                    }
                }
            }
        };
        if !matches!(ended, Ok(Ok(()))) {
            // Nobody has told the others.
            stop.stop();
        }
        while others.join_next().await.is_some() {}
        match ended {
            Ok(ended) => ended,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}
