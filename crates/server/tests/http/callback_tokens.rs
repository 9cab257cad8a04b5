//! Task tokens over the wire: nobody speaks of an attempt without the token that was made for it, and keys change
//! without anybody losing one that is good.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::support::callback::{HOLDER, Pushed, sign};
use crate::support::{Served, Told, send};

fn calls(pushed: &Pushed) -> [(&'static str, Value); 3] {
    [("started", pushed.started()), ("heartbeat", pushed.beat()), ("completed", pushed.succeeded(json!(1)))]
}

#[track_caller]
fn is_unauthorised(told: &Told) {
    told.is_refused(401, "invalid_token");
    let bare = json!({"error": "invalid_token", "message": "The task token is not valid"});
    assert_eq!(told.body, bare, "no detail for those who guess");
    assert_eq!(told.headers["www-authenticate"], "Bearer");
}

async fn refused(served: &Served, pushed: &Pushed, tokens: &[String]) {
    let position = served.position().await;
    for token in tokens {
        for (what, body) in calls(pushed) {
            is_unauthorised(&served.call_with(&pushed.task, token, what, body).await);
        }
    }
    assert_eq!(served.position().await, position);
}

#[tokio::test]
async fn s1_6_every_callback_needs_its_token() {
    let served = Served::start().await;
    let pushed = served.push("q").await;
    let position = served.position().await;
    for (what, body) in calls(&pushed) {
        let call = || served.request("POST", &format!("/v1/tasks/{}/{what}", pushed.task)).json(&body);
        is_unauthorised(&send(call()).await);
        is_unauthorised(&send(call().header("authorization", &pushed.token)).await);
        is_unauthorised(&send(call().header("authorization", format!("Basic {}", pushed.token))).await);
        is_unauthorised(&send(call().bearer_auth(&pushed.token).bearer_auth(&pushed.token)).await);
        // Without a token the rest of the request is not looked at.
        let malformed = served.request("POST", &format!("/v1/tasks/{}/{what}", pushed.task)).body("{");
        is_unauthorised(&send(malformed).await);
    }
    assert_eq!(served.position().await, position);
    served.call(&pushed, "completed", pushed.succeeded(json!(1))).await.is_final("SUCCEEDED");
}

/// S1-7, S1-9 and S1-12: the token in the envelope is a JSON Web Token for this attempt alone.
#[tokio::test]
async fn s1_7_a_token_is_scoped_to_one_attempt() {
    let served = Served::start().await;
    let pushed = served.push("q").await;
    let header = URL_SAFE_NO_PAD.decode(pushed.token.split('.').next().unwrap()).unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    assert_eq!(header, json!({"alg": "HS256", "typ": "JWT", "kid": "k1.1"}));
    let claims = pushed.claims();
    for (claim, value) in [
        ("tenantId", json!("default")),
        ("workspaceId", json!("default")),
        ("runId", json!(format!("run_{}", pushed.task))),
        ("taskId", json!(pushed.task)),
        ("attempt", json!(1)),
        ("holder", json!(HOLDER)),
    ] {
        assert_eq!(claims[claim], value, "{claim}");
    }
    // S1-8: an hour by default, and the envelope says until when.
    assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 3_600);
    let expires_at: jiff::Timestamp = pushed.envelope["tokenExpiresAt"].as_str().unwrap().parse().unwrap();
    assert_eq!(expires_at.as_second() as u64, claims["exp"].as_u64().unwrap());
    assert_eq!(sign("k1.1", &claims).split('.').count(), 3);
}

/// The queue's heartbeat interval is 20 s, so a token lives for at least 40 s.
#[tokio::test]
async fn s1_8_a_token_lives_as_long_as_configured() {
    for (configured_s, lives_s) in [(90, 90), (7_200, 7_200), (1, 40)] {
        let token_ttl = std::time::Duration::from_secs(configured_s);
        let push = server::PushOptions { token_ttl, ..server::PushOptions::default() };
        let options = server::Options { push, ..server::Options::default() };
        let served = Served::start_with_options(server::Limits::default(), options).await;
        let claims = served.push("q").await.claims();
        let lives = claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap();
        assert_eq!(lives, lives_s, "{configured_s}");
    }
}

#[tokio::test]
async fn s1_10_a_token_is_no_good_for_another_task() {
    let served = Served::start().await;
    let (one, other) = (served.push("q").await, served.push("q").await);
    refused(&served, &one, std::slice::from_ref(&other.token)).await;
    for task in ["x", "01900000-0000-7000-8000-000000000001", &other.task.to_uppercase()] {
        for (what, body) in calls(&other) {
            is_unauthorised(&served.call_with(task, &other.token, what, body).await);
        }
    }
}

#[tokio::test]
async fn a11_a_token_is_no_good_in_another_tenant_or_workspace() {
    let served = Served::start().await;
    let pushed = served.push("q").await;
    let position = served.position().await;
    for (what, body) in calls(&pushed) {
        let path = format!("/v1/tasks/{}/{what}", pushed.task);
        for header in ["lessor-tenant", "lessor-workspace"] {
            let call = |value: &str| {
                let call = served.request("POST", &path).bearer_auth(&pushed.token).header(header, value);
                send(call.json(&body))
            };
            is_unauthorised(&call("other").await);
            call("").await.is_refused(400, "invalid_argument");
        }
    }
    assert_eq!(served.position().await, position);
    let own = served.request("POST", &format!("/v1/tasks/{}/started", pushed.task));
    let own = own.header("lessor-tenant", "default").bearer_auth(&pushed.token);
    assert_eq!(send(own.json(&pushed.started())).await.status, 200, "its own may be named");
}

#[tokio::test]
async fn x1_forged_tokens_are_refused() {
    let served = Served::start().await;
    let pushed = served.push("q").await;
    let parts: Vec<_> = pushed.token.split('.').collect();
    let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let none = encode(json!({"alg": "none", "typ": "JWT", "kid": "k1.1"}));
    let public = encode(json!({"alg": "RS256", "typ": "JWT", "kid": "k1.1"}));
    let mut greedy = pushed.claims();
    greedy["exp"] = json!(u64::MAX);
    let mut tokens = vec![
        String::new(),
        "x".into(),
        "..".into(),
        "x".repeat(7_000),
        format!("{none}.{}.", parts[1]),
        format!("{none}.{}.{}", parts[1], parts[2]),
        format!("{public}.{}.{}", parts[1], parts[2]),
        format!("{}.{}.{}", parts[0], encode(greedy), parts[2]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}=", pushed.token),
    ];
    // Keys that were never recorded sign nothing, although they could be made.
    tokens
        .extend(["k2.1", "k2.2", "k1.0", "k01.1", "", "../lease.key"].map(|kid| sign(kid, &pushed.claims())));
    // Even with the right key, what was never granted is nobody's.
    for (claim, value) in [
        ("lease", json!(999_999)),
        ("lease", json!(0)),
        ("holder", json!("somebody")),
        ("attempt", json!("1")),
        ("taskId", json!("nope")),
        ("exp", json!(1)),
        ("nbf", json!(u64::MAX)),
        ("exp", json!(null)),
    ] {
        tokens.push(pushed.with_claim(claim, value));
    }
    refused(&served, &pushed, &tokens).await;
    // The tests sign as the server does, or the list above would prove nothing.
    let own = sign("k1.1", &pushed.claims());
    served.call_with(&pushed.task, &own, "completed", pushed.succeeded(json!(1))).await.is_final("SUCCEEDED");
}

#[tokio::test]
async fn x1_a_token_that_names_another_tenant_finds_nothing_there() {
    let served = Served::start().await;
    let pushed = served.push("q").await;
    for claim in ["tenantId", "workspaceId"] {
        let token = pushed.with_claim(claim, json!("other"));
        for (what, body) in calls(&pushed) {
            let told = served.call_with(&pushed.task, &token, what, body).await;
            told.is_refused(404, "task_not_found");
        }
    }
}

/// X3: a token that is replayed after the end speaks of an attempt that is over.
#[tokio::test]
async fn x3_a_replayed_token_changes_nothing() {
    let served = Served::start().await;
    let pushed = served.push("q").await;
    served.call(&pushed, "completed", pushed.succeeded(json!(1))).await.is_final("SUCCEEDED");
    let position = served.position().await;
    served.call(&pushed, "started", pushed.started()).await.is_terminal("SUCCEEDED");
    served.call(&pushed, "heartbeat", pushed.beat()).await.is_refused(410, "task_expired");
    served.call(&pushed, "completed", pushed.failed("USER_CODE", None)).await;
    assert_eq!(served.position().await, position);
}

/// S1-11: tokens that grow old are replaced by the heartbeat, for the same attempt.
#[tokio::test]
async fn c22_a_heartbeat_renews_a_token_that_the_task_may_outlive() {
    let served = Served::start().await;
    let pushed = served.push("q").await;
    let fresh = served.call(&pushed, "heartbeat", pushed.beat()).await;
    assert!(fresh.body.get("taskToken").is_none(), "{fresh:?}");
    let now = jiff::Timestamp::now().as_second() as u64;
    let mut claims = pushed.claims();
    (claims["iat"], claims["nbf"], claims["exp"]) =
        (json!(now - 1_900), json!(now - 1_900), json!(now + 1_700));
    let old = sign("k1.1", &claims);
    let told = served.call_with(&pushed.task, &old, "heartbeat", pushed.beat()).await;
    assert_eq!(told.status, 200, "{told:?}");
    let expires_at: jiff::Timestamp = told.text("tokenExpiresAt").parse().unwrap();
    assert!(expires_at.as_second() as u64 >= now + 3_590, "{told:?}");
    let new = Pushed { token: told.text("taskToken"), ..pushed };
    for claim in ["tenantId", "workspaceId", "runId", "taskId", "attempt", "lease", "holder"] {
        assert_eq!(new.claims()[claim], claims[claim], "{claim}");
    }
    served.call(&new, "completed", new.succeeded(json!(1))).await.is_final("SUCCEEDED");
}

#[tokio::test]
async fn c22_a_token_that_covers_the_deadline_is_not_renewed() {
    let served = Served::start().await;
    let deadline = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(600);
    let task = json!({"queue": "q", "payload": 1, "deadline": deadline.to_string()});
    assert_eq!(served.post("/v1/tasks", task).await.status, 201);
    let pushed = served.push_next("q").await;
    let mut claims = pushed.claims();
    claims["iat"] = json!(claims["iat"].as_u64().unwrap() - 1_900);
    let told = served.call_with(&pushed.task, &sign("k1.1", &claims), "heartbeat", pushed.beat()).await;
    assert_eq!(told.status, 200, "{told:?}");
    assert!(told.body.get("taskToken").is_none(), "{told:?}");
}

#[tokio::test]
async fn x4_a_rotated_key_signs_and_the_last_one_is_still_believed() {
    let served = Served::start().await;
    let pushed = served.push("q").await;
    let rotate = |body: Value| served.post("/v1/token-keys/rotate", body);
    let rotated = send(served.request("POST", "/v1/token-keys/rotate")).await;
    assert_eq!((rotated.status, &rotated.body), (200, &json!({"keyId": "k2.1"})), "{rotated:?}");
    let told = served.call(&pushed, "heartbeat", pushed.beat()).await;
    assert_eq!(told.status, 200, "the old key is good until its tokens run out: {told:?}");
    let renewed = Pushed { token: told.text("taskToken"), ..pushed };
    assert!(served.call(&renewed, "heartbeat", renewed.beat()).await.body.get("taskToken").is_none());
    let other = served.push("q").await;

    let retired = rotate(json!({"retireOld": true})).await;
    assert_eq!(retired.body, json!({"keyId": "k3.3"}));
    refused(&served, &other, std::slice::from_ref(&other.token)).await;
    rotate(json!({"retire": true})).await.is_problem(400, "invalid_field");
    let fresh = served.push("q").await;
    served.call(&fresh, "completed", fresh.succeeded(json!(1))).await.is_final("SUCCEEDED");
}

#[tokio::test]
async fn x1_a_made_up_token_records_nothing_not_even_the_first_key() {
    let served = Served::start().await;
    let task = served.submit("q").await;
    let position = served.position().await;
    let claims = json!({"tenantId": "default", "workspaceId": "default", "runId": "r", "taskId": task,
        "attempt": 1, "lease": 2, "holder": "w", "iat": 0, "nbf": 0, "exp": u64::MAX});
    for token in ["x".to_owned(), sign("k1.1", &claims)] {
        is_unauthorised(&served.call_with(&task, &token, "heartbeat", json!({})).await);
    }
    assert_eq!(served.position().await, position);
}

/// The ledger holds the key's name, and the secret stays in the directory: a restart changes nothing.
#[tokio::test]
async fn x4_tokens_and_rotations_survive_a_restart() {
    let served = Served::start().await;
    let before = served.push("q").await;
    assert_eq!(served.post("/v1/token-keys/rotate", json!({})).await.body["keyId"], "k2.1");
    let after = served.push("q").await;
    let served = served.restarted().await;
    for pushed in [before, after] {
        served.call(&pushed, "completed", pushed.succeeded(json!(1))).await.is_final("SUCCEEDED");
    }
    assert_eq!(served.post("/v1/token-keys/rotate", json!({})).await.body["keyId"], "k3.2");
}
