//! Health and reflection, as generic clients use them, and the port that all of it shares.

use std::time::Duration;

use prost::Message;
use server::Scheduler;
use tokio_stream::StreamExt;
use tonic::transport::Channel;
use tonic::{Code, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_prost::ProstCodec;
use tonic_reflection::pb::{v1, v1alpha};
use wire::grpc::UnregisterWorkerRequest;

use crate::support::{Served, in_time};

fn about(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

#[tokio::test]
async fn health_tells_serving_and_not_serving_while_draining() {
    let mut served = Served::start().await;
    let mut client = HealthClient::new(served.channel().await);
    for service in ["", "lessor.worker.v1.WorkerScheduler", "WorkerScheduler"] {
        let told = client.check(about(service)).await.unwrap().into_inner();
        assert_eq!(told.status(), ServingStatus::Serving, "{service}");
    }
    assert_eq!(client.check(about("nobody")).await.unwrap_err().code(), Code::NotFound);
    let mut unknown = client.watch(about("nobody")).await.unwrap().into_inner();
    assert_eq!(in_time(unknown.next()).await.unwrap().unwrap().status(), ServingStatus::ServiceUnknown);
    drop(unknown);
    let mut watch = client.watch(about("")).await.unwrap().into_inner();
    assert_eq!(in_time(watch.next()).await.unwrap().unwrap().status(), ServingStatus::Serving);
    served.begin_stop();
    assert_eq!(in_time(watch.next()).await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert!(in_time(watch.next()).await.is_none());
    in_time(served.stop()).await;
}

/// The library of the service answered INTERNAL, as if the server were broken.
#[tokio::test]
async fn i1_a_malformed_question_about_health_is_the_fault_of_its_sender() {
    let served = Served::start().await;
    let mut client = tonic::client::Grpc::new(served.channel().await);
    for call in ["Check", "Watch"] {
        // A number where the name of a service is expected.
        let malformed = prost_types::Duration { seconds: 5, nanos: 0 };
        client.ready().await.unwrap();
        let codec = ProstCodec::<prost_types::Duration, HealthCheckResponse>::default();
        let path = format!("/grpc.health.v1.Health/{call}").parse().unwrap();
        let refused = client.server_streaming(tonic::Request::new(malformed), path, codec).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{call}: {refused}");
    }
    in_time(served.stop()).await;
}

/// The next status that a watch tells.
async fn next(watch: &mut Streaming<HealthCheckResponse>) -> ServingStatus {
    in_time(watch.next()).await.unwrap().unwrap().status()
}

#[tokio::test]
async fn s3_60_a_watch_of_the_workers_is_told_when_they_come_and_go_and_fall_silent() {
    let scheduler = Scheduler { heartbeat_timeout: Duration::from_secs(5), ..Scheduler::default() };
    let served = Served::start_with(scheduler).await;
    let mut health = HealthClient::new(served.channel().await);
    let mut watch = health.watch(about("lessor.Workers")).await.unwrap().into_inner();
    assert_eq!(next(&mut watch).await, ServingStatus::NotServing);
    let mut client = served.worker("w").await;
    assert_eq!(next(&mut watch).await, ServingStatus::Serving);
    let leave = UnregisterWorkerRequest { worker_id: "w".to_owned(), ..UnregisterWorkerRequest::default() };
    client.unregister_worker(leave).await.unwrap();
    assert_eq!(next(&mut watch).await, ServingStatus::NotServing);
    served.worker("w").await;
    assert_eq!(next(&mut watch).await, ServingStatus::Serving);
    // It says nothing more.
    assert_eq!(next(&mut watch).await, ServingStatus::NotServing);
}

#[tokio::test]
async fn s3_60_a_watch_of_the_scheduler_is_told_when_the_coordinator_stops() {
    let served = Served::start().await;
    let mut health = HealthClient::new(served.channel().await);
    let mut watch = health.watch(about("lessor.Scheduler")).await.unwrap().into_inner();
    assert_eq!(next(&mut watch).await, ServingStatus::Serving);
    in_time(served.running.stop()).await.unwrap();
    assert_eq!(next(&mut watch).await, ServingStatus::NotServing);
    assert!(in_time(watch.next()).await.is_none(), "it never takes work again");
}

/// What a client that knows nothing but the address finds out, in the newer version of reflection.
async fn ask_v1(
    channel: Channel,
    what: v1::server_reflection_request::MessageRequest,
) -> v1::server_reflection_response::MessageResponse {
    let request = v1::ServerReflectionRequest { host: String::new(), message_request: Some(what) };
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel);
    let mut answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
    in_time(answers.next()).await.unwrap().unwrap().message_response.unwrap()
}

#[tokio::test]
async fn reflection_lists_the_services_and_describes_every_message() {
    use v1::server_reflection_request::MessageRequest;
    use v1::server_reflection_response::MessageResponse;
    let served = Served::start().await;
    let channel = served.channel().await;
    let listed = match ask_v1(channel.clone(), MessageRequest::ListServices(String::new())).await {
        MessageResponse::ListServicesResponse(list) => {
            list.service.into_iter().map(|service| service.name).collect()
        }
        other => panic!("{other:?}"),
    };
    let listed: Vec<String> = listed;
    for service in ["lessor.worker.v1.WorkerScheduler", "grpc.health.v1.Health"] {
        assert!(listed.iter().any(|name| name == service), "{service} in {listed:?}");
    }
    for symbol in [
        "lessor.worker.v1.WorkerScheduler",
        "lessor.worker.v1.LeasedTask",
        "build.bazel.remote.execution.v2.ActionResult",
    ] {
        let described =
            ask_v1(channel.clone(), MessageRequest::FileContainingSymbol(symbol.to_owned())).await;
        let MessageResponse::FileDescriptorResponse(files) = described else {
            panic!("{symbol}: {described:?}")
        };
        let file = prost_types::FileDescriptorProto::decode(&files.file_descriptor_proto[0][..]).unwrap();
        assert!(symbol.starts_with(file.package()), "{symbol} in {}", file.name());
    }
}

#[tokio::test]
async fn reflection_also_speaks_its_older_version() {
    use v1alpha::server_reflection_request::MessageRequest;
    let served = Served::start().await;
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(served.channel().await);
    let request = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
    let answer = in_time(answers.next()).await.unwrap().unwrap().message_response.unwrap();
    let v1alpha::server_reflection_response::MessageResponse::ListServicesResponse(list) = answer else {
        panic!("{answer:?}")
    };
    assert!(list.service.iter().any(|service| service.name == "lessor.worker.v1.WorkerScheduler"));
}
