//! A worker that was written from the remote execution plan alone: its client is generated from the plan's own protobuf
//! text, so it knows no lease ids, no sessions and no other addition of ours. Content is transferred by the Remote
//! Execution API.

mod agent;
mod content;

use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::support::Server;
use crate::support_worker::until;
use agent::Agent;

#[allow(clippy::all, dead_code, unreachable_pub)]
mod worker_api {
    include!("generated/build.bazel.remote.execution.v2.rs");
}

/// The worker as the tests see it.
pub(crate) struct DocumentWorker {
    agent: Arc<Agent>,
    run: JoinHandle<()>,
    /// Everything of the worker is in here, and ends with it.
    runtime: Runtime,
}

impl DocumentWorker {
    /// Starts a worker that runs up to two actions at a time.
    pub(crate) fn start(server: &Server, id: &str) -> DocumentWorker {
        DocumentWorker::start_with_faults(server, id, 0)
    }

    /// The same, and its first attempts fail for a fault of the worker's machine.
    pub(crate) fn start_with_faults(server: &Server, id: &str, faults: usize) -> DocumentWorker {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let agent = Arc::new(runtime.block_on(Agent::connect(&server.url(), id, faults)));
        let run = runtime.spawn(agent.clone().run());
        DocumentWorker { agent, run, runtime }
    }

    /// The tasks that it was leased, in this order.
    pub(crate) fn leased(&self) -> Vec<String> {
        self.agent.leased()
    }

    /// The calls that the server has refused.
    pub(crate) fn refusals(&self) -> Vec<String> {
        self.agent.refusals()
    }

    /// Returns once the worker has asked for tasks and was answered, after this call began.
    pub(crate) fn until_it_asked_again(&self) {
        // The first of these answers may be to a request from before.
        let answered = self.agent.answered_polls() + 2;
        until(|| (self.agent.answered_polls() >= answered).then_some(()));
    }

    /// Returns once the server has asked the worker to shut down.
    pub(crate) fn until_asked_to_shut_down(&self) {
        until(|| self.agent.is_stopping().then_some(()));
    }

    /// Ends the worker without a word: its connections close, and its commands are killed.
    pub(crate) fn vanish(self) {
        drop(self.runtime);
    }

    /// Waits until the worker ends by itself.
    pub(crate) fn ended(self) {
        until(|| self.run.is_finished().then_some(()));
        self.runtime.block_on(self.run).expect("the worker has panicked");
    }
}
