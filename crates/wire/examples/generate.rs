//! Compiles `proto/` into `generated/`: the messages and stubs of the worker service and of ByteStream, and the stubs of
//! the Remote Execution API; and the remote execution plan's own text into the stubs of a worker for tests. The result is
//! committed, so that a build needs neither protoc nor the compiler; a test compares it with the sources.

use std::path::Path;

use prost::Message;

/// The crate of the messages of the Remote Execution API.
const REAPI_MESSAGES: &str = "::bazel_remote_apis::build::bazel::remote::execution::v2";

/// The plan's text, and below it its stubs.
pub(crate) const PLAN_WORKER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../lessor/tests/daemon/document_worker");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    generate(&Path::new(env!("CARGO_MANIFEST_DIR")).join("generated"))?;
    generate_plan_worker(&Path::new(PLAN_WORKER).join("generated"))
}

/// The client of a worker that knows only the plan's text.
pub(crate) fn generate_plan_worker(out: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let files = protox::compile(["worker_api.proto"], [Path::new(PLAN_WORKER), &proto])?;
    let is_imported = |name: &str| name.ends_with("remote_execution.proto");
    let imported = files.file.iter().filter(|file| is_imported(file.name()));
    let stubs = tonic_prost_build::configure().build_server(false).emit_rerun_if_changed(false).out_dir(out);
    let stubs = imported.flat_map(|file| &file.message_type).fold(stubs, |stubs, message| {
        let name = message.name();
        stubs.extern_path(
            format!(".build.bazel.remote.execution.v2.{name}"),
            format!("{REAPI_MESSAGES}::{name}"),
        )
    });
    Ok(stubs.compile_fds(files)?)
}

pub(crate) fn generate(out: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let compile = |file: &str| protox::compile([file], [&proto]);
    let stubs = || {
        let stubs = tonic_prost_build::configure().bytes(".").codec_path("crate::grpc::codec::Messages");
        stubs.emit_rerun_if_changed(false).out_dir(out)
    };

    let files = compile("lessor/worker/v1/worker.proto")?;
    // For reflection.
    std::fs::write(out.join("worker.bin"), files.encode_to_vec())?;
    stubs().extern_path(".build.bazel.remote.execution.v2", REAPI_MESSAGES).compile_fds(files)?;
    stubs().compile_fds(compile("google/bytestream/bytestream.proto")?)?;
    tonic_build::manual::Builder::new().build_client(false).out_dir(out).compile(&reapi_services());
    Ok(())
}

/// The services of the Remote Execution API with the codec of this crate: the stubs that come with the messages report
/// bytes that are no message as a fault of the server.
fn reapi_services() -> [tonic_build::manual::Service; 5] {
    use tonic_build::manual::{Method, Service};

    const REAPI: &str = "build.bazel.remote.execution.v2";
    const LONGRUNNING: &str = "google.longrunning";

    let message = |name: &str| format!("::bazel_remote_apis::{}", name.replace('.', "::"));
    let method = |name: &str, route: &str, input: &str, output: &str| {
        let method = Method::builder().name(name).route_name(route);
        let method = method.input_type(message(input)).output_type(message(output));
        method.codec_path("crate::grpc::codec::Messages")
    };
    let reapi = |name: &str, route: &str, input: &str, output: &str| {
        method(name, route, &format!("{REAPI}.{input}"), &format!("{REAPI}.{output}")).build()
    };
    let execution = |name: &str, route: &str, input: &str| {
        let output = format!("{LONGRUNNING}.Operation");
        method(name, route, &format!("{REAPI}.{input}"), &output).server_streaming().build()
    };
    let operation = |name: &str, route: &str, output: &str| {
        method(name, route, &format!("{LONGRUNNING}.{route}Request"), output).build()
    };
    let service = |package: &str, name: &str, methods: Vec<Method>| {
        let service = Service::builder().package(package).name(name);
        methods.into_iter().fold(service, |service, method| service.method(method)).build()
    };
    let get_tree = method(
        "get_tree",
        "GetTree",
        &format!("{REAPI}.GetTreeRequest"),
        &format!("{REAPI}.GetTreeResponse"),
    );
    let empty = "google.protobuf.Empty";
    let one = format!("{LONGRUNNING}.Operation");
    [
        service(
            REAPI,
            "Capabilities",
            vec![reapi(
                "get_capabilities",
                "GetCapabilities",
                "GetCapabilitiesRequest",
                "ServerCapabilities",
            )],
        ),
        service(
            REAPI,
            "ActionCache",
            vec![
                reapi("get_action_result", "GetActionResult", "GetActionResultRequest", "ActionResult"),
                reapi(
                    "update_action_result",
                    "UpdateActionResult",
                    "UpdateActionResultRequest",
                    "ActionResult",
                ),
            ],
        ),
        service(
            REAPI,
            "ContentAddressableStorage",
            vec![
                reapi(
                    "find_missing_blobs",
                    "FindMissingBlobs",
                    "FindMissingBlobsRequest",
                    "FindMissingBlobsResponse",
                ),
                reapi(
                    "batch_update_blobs",
                    "BatchUpdateBlobs",
                    "BatchUpdateBlobsRequest",
                    "BatchUpdateBlobsResponse",
                ),
                reapi(
                    "batch_read_blobs",
                    "BatchReadBlobs",
                    "BatchReadBlobsRequest",
                    "BatchReadBlobsResponse",
                ),
                get_tree.server_streaming().build(),
            ],
        ),
        service(
            REAPI,
            "Execution",
            vec![
                execution("execute", "Execute", "ExecuteRequest"),
                execution("wait_execution", "WaitExecution", "WaitExecutionRequest"),
            ],
        ),
        service(
            LONGRUNNING,
            "Operations",
            vec![
                operation(
                    "list_operations",
                    "ListOperations",
                    &format!("{LONGRUNNING}.ListOperationsResponse"),
                ),
                operation("get_operation", "GetOperation", &one),
                operation("delete_operation", "DeleteOperation", empty),
                operation("cancel_operation", "CancelOperation", empty),
                operation("wait_operation", "WaitOperation", &one),
            ],
        ),
    ]
}
