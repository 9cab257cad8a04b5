//! Every call that a server serves, as its routers, its descriptors and its generated dispatchers have them: nobody keeps a list
//! that could be forgotten.

use std::collections::BTreeSet;
use std::path::Path;

use prost::Message;
use prost_types::FileDescriptorSet;
use server::permissions::GRPC;
use wire::grpc::SERVICE_NAMES;

use crate::endpoints::{Impatient, impatient};

/// A method, or `gRPC`, and the pattern of a route, or the path of a call.
pub(crate) type CallName = (String, String);

const METHODS: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"];

/// The calls of gRPC as `service/method`: those that the generated services dispatch, and those of the services that come
/// with libraries.
pub(crate) fn grpc_calls() -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/generated");
    let mut calls = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(path).unwrap();
            let arms =
                text.lines().filter_map(|line| line.trim().strip_prefix("\"/")?.strip_suffix("\" => {"));
            calls.extend(arms.map(str::to_owned));
        }
    }
    for set in [
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ] {
        calls.extend(described(set));
    }
    calls.sort();
    calls
}

/// The calls that descriptors name.
pub(crate) fn described(set: &[u8]) -> Vec<String> {
    let set = FileDescriptorSet::decode(set).unwrap();
    let services = set.file.iter().flat_map(|file| {
        let package = if file.package().is_empty() { String::new() } else { format!("{}.", file.package()) };
        file.service.iter().map(move |service| (format!("{package}{}", service.name()), service))
    });
    let calls = services.flat_map(|(name, service)| {
        service.method.iter().map(move |method| format!("{name}/{}", method.name()))
    });
    calls.collect()
}

/// The patterns of all routes, as the router shows them.
fn patterns(server: &Impatient) -> BTreeSet<String> {
    let shown = format!("{:?}", server::router(server.app.clone()));
    let (_, paths) = shown.split_once("paths: {").expect("the router shows its paths");
    let (paths, _) = paths.split_once("} }").unwrap();
    let patterns = paths.split("RouteId(").skip(1).map(|route| route.split('"').nth(1).unwrap().to_owned());
    let patterns: BTreeSet<String> = patterns.collect();
    assert!(patterns.contains("/v1/tasks") && patterns.contains("/metrics"), "{patterns:?}");
    patterns
}

/// Every call that is served.
pub(crate) async fn served_calls() -> BTreeSet<CallName> {
    let server = impatient().await;
    let [own, others @ ..] = SERVICE_NAMES;
    let known = grpc_calls();
    let (mut calls, mut services) = (BTreeSet::new(), BTreeSet::new());
    for pattern in patterns(&server) {
        let (service, call) = pattern[1..].split_once('/').unwrap_or((&pattern[1..], ""));
        let service = if others.contains(&service) { own } else { service };
        if !service.contains('.') || service == "openapi.json" {
            calls.extend(methods(&server, &pattern).await.map(|method| (method.to_owned(), pattern.clone())));
        } else if call == "{*call}" {
            services.insert(service.to_owned());
        } else {
            assert!(known.contains(&format!("{service}/{call}")), "nobody describes {pattern}");
        }
    }
    for service in &services {
        let of_service = known.iter().filter(|call| call.starts_with(&format!("{service}/")));
        let of_service: Vec<_> = of_service.map(|call| (GRPC.to_owned(), format!("/{call}"))).collect();
        assert!(!of_service.is_empty(), "nobody describes {service}");
        calls.extend(of_service);
    }
    let unrouted: Vec<_> =
        known.iter().filter(|call| !services.contains(call.split('/').next().unwrap())).collect();
    assert!(unrouted.is_empty(), "no route serves {unrouted:?}");
    calls
}

/// The methods that a route has: the server says of the others that there are none. HEAD is there where GET is.
async fn methods(server: &Impatient, pattern: &str) -> impl Iterator<Item = &'static str> {
    let mut found = Vec::new();
    for method in METHODS {
        let request = server.request(method, &pattern.replace(['{', '}'], ""));
        if request.send().await.unwrap().status() != 405 {
            found.push(method);
        }
    }
    assert!(!found.is_empty(), "{pattern} has no method");
    found.into_iter()
}
