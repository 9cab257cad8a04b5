//! Sends a bad credential by every protocol that takes one: HTTP, gRPC, and the HTTP cache with the credential as a token and as a
//! password.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bazel_remote_apis::build::bazel::remote::execution::v2::GetCapabilitiesRequest;
use bazel_remote_apis::build::bazel::remote::execution::v2::capabilities_client::CapabilitiesClient;
use reqwest::RequestBuilder;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde_json::json;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use wire::grpc::SubmitTasksRequest;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;

use crate::guarded::Guarded;
use crate::keyed::channel;

/// Longer headers are refused by HTTP/2 itself, with 431.
const MAX_HTTP2_HEADER_BYTES: usize = 32 * 1_024;

pub(crate) fn basic(text: &[u8]) -> String {
    format!("Basic {}", STANDARD.encode(text))
}

pub(crate) struct Refusals<'a> {
    guarded: &'a Guarded,
    channel: Channel,
}

impl Refusals<'_> {
    pub(crate) async fn of(guarded: &Guarded) -> Refusals<'_> {
        Refusals { guarded, channel: channel(guarded).await }
    }

    /// Expects that these values of the header `authorization` admit nobody, and returns the body of the answer to a submit.
    pub(crate) async fn expect(&self, name: &str, values: &[Vec<u8>]) -> String {
        let header = |value: &Vec<u8>| (AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
        let mut headers = HeaderMap::new();
        for (field, value) in values.iter().map(header) {
            headers.append(field, value);
        }
        self.expect_over_grpc(name, &headers).await;
        let cache = format!("/cas/{}", "0".repeat(64));
        for method in ["GET", "PUT"] {
            self.over_http(name, method, &cache, &headers).await;
        }
        if let [value] = values
            && let Some(credential) = value.strip_prefix(b"Bearer ")
        {
            let password = basic(&[b"user:", credential].concat());
            let headers = HeaderMap::from_iter([(AUTHORIZATION, password.parse().unwrap())]);
            self.over_http(name, "GET", &cache, &headers).await;
            self.expect_over_grpc(name, &headers).await;
        }
        self.over_http(name, "POST", "/v1/tasks", &headers).await
    }

    /// Returns the body of a refusal over HTTP.
    async fn over_http(&self, name: &str, method: &str, path: &str, headers: &HeaderMap) -> String {
        let request: RequestBuilder = self.guarded.served.request(method, path).headers(headers.clone());
        let request = match method {
            "GET" => request,
            _ => request.json(&json!({"queue": "q", "payload": 1})),
        };
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 401, "{name}: {method} {path}");
        let challenges = response.headers().get_all("www-authenticate").iter().count();
        assert_eq!(challenges, 2, "{name}: {method} {path}");
        let body = response.text().await.unwrap();
        assert!(body.contains("\"unauthenticated\""), "{name}: {method} {path}: {body}");
        body
    }

    async fn expect_over_grpc(&self, name: &str, headers: &HeaderMap) {
        let request = SubmitTasksRequest::default();
        let submit = self.request(headers, request);
        let told = WorkerSchedulerClient::new(self.channel.clone()).submit_tasks(submit).await;
        check(name, headers, told.map(|_| ()));
        let capabilities = self.request(headers, GetCapabilitiesRequest::default());
        let told = CapabilitiesClient::new(self.channel.clone()).get_capabilities(capabilities).await;
        check(name, headers, told.map(|_| ()));
    }

    fn request<T>(&self, headers: &HeaderMap, message: T) -> Request<T> {
        let mut request = Request::new(message);
        *request.metadata_mut() = MetadataMap::from_headers(headers.clone());
        request
    }
}

#[track_caller]
fn check(name: &str, headers: &HeaderMap, told: Result<(), Status>) {
    let status = told.expect_err(name);
    if headers.values().any(|value| value.len() > MAX_HTTP2_HEADER_BYTES) {
        assert!(status.message().contains("431"), "{name}: {status:?}");
    } else {
        assert_eq!(status.code(), Code::Unauthenticated, "{name}: {status:?}");
    }
}
