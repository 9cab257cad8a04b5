//! The table of permissions: every call of HTTP, of gRPC and of the HTTP cache, and who may make it. A call that is not in
//! the table is denied. docs/security.md shows the table; tests compare it with the routes, the descriptors and the document.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

use authority::Role::{self, Builder, CacheWriter, Operator, Reader, Submitter, Worker};
use axum::http::Method;

/// Who may make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anyone, without a credential: the answer says nothing about tasks or tenants.
    Anyone,
    /// Who has the token of an attempt, which the call itself verifies.
    TaskToken,
    /// The holder of any key.
    AnyKey,
    /// The holder of a key with one of these roles, or with the role admin.
    Roles(&'static [Role]),
}

impl Access {
    /// The roles that may make the call, for people.
    pub fn describe(self) -> String {
        match self {
            Access::Anyone => "anyone".to_owned(),
            Access::TaskToken => "task token".to_owned(),
            Access::AnyKey => "any key".to_owned(),
            Access::Roles(roles) => {
                let names = roles.iter().map(|role| role.name()).chain([Role::Admin.name()]);
                names.collect::<Vec<_>>().join(", ")
            }
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The HTTP method; `gRPC` for a call of gRPC.
    pub method: &'static str,
    /// The pattern of the route, or the full name of the call of gRPC.
    pub path: &'static str,
    pub access: Access,
    /// Whether the call is an administrative action, which the audit log has also when it is allowed.
    pub is_audited: bool,
    /// Whether the call may wait or move data for long, or gives rights that outlast its caller's. It ends with the key that
    /// began it.
    pub is_long: bool,
    /// Whether also its answer may take long to send.
    pub is_streamed: bool,
}

/// The method of the rows for gRPC.
pub const GRPC: &str = "gRPC";

const READ: Access = Access::Roles(&[Reader, Submitter, Operator]);
const SUBMIT: Access = Access::Roles(&[Submitter]);
const CANCEL: Access = Access::Roles(&[Submitter, Operator]);
const WORK: Access = Access::Roles(&[Worker]);
const OPERATE: Access = Access::Roles(&[Operator]);
const SEE_WORKERS: Access = Access::Roles(&[Reader, Operator]);
const ADMINISTER: Access = Access::Roles(&[]);
/// Execution, and what it reads.
const BUILD: Access = Access::Roles(&[Builder, CacheWriter]);
/// The content store, which workers use too.
const CONTENT: Access = Access::Roles(&[Worker, Builder, CacheWriter]);
const WRITE_CACHE: Access = Access::Roles(&[CacheWriter]);
const SEE_OPERATIONS: Access = Access::Roles(&[Reader, Builder, CacheWriter, Operator]);
const END_OPERATIONS: Access = Access::Roles(&[Builder, CacheWriter, Operator]);

macro_rules! calls {
    ($($method:ident $path:literal $access:expr $(, $mark:ident)*;)*) => {
        &[$(Call {
            method: calls!(@method $method),
            path: $path,
            access: $access,
            is_audited: false $(|| calls!(@audited $mark))*,
            is_long: false $(|| calls!(@long $mark))*,
            is_streamed: false $(|| calls!(@streamed $mark))*,
        },)*]
    };
    (@method grpc) => { GRPC };
    (@method $method:ident) => { stringify!($method) };
    (@audited audited) => { true };
    (@audited $mark:ident) => { false };
    (@long audited) => { false };
    (@long $mark:ident) => { true };
    (@streamed streams) => { true };
    (@streamed $mark:ident) => { false };
}

pub const CALLS: &[Call] = calls! {
    GET "/healthz" Access::Anyone;
    GET "/readyz" Access::AnyKey;
    GET "/openapi.json" Access::AnyKey;
    GET "/metrics" SEE_WORKERS;
    GET "/v1/tasks" READ;
    POST "/v1/tasks" SUBMIT;
    POST "/v1/tasks/batch" SUBMIT;
    GET "/v1/tasks/{taskId}" READ, waits;
    GET "/v1/tasks/{taskId}/history" READ;
    POST "/v1/tasks/{taskId}/cancel" CANCEL, audited;
    POST "/v1/tasks/{taskId}/redrive" OPERATE, audited;
    POST "/v1/tasks/{taskId}/started" Access::TaskToken;
    POST "/v1/tasks/{taskId}/heartbeat" Access::TaskToken;
    POST "/v1/tasks/{taskId}/completed" Access::TaskToken;
    GET "/v1/queues" READ;
    GET "/v1/queues/{name}" READ;
    PUT "/v1/queues/{name}" OPERATE, audited;
    POST "/v1/leases" WORK, waits;
    POST "/v1/leases/{leaseId}/heartbeat" WORK;
    POST "/v1/leases/{leaseId}/complete" WORK;
    POST "/v1/leases/{leaseId}/fail" WORK;
    POST "/v1/leases/{leaseId}/release" WORK;
    POST "/internal/worker/claim" WORK, waits;
    POST "/internal/worker/heartbeat" WORK;
    POST "/internal/worker/complete" WORK;
    POST "/internal/worker/fail" WORK;
    GET "/v1/workers" SEE_WORKERS;
    POST "/v1/workers/{workerId}/drain" OPERATE, audited, waits;
    POST "/v1/workers/{workerId}/stop" OPERATE, audited, waits;
    POST "/v1/workers/{workerId}/resume" OPERATE, audited;
    GET "/v1/instances" WORK, streams;
    POST "/v1/token-keys/rotate" ADMINISTER, audited;
    GET "/v1/keys" ADMINISTER;
    POST "/v1/keys" ADMINISTER, audited, waits;
    DELETE "/v1/keys/{keyId}" ADMINISTER, audited;
    GET "/status" Access::AnyKey;
    GET "/ac/{hash}" BUILD, streams;
    PUT "/ac/{hash}" WRITE_CACHE, waits;
    GET "/cas/{hash}" BUILD, streams;
    PUT "/cas/{hash}" WRITE_CACHE, waits;
    GET "/{prefix}/ac/{hash}" BUILD, streams;
    PUT "/{prefix}/ac/{hash}" WRITE_CACHE, waits;
    GET "/{prefix}/cas/{hash}" BUILD, streams;
    PUT "/{prefix}/cas/{hash}" WRITE_CACHE, waits;
    grpc "/lessor.worker.v1.WorkerScheduler/RegisterWorker" WORK;
    grpc "/lessor.worker.v1.WorkerScheduler/LeaseTask" WORK, waits;
    grpc "/lessor.worker.v1.WorkerScheduler/UpdateTaskStatus" WORK;
    grpc "/lessor.worker.v1.WorkerScheduler/ReportHeartbeat" WORK;
    grpc "/lessor.worker.v1.WorkerScheduler/UnregisterWorker" WORK;
    grpc "/lessor.worker.v1.WorkerScheduler/SubmitTasks" SUBMIT;
    grpc "/lessor.worker.v1.WorkerScheduler/Work" WORK, streams;
    grpc "/build.bazel.remote.execution.v2.Capabilities/GetCapabilities" CONTENT;
    grpc "/build.bazel.remote.execution.v2.ContentAddressableStorage/FindMissingBlobs" CONTENT;
    grpc "/build.bazel.remote.execution.v2.ContentAddressableStorage/BatchUpdateBlobs" CONTENT, waits;
    grpc "/build.bazel.remote.execution.v2.ContentAddressableStorage/BatchReadBlobs" CONTENT, streams;
    grpc "/build.bazel.remote.execution.v2.ContentAddressableStorage/GetTree" CONTENT, streams;
    grpc "/google.bytestream.ByteStream/Read" CONTENT, streams;
    grpc "/google.bytestream.ByteStream/Write" CONTENT, waits;
    grpc "/google.bytestream.ByteStream/QueryWriteStatus" CONTENT;
    grpc "/build.bazel.remote.execution.v2.ActionCache/GetActionResult" BUILD;
    grpc "/build.bazel.remote.execution.v2.ActionCache/UpdateActionResult" WRITE_CACHE, waits;
    grpc "/build.bazel.remote.execution.v2.Execution/Execute" BUILD, streams;
    grpc "/build.bazel.remote.execution.v2.Execution/WaitExecution" BUILD, streams;
    grpc "/google.longrunning.Operations/ListOperations" SEE_OPERATIONS;
    grpc "/google.longrunning.Operations/GetOperation" SEE_OPERATIONS;
    grpc "/google.longrunning.Operations/WaitOperation" SEE_OPERATIONS, waits;
    grpc "/google.longrunning.Operations/CancelOperation" END_OPERATIONS, audited;
    grpc "/google.longrunning.Operations/DeleteOperation" END_OPERATIONS, audited;
    grpc "/grpc.health.v1.Health/Check" Access::Anyone;
    grpc "/grpc.health.v1.Health/Watch" Access::Anyone;
    grpc "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo" Access::AnyKey, streams;
    grpc "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" Access::AnyKey, streams;
};

/// The rows for HTTP, by the path of a request, which the router of the server matches in the same way. Below the names of the
/// services of gRPC there are none, whatever the rest of a path looks like.
static HTTP_INDEX: LazyLock<matchit::Router<Vec<&Call>>> = LazyLock::new(|| {
    let mut rows = BTreeMap::<&str, Vec<&Call>>::new();
    for call in CALLS.iter().filter(|call| call.method != GRPC) {
        rows.entry(call.path).or_default().push(call);
    }
    let services: BTreeSet<_> = GRPC_INDEX.keys().filter_map(|path| path.rsplit_once('/')).collect();
    let services: BTreeSet<_> =
        services.into_iter().map(|(service, _)| format!("{service}/{{*call}}")).collect();
    let services = services.into_iter().map(|path| (path, Vec::new()));
    let rows = rows.into_iter().map(|(path, calls)| (path.to_owned(), calls));
    let mut index = matchit::Router::new();
    for (path, calls) in rows.chain(services) {
        // Without its row a call is denied; a test has them all.
        let _ = index.insert(path, calls);
    }
    index
});

/// The rows for gRPC, by path, under every name of their service.
static GRPC_INDEX: LazyLock<HashMap<String, &Call>> = LazyLock::new(|| {
    let [own, others @ ..] = wire::grpc::SERVICE_NAMES;
    let mut index = HashMap::new();
    for call in CALLS.iter().filter(|call| call.method == GRPC) {
        index.insert(call.path.to_owned(), call);
        if let Some(name) = call.path.strip_prefix('/').and_then(|path| path.strip_prefix(own)) {
            index.extend(others.iter().map(|other| (format!("/{other}{name}"), call)));
        }
    }
    index
});

/// The row of a request.
pub(super) fn find(method: &Method, path: &str) -> Option<&'static Call> {
    // Every GET answers HEAD too.
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let by_path = HTTP_INDEX.at(path).ok();
    let by_path = by_path.and_then(|rows| rows.value.iter().find(|call| call.method == method).copied());
    by_path.or_else(|| GRPC_INDEX.get(path).copied())
}

/// The administrative calls, each with the last segment of its path.
static AUDITED: LazyLock<Vec<(&str, &Call)>> = LazyLock::new(|| {
    let last = |call: &'static Call| (call.path.rsplit('/').next().unwrap_or_default(), call);
    CALLS.iter().filter(|call| call.is_audited).map(last).collect()
});

/// The row of an administrative call, by the path of a request whose route is not known yet. Asked for every request of a
/// server without authentication, so the last segment decides about most.
pub(super) fn find_audited(method: &Method, path: &str) -> Option<&'static Call> {
    let last = path.rsplit('/').next()?;
    let is_call = |(end, call): &&(&str, &'static Call)| {
        let is_method = method.as_str() == call.method || (call.method == GRPC && *method == Method::POST);
        is_method && is_segment(end, last) && is_path(call.path, path)
    };
    AUDITED.iter().find(is_call).map(|(_, call)| *call)
}

fn is_segment(pattern: &str, segment: &str) -> bool {
    pattern == segment || (pattern.starts_with('{') && !segment.is_empty())
}

fn is_path(pattern: &str, path: &str) -> bool {
    pattern.split('/').count() == path.split('/').count()
        && pattern.split('/').zip(path.split('/')).all(|(pattern, segment)| is_segment(pattern, segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_the_path_of_a_request() {
        for call in CALLS {
            let path = call.path.replace(['{', '}'], "");
            let method = if call.method == GRPC { Method::POST } else { call.method.parse().unwrap() };
            let found = find(&method, &path).map(|found| (found.method, found.path));
            assert_eq!(found, Some((call.method, call.path)), "{path}");
        }
        for (method, path) in [
            (Method::GET, "/v1/task"),
            (Method::GET, "/v1/tasks/"),
            (Method::GET, "/v1/tasks/7/"),
            (Method::GET, "//v1/tasks"),
            (Method::PATCH, "/v1/tasks"),
            (Method::GET, "/a/b/cas/c"),
            (Method::POST, "/lessor.worker.v1.WorkerScheduler/Other"),
        ] {
            assert!(find(&method, path).is_none(), "{method} {path}");
        }
        // Regression: the router serves these as calls of gRPC, and the table had the rows of the HTTP cache for them.
        for path in GRPC_INDEX.keys() {
            let (service, call) = path.rsplit_once('/').unwrap();
            for (method, kind) in [(Method::GET, "ac"), (Method::HEAD, "cas"), (Method::PUT, "ac")] {
                let path = format!("{service}/{kind}/{call}");
                assert!(find(&method, &path).is_none(), "{method} {path}");
            }
        }
        let head = find(&Method::HEAD, "/v1/queues/mail").unwrap();
        assert_eq!((head.method, head.path), ("GET", "/v1/queues/{name}"));
    }

    #[test]
    fn an_administrative_call_is_found_by_its_path() {
        let found = |method: Method, path| find_audited(&method, path).map(|call| call.path);
        for (method, path, expected) in [
            (Method::POST, "/v1/tasks/7/cancel", Some("/v1/tasks/{taskId}/cancel")),
            (Method::POST, "/v1/workers/w/drain", Some("/v1/workers/{workerId}/drain")),
            (Method::PUT, "/v1/queues/mail", Some("/v1/queues/{name}")),
            (Method::DELETE, "/v1/keys/4f", Some("/v1/keys/{keyId}")),
            (
                Method::POST,
                "/google.longrunning.Operations/DeleteOperation",
                Some("/google.longrunning.Operations/DeleteOperation"),
            ),
            (Method::GET, "/v1/keys", None),
            (Method::PUT, "/v1/queues/", None),
            (Method::PUT, "/v1/queues/a/b", None),
            (Method::POST, "/v1/tasks", None),
            (Method::POST, "/cancel", None),
            (Method::POST, "/v1/leases/x/complete", None),
        ] {
            assert_eq!(found(method, path), expected, "{path}");
        }
    }
}
