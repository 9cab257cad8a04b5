//! The configuration of push targets: which are accepted, and what is shown of them.

use std::sync::Arc;

use authority::command::{ConfigureAnswer, ConfigureQueue};
use authority::{PushTarget, QueueConfig, QueueKey, Scope};
use serde_json::{Value, json};

use crate::support::Served;
use crate::support::target::Target;

const SECRET: &str = "a secret of sixteen bytes or more";

async fn configure(served: &Served, push: Value) -> crate::support::Told {
    served.put("/v1/queues/q", json!({"push": push})).await
}

#[tokio::test]
async fn x5_by_default_only_targets_on_the_internet_are_taken() {
    let served = Served::start().await;
    for url in [
        "http://example.com/",
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://0177.0.0.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://10.1.2.3/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[fd00::1]/",
        "https://localhost/",
        "https://example.com:22/",
    ] {
        let told = configure(&served, json!({"url": url})).await;
        told.is_problem(400, "invalid_field");
        assert_eq!(told.body["field"], "push.url", "{url}");
        assert!(told.text("detail").contains("--allow-private-push-targets"), "{url}: {told:?}");
    }
    for url in ["file:///etc/passwd", "https://u:p@example.com/", "https://example.com/#x", "nonsense", ""] {
        configure(&served, json!({"url": url})).await.is_problem(400, "invalid_field");
    }
    assert_eq!(served.get("/v1/queues/q").await.status, 404, "nothing was configured");
    assert_eq!(configure(&served, json!({"url": "https://example.com/hook"})).await.status, 200);
    served.stopped().await;
}

#[tokio::test]
async fn a_bad_target_is_refused_by_the_name_of_its_fault() {
    let served = Served::start_pushing().await;
    let url = "http://127.0.0.1:9/";
    let many: Value =
        (0..33).map(|n| (format!("h{n}"), json!("v"))).collect::<serde_json::Map<_, _>>().into();
    let header = |name: &str, value: &str| json!({"url": url, "headers": {name: value}});
    for (push, field) in [
        (json!({"concurrency": 1}), None),
        (json!("https://example.com/"), None),
        (json!(["https://example.com/"]), None),
        (json!({"url": url, "method": "GET"}), None),
        (json!({"url": 7}), None),
        (json!({"url": url, "concurrency": 0}), Some("push.concurrency")),
        (json!({"url": url, "concurrency": 1_001}), Some("push.concurrency")),
        (json!({"url": url, "concurrency": -1}), None),
        (json!({"url": url, "secret": "too short"}), Some("push.secret")),
        (json!({"url": url, "secret": "x".repeat(257)}), Some("push.secret")),
        (json!({"url": url, "secret": "***"}), Some("push.secret")),
        (json!({"url": url, "headers": many}), Some("push.headers")),
        (header("x-long", &"v".repeat(9_000)), Some("push.headers")),
        (header("host", "v"), Some("push.headers.host")),
        (header("Content-Length", "1"), Some("push.headers.Content-Length")),
        (header("content-type", "text/plain"), Some("push.headers.content-type")),
        (header("transfer-encoding", "chunked"), Some("push.headers.transfer-encoding")),
        (header("Lessor-Signature", "v"), Some("push.headers.Lessor-Signature")),
        (header("a b", "v"), Some("push.headers.a b")),
        (header("", "v"), Some("push.headers.")),
        (header("x", "a\r\nhost: evil"), Some("push.headers.x")),
        (header("x", "***"), Some("push.headers.x")),
        (json!({"url": url, "headers": {"x": "1", "X": "2"}}), Some("push.headers.x")),
    ] {
        let told = configure(&served, push.clone()).await;
        told.is_problem(400, "invalid_field");
        if let Some(field) = field {
            assert_eq!(told.body["field"], field, "{push}");
        }
        assert!(!told.body.to_string().contains("too short"), "{told:?}");
    }
    assert_eq!(served.get("/v1/queues/q").await.status, 404, "nothing was configured");
    served.stopped().await;
}

#[tokio::test]
async fn secrets_are_never_shown_and_stay_with_their_origin() {
    let (served, mut target, elsewhere) =
        (Served::start_pushing().await, Target::start().await, Target::start().await);
    let push = json!({"url": target.url(), "headers": {"X-Key": "hush-hush"}, "secret": SECRET});
    let shown = configure(&served, push).await;
    let masked =
        json!({"url": target.url(), "concurrency": 10, "headers": {"x-key": "***"}, "secret": "***"});
    assert_eq!(shown.body["configured"]["push"], masked);
    for path in ["/v1/queues/q", "/v1/queues"] {
        let told = served.get(path).await.body.to_string();
        assert!(told.contains("***") && !told.contains("hush") && !told.contains(SECRET), "{told}");
    }

    // What was read can be written back, and nothing is lost by it.
    let mut again = masked.clone();
    again["concurrency"] = json!(5);
    assert_eq!(configure(&served, again).await.body["configured"]["push"]["concurrency"], 5);
    served.submit("q").await;
    let arrived = target.next().await;
    assert_eq!(arrived.header("x-key"), "hush-hush");
    assert!(arrived.headers.contains_key("lessor-signature"));

    // But whoever moves the target must know its secrets.
    let mut moved = masked;
    moved["url"] = json!(elsewhere.url());
    let told = configure(&served, moved).await;
    told.is_problem(400, "invalid_field");
    assert!(told.text("detail").contains("say it anew"));
    served.stopped().await;
}

#[tokio::test]
async fn the_ledger_has_no_secret_of_a_target_in_clear() {
    let (served, mut target) = (Served::start_pushing().await, Target::start().await);
    let push = json!({"url": target.url(), "headers": {"X-Key": "hush-hush"}, "secret": SECRET});
    assert_eq!(configure(&served, push.clone()).await.status, 200);
    let position = served.position().await;
    assert_eq!(configure(&served, push).await.status, 200);
    assert_eq!(served.position().await, position, "the same configuration costs no record");
    assert!(served.stores(&target.url()), "the address is no secret");
    assert!(!served.stores("hush-hush") && !served.stores(SECRET));
    served.submit("q").await;
    assert_eq!(target.next().await.header("x-key"), "hush-hush");
    served.stopped().await;
}

#[tokio::test]
async fn a_target_that_an_earlier_version_stored_in_clear_is_called_and_encrypted_when_it_is_written_back() {
    let (served, mut target) = (Served::start_pushing().await, Target::start().await);
    let stored = PushTarget {
        url: target.url().into(),
        concurrency: 10,
        headers: vec![("x-key".into(), "hush-hush".into())],
        secret: Some(SECRET.into()),
    };
    let scope = Scope { tenant: "default".into(), workspace: "default".into() };
    let queue = Arc::new(QueueKey { scope, name: "q".into() });
    let config = QueueConfig { push: Some(Arc::new(stored)), ..QueueConfig::default() };
    let configured =
        served.running.handle.configure(ConfigureQueue { queue: queue.clone(), config, by: None }).await;
    assert_eq!(configured.unwrap(), ConfigureAnswer::Configured);
    let served = served.restarted().await;
    served.submit("q").await;
    assert_eq!(target.next().await.header("x-key"), "hush-hush");
    let masked = json!({"url": target.url(), "headers": {"x-key": "***"}, "secret": "***"});
    assert_eq!(configure(&served, masked).await.status, 200);
    let view = served.running.handle.queue((*queue).clone()).await.unwrap().unwrap();
    let secret = view.config.push.unwrap().secret.clone().unwrap();
    assert!(secret.starts_with("sealed-1:"), "{secret}");
    served.submit("q").await;
    let arrived = target.next().await;
    assert_eq!(arrived.header("x-key"), "hush-hush");
    assert!(arrived.headers.contains_key("lessor-signature"));
    served.stopped().await;
}

#[tokio::test]
async fn x5_a_target_that_was_allowed_once_is_not_called_when_it_is_no_more() {
    let (served, target) = (Served::start_pushing().await, Target::start().await);
    served.push_to("q", &target, json!({})).await;
    let served = served.restarted_with(server::Options::default()).await;
    let task = served.submit("q").await;
    assert_eq!(served.lease("w", "q").await["taskId"], task);
    assert!(target.is_idle());
    served.stopped().await;
}
