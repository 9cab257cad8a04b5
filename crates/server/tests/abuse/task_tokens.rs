//! Calls with a task token need no key, so anyone may make them: a made-up token is refused without the coordinator.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use crate::guarded::Guarded;

/// Every call with a made-up token was a read of the coordinator.
#[tokio::test]
async fn made_up_task_tokens_do_not_reach_the_coordinator() {
    let guarded = Guarded::start().await;
    let encode = |json: serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let header = json!({"typ": "JWT", "alg": "HS256", "kid": "k1.1"});
    let made_up = format!("{}.{}.{}", encode(header), encode(json!({})), "A".repeat(43));
    let other_form = made_up.replace('.', "-");
    let path = "/v1/tasks/01900000-0000-7000-8000-0000000000bb/started";
    let url = format!("http://{}{path}", guarded.served.address);
    let client = guarded.served.client.clone();
    let status = async |token: &str| {
        let request = client.post(&url).bearer_auth(token).json(&json!({"attempt": 1, "workerId": "w"}));
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(status(&made_up).await, 401, "the first one asks whether there is a key");
    // The server goes on without its coordinator.
    guarded.served.running.stop().await.unwrap();
    assert_eq!(status(&made_up).await, 401);
    assert_eq!(status(&other_form).await, 401);
    assert_eq!(status("").await, 401);
}
