//! One cell of the table: a server, a contract, and what must be true of every answer and at the end.

use serde_json::{Value, json};

use crate::expected_messages::{Kind, expected_message};
use crate::held::{Contract, Held, Say};
use crate::support::Served;

pub(crate) struct Cell {
    pub served: Served,
    pub contract: Contract,
}

impl Cell {
    /// A queue with attempts to spare and no pause between them.
    pub(crate) async fn new(contract: Contract) -> Cell {
        let served = Served::start().await;
        let config = json!({"maxAttempts": 9, "backoff": {"initialMs": 0, "jitter": 0}});
        assert_eq!(served.put("/v1/queues/q", config).await.status, 200);
        Cell { served, contract }
    }

    /// A task that was submitted and leased through the contract.
    pub(crate) async fn leased(&self) -> Held {
        self.served.submit("q").await;
        self.contract.lease(&self.served).await
    }

    /// The next attempt of the same task.
    pub(crate) async fn leased_again(&self, before: &Held) -> Held {
        let held = self.contract.lease(&self.served).await;
        assert_eq!((&held.task, held.attempt), (&before.task, before.attempt + 1));
        assert!(held.lease > before.lease);
        held
    }

    /// Says it, and expects an answer.
    pub(crate) async fn says(&self, held: &Held, say: Say, kind: Kind) {
        let told = self.contract.say(&self.served, held, say.clone()).await;
        assert_eq!(told, expected_message(kind, self.contract), "{:?}, {say:?}, {held:?}", self.contract);
    }

    /// The same, and nothing is recorded by it.
    pub(crate) async fn says_in_vain(&self, held: &Held, say: Say, kind: Kind) {
        let position = self.served.position().await;
        self.says(held, say.clone(), kind).await;
        assert_eq!(self.served.position().await, position, "{:?} recorded something: {say:?}", self.contract);
    }

    pub(crate) async fn completes(&self, held: &Held, result: Value) {
        self.says(held, Say::Complete(result), Kind::Committed).await;
    }

    /// The task ended so, and by exactly one outcome.
    pub(crate) async fn ended(&self, held: &Held, state: &str, result: Value) {
        let task = self.served.task(&held.task).await;
        assert_eq!((task["state"].as_str(), &task["result"]), (Some(state), &result), "{:?}", self.contract);
        assert_eq!(self.count(held, is_outcome).await, 1, "{:?}: one outcome", self.contract);
    }

    pub(crate) async fn count(&self, held: &Held, is_wanted: fn(&Value) -> bool) -> usize {
        let history = self.served.get(&format!("/v1/tasks/{}/history", held.task)).await.body;
        history["events"].as_array().unwrap().iter().filter(|event| is_wanted(event)).count()
    }
}

/// Whether a record ends its task.
fn is_outcome(event: &Value) -> bool {
    match event["type"].as_str().unwrap() {
        "TaskCompleted" | "TaskDead" => true,
        "TaskFailed" => event["retryAt"].is_null(),
        _ => false,
    }
}
