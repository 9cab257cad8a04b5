//! Headers and names: the host, the scope, the metadata of builds, operations.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use execution::Origin;
use wire::{TENANT_HEADER, WORKSPACE_HEADER};

use crate::convert::page_token::{List, PageTokens};
use crate::convert::{request_metadata as metadata, scope};
use crate::edge::host::check;
use crate::reapi::execution::operation_name as operation;
use crate::reapi::operations_page::{self, Start};

use super::SECRET;

const MAX_SCOPE_NAME_BYTES: usize = 128;
const MAX_ORIGIN_BYTES: usize = 256;
const ALLOWED: &str = "build.example";

/// Checks the host of a request. Only an address, localhost and an allowed name pass.
pub fn host(value: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(value) else { return };
    let mut request = Request::<axum::body::Body>::default();
    request.headers_mut().insert(header::HOST, value.clone());
    if check(&request, &[ALLOWED.to_owned()]).is_ok() {
        let host = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
        let is_address = host.bytes().all(|c| c.is_ascii_hexdigit() || b"[]:.".contains(&c));
        let is_name =
            |name| host.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
        assert!(is_address || is_name("localhost") || is_name(ALLOWED), "{host:?} passes");
    }
}

/// Reads the scope of a request whose headers have this value.
pub fn scope_headers(value: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(value) else { return };
    let mut headers = HeaderMap::new();
    headers.insert(TENANT_HEADER, value.clone());
    headers.insert(WORKSPACE_HEADER, value.clone());
    if let Ok(scope) = scope::of(&headers) {
        assert!(!scope.tenant.is_empty() && scope.tenant.len() <= MAX_SCOPE_NAME_BYTES);
        assert!(!scope.tenant.chars().any(char::is_control), "a name is printable");
        assert_eq!((scope.tenant.as_bytes(), &scope.workspace), (value.as_bytes(), &scope.tenant));
    }
}

/// Decodes the metadata of a build. What is kept of it is short and printable.
pub fn request_metadata(value: &[u8]) {
    let Some(decoded) = HeaderValue::from_bytes(value).ok().and_then(|value| metadata::decode_header(&value))
    else {
        return;
    };
    let Origin { tool, invocation, target, mnemonic, correlated_invocations } = Origin::from_proto(&decoded);
    for text in [tool, invocation, target, mnemonic, correlated_invocations] {
        assert!(text.len() <= MAX_ORIGIN_BYTES && !text.chars().any(char::is_control), "{text:?}");
    }
}

/// Parses the name of an operation, whose parts are in it.
pub fn operation_name(name: &str) {
    if let Some((instance, task)) = operation::parse(name) {
        assert!(name.starts_with(instance), "{instance:?} is the beginning of {name:?}");
        assert!(name.to_ascii_lowercase().contains(&task.to_string()), "{task} is in {name:?}");
    }
}

/// Parses the token of a page of operations. A sound one gives a token that means the same.
pub fn operations_page_token(text: &str) {
    let (scope, tokens) = (super::scope(), PageTokens::new(&SECRET));
    let list = List { scope: &scope, queue: None, state: None };
    if let Some(start) = Start::parse(text, &tokens, list) {
        let token = operations_page::token(&start, &tokens, list);
        let again = Start::parse(&token, &tokens, list);
        assert_eq!(again.map(|again| operations_page::token(&again, &tokens, list)), Some(token));
    }
}
