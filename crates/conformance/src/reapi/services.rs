//! Properties of every call: its tenant, its metadata and its connection.

use bazel_remote_apis::build::bazel::remote::execution::v2::{
    ActionResult, Digest, FindMissingBlobsRequest, GetActionResultRequest, RequestMetadata, ToolDetails,
};
use prost::Message;
use tonic::Code;
use tonic::metadata::MetadataValue;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::client::Remote;
use super::content::{random, unknown_digest};
use crate::finding::must;
use crate::grpc::{done, format_status, refused};
use crate::{Check, Finding, Subject};

const METADATA_HEADER: &str = "build.bazel.remote.execution.v2.requestmetadata-bin";
/// More than any server takes in one message.
const HUGE_BYTES: usize = 24 << 20;

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["R55"], "a call may say which build it is part of, in any words", |s| Box::pin(origin(s))),
    Check::new(&["R56"], "an instance does not see the results of another", |s| Box::pin(instances(s))),
    Check::new(&["R58"], "the health service says SERVING, and reflection names services", |s| {
        Box::pin(health(s))
    }),
    Check::new(&["R58"], "a message that is too large is refused, and the connection lives", |s| {
        Box::pin(huge(s))
    }),
];

async fn origin(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let tool = ToolDetails { tool_name: "conformance".into(), tool_version: "1".into() };
    let said = RequestMetadata {
        tool_details: Some(tool),
        action_id: "a".repeat(64),
        tool_invocation_id: subject.name("invocation"),
        target_id: "//some:target\n".into(),
        ..RequestMetadata::default()
    };
    for header in [said.encode_to_vec(), vec![0xff; 40]] {
        let gone = unknown_digest()?;
        let asked = FindMissingBlobsRequest {
            instance_name: remote.instance(),
            blob_digests: vec![gone.clone()],
            ..FindMissingBlobsRequest::default()
        };
        let mut asked = remote.scoped(asked);
        asked.metadata_mut().insert_bin(METADATA_HEADER, MetadataValue::from_bytes(&header));
        let answer = done("FindMissingBlobs", remote.cas().find_missing_blobs(asked).await)?;
        must(answer.missing_blob_digests == [gone], || "the header changed the answer".into())?;
    }
    Ok(())
}

async fn instances(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let answer = remote.cache().await?.action_cache_update_capabilities;
    if !answer.is_some_and(|answer| answer.update_enabled) {
        return Err(Finding::Skipped("the server announces update_enabled = false".into()));
    }
    let action = remote.action("true").await?;
    let result = ActionResult { stdout_raw: random(20)?, ..ActionResult::default() };
    let answer = remote.cache_result(&action, &result).await.map(tonic::Response::new);
    done("UpdateActionResult", answer)?;
    done("GetActionResult", remote.cached(&action).await.map(tonic::Response::new))?;
    let elsewhere = GetActionResultRequest {
        instance_name: subject.name("instance"),
        action_digest: Some(action),
        ..GetActionResultRequest::default()
    };
    let answer = remote.action_cache().get_action_result(remote.scoped(elsewhere)).await;
    // A server may know its instances by name, and refuse all others.
    let codes = [Code::NotFound, Code::InvalidArgument, Code::PermissionDenied];
    refused("GetActionResult in another instance", answer, &codes)
}

async fn health(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let asked = HealthCheckRequest { service: String::new() };
    let answer = HealthClient::new(subject.channel()).check(remote.scoped(asked)).await;
    let answer = done("Health.Check", answer)?;
    must(answer.status() == ServingStatus::Serving, || format!("Health.Check says {:?}", answer.status()))?;
    let asked = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..ServerReflectionRequest::default()
    };
    let asked = remote.scoped(tokio_stream::iter([asked]));
    let answer = ServerReflectionClient::new(subject.channel()).server_reflection_info(asked).await;
    let answer = done("ServerReflectionInfo", answer)?.message().await;
    let answer = answer
        .map_err(|status| Finding::broken(format!("reflection was refused: {}", format_status(&status))))?;
    match answer.and_then(|answer| answer.message_response) {
        Some(MessageResponse::ListServicesResponse(list)) if !list.service.is_empty() => Ok(()),
        other => Err(Finding::broken(format!("reflection names no services: {other:?}"))),
    }
}

async fn huge(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let asked = FindMissingBlobsRequest {
        instance_name: remote.instance(),
        blob_digests: vec![Digest { hash: "a".repeat(HUGE_BYTES), size_bytes: 1 }],
        ..FindMissingBlobsRequest::default()
    };
    let answer = remote.cas().find_missing_blobs(remote.scoped(asked)).await;
    let codes = [Code::InvalidArgument, Code::OutOfRange, Code::ResourceExhausted];
    refused("a message of 24 MiB", answer, &codes)?;
    remote.missing(&[unknown_digest()?]).await.map(|_| ())
}
