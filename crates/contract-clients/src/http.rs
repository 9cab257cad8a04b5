//! The HTTP client of all contracts: JSON requests, and responses with their text.

use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder};
use serde::Serialize;
use serde_json::Value;

use crate::Timeouts;

/// A JSON request to a path of the coordinator.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    pub method: Method,
    pub path: String,
    pub bearer_token: Option<String>,
    /// Not sent when it is null.
    pub body: Value,
}

pub struct HttpResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

#[derive(Clone)]
pub struct HttpClient {
    client: Client,
    base_url: String,
}

impl HttpRequest {
    pub fn get(path: impl Into<String>) -> HttpRequest {
        HttpRequest { method: Method::GET, path: path.into(), bearer_token: None, body: Value::Null }
    }

    pub fn post(path: impl Into<String>, body: impl Serialize) -> HttpRequest {
        // A body of this crate's callers is a JSON value or a type of `wire`, which always serializes.
        let body = serde_json::to_value(body).unwrap_or_default();
        HttpRequest { method: Method::POST, body, ..HttpRequest::get(path) }
    }

    pub fn put(path: impl Into<String>, body: impl Serialize) -> HttpRequest {
        HttpRequest { method: Method::PUT, ..HttpRequest::post(path, body) }
    }

    /// Sets one field of the body.
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> HttpRequest {
        self.body[field] = value.into();
        self
    }
}

impl HttpClient {
    pub fn new(base_url: &str, user_agent: &str, timeouts: Timeouts) -> reqwest::Result<HttpClient> {
        let client = Client::builder()
            .connect_timeout(timeouts.connect)
            .timeout(timeouts.call)
            .no_proxy()
            .user_agent(user_agent)
            .build()?;
        Ok(HttpClient { client, base_url: base_url.to_owned() })
    }

    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The request, to which the caller may add headers.
    pub fn build(&self, request: &HttpRequest) -> RequestBuilder {
        let url = format!("{}{}", self.base_url, request.path);
        let mut builder = self.client.request(request.method.clone(), url);
        if let Some(token) = &request.bearer_token {
            builder = builder.bearer_auth(token);
        }
        if request.body.is_null() { builder } else { builder.json(&request.body) }
    }

    /// A request to any URL, without a body.
    pub fn build_to(&self, method: Method, url: &str) -> RequestBuilder {
        self.client.request(method, url)
    }

    pub async fn send(&self, request: reqwest::Request) -> reqwest::Result<HttpResponse> {
        let response = self.client.execute(request).await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok(HttpResponse { status, headers, text: response.text().await? })
    }
}
