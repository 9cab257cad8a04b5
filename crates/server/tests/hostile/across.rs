//! A12: a lease that was taken through one contract is reported through another when its identity matches; the first
//! report stands, and its repeat is a repeat whichever way it comes.

use serde_json::{Value, json};

use crate::expected_messages::{Kind, expected_message};
use crate::held::{CONTRACTS, Contract, Held, Say};
use crate::support::Served;
use crate::support::callback::{HOLDER, sign};

/// A server that has signed a token, so that its first key is recorded.
async fn with_key() -> Served {
    let served = Served::start().await;
    served.push("other").await;
    served
}

/// One lease, with its proof in every contract.
async fn held(served: &Served) -> Held {
    served.submit("q").await;
    let job = served.claim(HOLDER, &["q"]).await;
    let task = job["job_id"].as_str().unwrap().to_owned();
    let claims = json!({"tenantId": "default", "workspaceId": "default", "runId": "r", "taskId": task,
        "attempt": job["attempt"], "lease": job["fencing_token"], "holder": HOLDER, "iat": 0, "nbf": 0,
        "exp": u64::MAX});
    Held {
        attempt: 1,
        lease: job["fencing_token"].as_u64().unwrap(),
        holder: HOLDER,
        worker: HOLDER.to_owned(),
        lease_id: job["lease_token"].as_str().unwrap().to_owned(),
        token: sign("k1.1", &claims),
        scope: None,
        task,
    }
}

async fn says(served: &Served, held: &Held, contract: Contract, say: Say, kind: Kind) {
    let told = contract.say(served, held, say.clone()).await;
    assert_eq!(told, expected_message(kind, contract), "{contract:?} {say:?}");
}

#[tokio::test]
async fn a12_a_report_is_the_same_report_through_every_contract() {
    let served = with_key().await;
    for first in CONTRACTS {
        for second in CONTRACTS {
            let one = held(&served).await;
            says(&served, &one, first, Say::Complete(json!({"a": 1, "b": 2})), Kind::Committed).await;
            let position = served.position().await;
            says(&served, &one, second, Say::Complete(json!({"b": 2.0, "a": 1})), Kind::Committed).await;
            says(&served, &one, second, Say::Complete(json!(3)), Kind::ConflictingReport).await;
            says(&served, &one, second, Say::Fail(false), Kind::ConflictingReport).await;

            let other = held(&served).await;
            says(&served, &other, first, Say::Fail(false), Kind::Committed).await;
            says(&served, &other, second, Say::Fail(false), Kind::Committed).await;
            assert_eq!(served.task(&other.task).await["state"], "FAILED");
            assert_eq!(served.task(&one.task).await["result"], json!({"a": 1, "b": 2}));
            assert_eq!(served.position().await, position + 3, "a submit, a claim and a report");
        }
    }
}

#[tokio::test]
async fn a12_a_lease_is_kept_alive_through_every_contract() {
    let served = with_key().await;
    let held = held(&served).await;
    for contract in CONTRACTS {
        assert_eq!(contract.say(&served, &held, Say::Beat).await, "OK", "{contract:?}");
    }
    says(&served, &held, Contract::Native, Say::Complete(json!(1)), Kind::Committed).await;
}

#[tokio::test]
async fn a12_a_lease_that_was_given_back_is_lost_in_every_contract() {
    let served = with_key().await;
    let held = held(&served).await;
    held.release(&served).await;
    for contract in CONTRACTS {
        says(&served, &held, contract, Say::Complete(json!(1)), Kind::Lost).await;
    }
    assert_eq!(served.task(&held.task).await["state"], "WAITING");
}

/// A lease id is no task token, and a task token is no lease id.
#[tokio::test]
async fn a12_another_identity_is_refused_through_every_contract() {
    let served = with_key().await;
    let held = held(&served).await;
    let position = served.position().await;
    let swapped = Held { lease_id: held.token.clone(), token: held.lease_id.clone(), ..held.clone() };
    let mut claims: Value = json!({"tenantId": "default", "workspaceId": "default", "runId": "r"});
    claims["taskId"] = json!(held.task);
    claims["holder"] = json!("v");
    for (claim, value) in [("attempt", 1), ("lease", held.lease), ("iat", 0), ("nbf", 0), ("exp", u64::MAX)] {
        claims[claim] = json!(value);
    }
    let another = Held { worker: "v".to_owned(), token: sign("k1.1", &claims), ..held.clone() };
    for contract in CONTRACTS {
        says(&served, &swapped, contract, Say::Complete(json!(1)), Kind::Foreign).await;
        says(&served, &another, contract, Say::Complete(json!(1)), Kind::Foreign).await;
    }
    assert_eq!(served.position().await, position);
}

/// However many tell different stories of one attempt at the same time, through whichever contract, one is accepted.
#[tokio::test]
async fn a12_of_many_stories_at_once_one_is_accepted() {
    let served = std::sync::Arc::new(with_key().await);
    let held = held(&served).await;
    let mut stories = tokio::task::JoinSet::new();
    for n in 0..30 {
        let (served, held, contract) = (served.clone(), held.clone(), CONTRACTS[n % CONTRACTS.len()]);
        stories.spawn(async move {
            let told = contract.say(&served, &held, Say::Complete(json!(n))).await;
            let refused = expected_message(Kind::ConflictingReport, contract);
            assert!(told == "COMMITTED" || told == refused, "{contract:?}: {told}");
            told == "COMMITTED"
        });
    }
    assert_eq!(stories.join_all().await.into_iter().filter(|committed| *committed).count(), 1);
}
