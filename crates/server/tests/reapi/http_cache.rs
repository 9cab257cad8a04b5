//! The cache over plain HTTP, as Bazel, ccache and moon use it.

use bazel_remote_apis::build::bazel::remote::execution::v2::action_cache_client::ActionCacheClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::capabilities_client::CapabilitiesClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    ActionResult, GetCapabilitiesRequest, UpdateActionResultRequest,
};
use reqwest::StatusCode;
use server::reapi::Settings;

use crate::support::{Served, digest};

const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

async fn call(
    served: &Served,
    method: &str,
    path: &str,
    body: Option<Vec<u8>>,
) -> (StatusCode, Vec<u8>, Option<u64>) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut request = client.request(method.parse().unwrap(), format!("http://{}{path}", served.address));
    if let Some(body) = body {
        request = request.body(body);
    }
    let response = request.send().await.unwrap();
    let length = response.headers().get("content-length").and_then(|value| value.to_str().ok()?.parse().ok());
    (response.status(), response.bytes().await.unwrap().to_vec(), length)
}

#[tokio::test]
async fn content_is_put_got_and_looked_for_under_its_hash() {
    let served = Served::start().await;
    for content in [&b"small"[..], &[7; 300_000]] {
        let path = format!("/cas/{}", digest(content).hash);
        assert_eq!(call(&served, "GET", &path, None).await.0, StatusCode::NOT_FOUND);
        assert_eq!(call(&served, "HEAD", &path, None).await.0, StatusCode::NOT_FOUND);
        assert!(call(&served, "PUT", &path, Some(content.to_vec())).await.0.is_success());
        assert!(call(&served, "PUT", &path, Some(content.to_vec())).await.0.is_success());
        let (status, got, _) = call(&served, "GET", &path, None).await;
        assert_eq!((status, got.as_slice()), (StatusCode::OK, content));
        let (status, _, length) = call(&served, "HEAD", &path, None).await;
        assert_eq!((status, length), (StatusCode::OK, Some(content.len() as u64)));
        let below = format!("/some{path}");
        assert_eq!(
            call(&served, "GET", &below, None).await.1,
            content,
            "content is the same below any prefix"
        );
    }
    served.stop().await;
}

#[tokio::test]
async fn content_that_is_not_what_its_name_says_is_refused() {
    let served = Served::start().await;
    let path = format!("/cas/{}", digest(b"truth").hash);
    assert_eq!(call(&served, "PUT", &path, Some(b"a lie".to_vec())).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(call(&served, "GET", &path, None).await.0, StatusCode::NOT_FOUND);
    for bad in ["/cas/xyz", "/ac/xyz", &format!("/cas/{}", KEY.to_uppercase()), &format!("/cas/{}0", KEY)] {
        assert_eq!(call(&served, "GET", bad, None).await.0, StatusCode::BAD_REQUEST, "{bad}");
        assert_eq!(call(&served, "PUT", bad, Some(vec![1])).await.0, StatusCode::BAD_REQUEST, "{bad}");
    }
    served.stop().await;
}

/// ccache keeps its own bytes there and moon JSON, under keys that are the digest of nothing.
#[tokio::test]
async fn anything_may_stand_under_a_key_and_each_prefix_has_its_own() {
    let served = Served::start().await;
    let (plain, below) = (format!("/ac/{KEY}"), format!("/cache/ac/{KEY}"));
    for (path, body) in [(&plain, &b"{\"not\":\"protobuf\"}"[..]), (&below, b""), (&plain, b"replaced")] {
        assert!(call(&served, "PUT", path, Some(body.to_vec())).await.0.is_success());
        let (status, got, _) = call(&served, "GET", path, None).await;
        assert_eq!((status, got.as_slice()), (StatusCode::OK, body));
    }
    assert_eq!(call(&served, "GET", &below, None).await.1, b"");
    assert_eq!(call(&served, "GET", &format!("/v1/ac/{KEY}"), None).await.0, StatusCode::NOT_FOUND);
    let served = served.restart().await;
    assert_eq!(call(&served, "GET", &plain, None).await.1, b"replaced");
    assert_eq!(call(&served, "GET", "/status", None).await.0, StatusCode::OK);
    served.stop().await;
}

/// The HTTP cache was open for writing although the capabilities said no.
#[tokio::test]
async fn entries_are_not_written_where_clients_may_not_update_the_action_cache() {
    let settings = Settings { allow_uploads: false, ..Settings::default() };
    let served = Served::start_with(settings).await;
    let (status, problem, _) = call(&served, "PUT", &format!("/ac/{KEY}"), Some(vec![1])).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(String::from_utf8(problem).unwrap().contains("capabilities.action_cache_update_enabled"));
    assert_eq!(call(&served, "GET", &format!("/ac/{KEY}"), None).await.0, StatusCode::NOT_FOUND);
    let blob = format!("/cas/{}", digest(b"content").hash);
    assert!(call(&served, "PUT", &blob, Some(b"content".to_vec())).await.0.is_success(), "blobs are checked");

    let action = served.action(&["true"]).await;
    let request = UpdateActionResultRequest {
        action_digest: Some(action),
        action_result: Some(ActionResult::default()),
        ..Default::default()
    };
    let refused =
        ActionCacheClient::new(served.channel().await).update_action_result(request).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied);
    assert!(refused.message().contains("capabilities.action_cache_update_enabled"), "{}", refused.message());
    let mut capabilities = CapabilitiesClient::new(served.channel().await);
    let told = capabilities.get_capabilities(GetCapabilitiesRequest::default()).await.unwrap().into_inner();
    let updates = told.cache_capabilities.unwrap().action_cache_update_capabilities.unwrap();
    assert!(!updates.update_enabled);
    served.stop().await;
}
