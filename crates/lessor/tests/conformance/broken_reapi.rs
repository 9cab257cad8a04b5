//! Servers that break the Remote Execution API. Each number is broken at least once.

use bazel_remote_apis::build::bazel::remote::execution::v2::*;
use bazel_remote_apis::google::bytestream::{QueryWriteStatusResponse, ReadRequest, WriteResponse};
use bazel_remote_apis::google::longrunning::{CancelOperationRequest, Operation, operation};
use bytes::Bytes;
use conformance::Contract;
use prost::Message;
use tonic_health::pb::HealthCheckResponse;

use crate::reapi_mutant::{self, Fault, alter};
use crate::{is_found, server};

async fn finds(server: &str, fault: Fault, numbers: &[&str]) {
    is_found(&reapi_mutant::start(server, fault).await, Contract::Reapi, numbers).await;
}

/// Alters messages of one call, and leaves the others.
macro_rules! only {
    ($name:literal, $message:ty, $change:expr) => {
        |call: &str, message: Bytes| {
            if call == $name { alter::<$message>(&message, $change) } else { message }
        }
    };
}

/// Alters an operation in the responses of all calls of executions.
fn operations(call: &str, message: Bytes, change: impl FnOnce(&mut Operation)) -> Bytes {
    match call {
        "Execute" | "WaitExecution" => alter(&message, change),
        _ => message,
    }
}

/// Alters the response of an operation that is over.
fn responses(call: &str, message: Bytes, change: impl FnOnce(&mut ExecuteResponse)) -> Bytes {
    operations(call, message, |response| {
        if let Some(operation::Result::Response(any)) = &mut response.result {
            any.value = alter(&any.value, change).to_vec();
        }
    })
}

fn stages(call: &str, message: Bytes, change: impl FnOnce(&mut ExecuteOperationMetadata)) -> Bytes {
    operations(call, message, |response| {
        if let Some(any) = &mut response.metadata {
            let mut metadata = ExecuteOperationMetadata::decode(&any.value[..]).unwrap();
            change(&mut metadata);
            any.value = metadata.encode_to_vec();
        }
    })
}

#[tokio::test]
async fn capabilities_must_be_true() {
    let server = server();
    let url = server.url();
    let response = |change| Fault::response(change);
    finds(&url, response(|_, _| Bytes::new()), &["R1", "R2"]).await;
    let functions = only!("GetCapabilities", ServerCapabilities, |response| {
        response.cache_capabilities.as_mut().unwrap().digest_functions.clear();
    });
    finds(&url, response(functions), &["R3", "R4"]).await;
    let brotli = only!("GetCapabilities", ServerCapabilities, |response| {
        let cache = response.cache_capabilities.as_mut().unwrap();
        cache.supported_compressors.push(compressor::Value::Brotli as i32);
    });
    finds(&url, response(brotli), &["R5"]).await;
}

#[tokio::test]
async fn digests_must_be_checked() {
    let server = server();
    let url = server.url();
    let gullible = only!("BatchUpdateBlobs", BatchUpdateBlobsResponse, |response| {
        response.responses.iter_mut().for_each(|one| one.status = None);
    });
    finds(&url, Fault::response(gullible), &["R6", "R8", "R15"]).await;
    let function = only!("FindMissingBlobs", FindMissingBlobsRequest, |request| request.digest_function = 0);
    finds(&url, Fault::request(function), &["R7", "R8"]).await;
    let empty = only!("FindMissingBlobs", FindMissingBlobsResponse, |response| {
        let hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".into();
        response.missing_blob_digests.push(Digest { hash, size_bytes: 0 });
    });
    finds(&url, Fault::response(empty), &["R10", "R14"]).await;
}

#[tokio::test]
async fn names_must_be_read() {
    let server = server();
    finds(&server.url(), Fault::accepts("Read"), &["R9", "R11", "R20"]).await;
    finds(&server.url(), Fault::accepts("Execute"), &["R12"]).await;
}

#[tokio::test]
async fn batches_and_trees_must_be_whole() {
    let server = server();
    let url = server.url();
    let twice = only!("FindMissingBlobs", FindMissingBlobsResponse, |response| {
        response.missing_blob_digests.extend_from_within(..);
    });
    finds(&url, Fault::response(twice), &["R14"]).await;
    let found = only!("BatchReadBlobs", BatchReadBlobsResponse, |response| {
        response.responses.iter_mut().for_each(|one| one.status = None);
    });
    finds(&url, Fault::response(found), &["R16"]).await;
    finds(&url, Fault::accepts("BatchUpdateBlobs"), &["R15"]).await;
    let lost = only!("GetTree", GetTreeResponse, |response| drop(response.directories.pop()));
    finds(&url, Fault::response(lost), &["R17"]).await;
}

#[tokio::test]
async fn streams_must_keep_their_places() {
    let server = server();
    let url = server.url();
    let from_the_start = only!("Read", ReadRequest, |request| request.read_offset = 0);
    finds(&url, Fault::request(from_the_start), &["R20"]).await;
    let uncounted = only!("Write", WriteResponse, |response| response.committed_size = 0);
    finds(&url, Fault::response(uncounted), &["R21", "R22", "R23"]).await;
    let unsure = only!("QueryWriteStatus", QueryWriteStatusResponse, |response| response.complete = false);
    finds(&url, Fault::response(unsure), &["R24"]).await;
    let early = only!("FindMissingBlobs", FindMissingBlobsResponse, |response| {
        response.missing_blob_digests.clear();
    });
    finds(&url, Fault::response(early), &["R25", "R55"]).await;
    finds(&url, Fault::accepts("Write"), &["R6", "R21", "R23"]).await;
}

#[tokio::test]
async fn results_must_be_whole_and_the_actions_own() {
    let server = server();
    let url = server.url();
    finds(&url, Fault::accepts("GetActionResult"), &["R26", "R28", "R35", "R56"]).await;
    finds(&url, Fault::accepts("UpdateActionResult"), &["R27"]).await;
    let bare = only!("GetActionResult", ActionResult, |response| response.stdout_raw.clear());
    finds(&url, Fault::response(bare), &["R26"]).await;
    let anywhere = only!("GetActionResult", GetActionResultRequest, |request| request.instance_name.clear());
    finds(&url, Fault::request(anywhere), &["R56"]).await;
}

#[tokio::test]
async fn executions_must_be_cached_and_merged_as_asked() {
    let server = server();
    let url = server.url();
    let stale = only!("Execute", ExecuteRequest, |request| request.skip_cache_lookup = false);
    finds(&url, Fault::request(stale), &["R34"]).await;
    let lonely = only!("Execute", ExecuteRequest, |request| request.skip_cache_lookup = true);
    finds(&url, Fault::request(lonely), &["R34", "R40", "R44"]).await;
    let cached: reapi_mutant::Alter =
        |call, message| responses(call, message, |response| response.cached_result = true);
    finds(&url, Fault::response(cached), &["R28", "R35"]).await;
}

#[tokio::test]
async fn operations_must_say_where_they_stand() {
    let server = server();
    let url = server.url();
    let endless: reapi_mutant::Alter =
        |call, message| operations(call, message, |response| response.done = false);
    finds(&url, Fault::response(endless), &["R32", "R33", "R40"]).await;
    let bare: reapi_mutant::Alter =
        |call, message| operations(call, message, |response| response.metadata = None);
    finds(&url, Fault::response(bare), &["R32", "R41"]).await;
    finds(&url, Fault::accepts("WaitExecution"), &["R33"]).await;
    let elsewhere = only!("CancelOperation", CancelOperationRequest, |request| request.name.push('x'));
    finds(&url, Fault::request(elsewhere), &["R42", "R44"]).await;
}

#[tokio::test]
async fn what_is_asked_with_an_execution_must_be_honoured() {
    let server = server();
    let url = server.url();
    let well: reapi_mutant::Alter = |call, message| {
        responses(call, message, |response| {
            response.status = None;
            response.result.get_or_insert_default();
        })
    };
    finds(&url, Fault::response(well), &["R36", "R42"]).await;
    let hasty: reapi_mutant::Alter = |call, message| {
        stages(call, message, |response| {
            if response.stage() == execution_stage::Value::Queued {
                response.set_stage(execution_stage::Value::Executing);
            }
        })
    };
    finds(&url, Fault::response(hasty), &["R37"]).await;
    let modest = only!("Execute", ExecuteRequest, |request| {
        request.execution_policy = None;
        request.inline_stdout = false;
    });
    finds(&url, Fault::request(modest), &["R38", "R39"]).await;
    finds(&url, Fault::accepts("Execute"), &["R29", "R30", "R31"]).await;
}

#[tokio::test]
async fn actions_must_be_run_as_they_say() {
    let server = server();
    let url = server.url();
    let well: reapi_mutant::Alter = |call, message| {
        responses(call, message, |response| {
            response.status = None;
            response.result.get_or_insert_default().exit_code = 0;
        })
    };
    finds(&url, Fault::response(well), &["R45", "R46", "R48", "R53"]).await;
    let fewer: reapi_mutant::Alter = |call, message| {
        responses(call, message, |response| {
            if let Some(result) = &mut response.result {
                result.output_files.clear();
                result.output_symlinks.clear();
                result.output_directories.clear();
                result.execution_metadata = None;
            }
        })
    };
    finds(&url, Fault::response(fewer), &["R47", "R48", "R49", "R50", "R51", "R52"]).await;
    let other: reapi_mutant::Alter = |call, message| {
        responses(call, message, |response| {
            if let Some(result) = &mut response.result {
                result.stdout_digest = None;
                result.stdout_raw = b"damaged".to_vec();
            }
        })
    };
    finds(&url, Fault::response(other), &["R46", "R53", "R54"]).await;
}

#[tokio::test]
async fn a_server_must_say_that_it_serves() {
    let server = server();
    let ill = only!("Check", HealthCheckResponse, |response| response.status = 2);
    finds(&server.url(), Fault::response(ill), &["R58"]).await;
}
