//! W8: the coordinator does not find the outputs of a completed action, and the worker uploads them again.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bazel_remote_apis::build::bazel::remote::execution::v2::execution_client::ExecutionClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{ExecuteRequest, ExecuteResponse};
use bazel_remote_apis::google::longrunning::operation;
use blobs::{Blobs, Digest, Local, Store, Tenant};
use bytes::Bytes;
use prost::Message;
use reapi_client::CasError;
use server::reapi::{Content, Instances, Results, Settings};
use worker::executors::{self, Backend, ExecutorOptions};
use worker::{ActionOptions, Agent, Cas, Config, LocalCas, Protocol, Stopper, Work};

use super::actions::support::{Tree, sh, strings};
use super::agent::support::{Served, in_time};

/// A store that loses the first uploads.
struct Forgetful {
    inner: LocalCas,
    losses: AtomicU32,
}

impl Forgetful {
    fn loses(&self) -> bool {
        self.losses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

#[tonic::async_trait]
impl Cas for Forgetful {
    async fn find_missing(&self, instance: &str, digests: &[Digest]) -> Result<Vec<Digest>, CasError> {
        self.inner.find_missing(instance, digests).await
    }

    async fn read_many(&self, instance: &str, digests: &[Digest]) -> Result<Vec<Option<Bytes>>, CasError> {
        self.inner.read_many(instance, digests).await
    }

    async fn read_to_file(&self, instance: &str, digest: &Digest, file: File) -> Result<bool, CasError> {
        self.inner.read_to_file(instance, digest, file).await
    }

    async fn upload_many(&self, instance: &str, blobs: Vec<(Digest, Bytes)>) -> Result<(), CasError> {
        if self.loses() { Ok(()) } else { self.inner.upload_many(instance, blobs).await }
    }

    async fn upload_file(&self, instance: &str, digest: &Digest, file: File) -> Result<(), CasError> {
        if self.loses() { Ok(()) } else { self.inner.upload_file(instance, digest, file).await }
    }
}

/// Runs an action that writes small and large outputs, on a store that loses so many uploads.
async fn execute(protocol: Protocol, losses: u32) -> ExecuteResponse {
    let dir = tempfile::tempdir().unwrap();
    let local =
        Arc::new(Local::new(Store::open(dir.path().join("content"), blobs::Options::default()).unwrap()));
    let tenant = Tenant::new("default").unwrap();
    let content = Content {
        blobs: local.clone(),
        action_cache: local.clone(),
        results: Results::new(local.clone()),
        settings: Settings::default(),
        instances: Instances::default(),
    };
    let served = Served::start_with(Some(content)).await;
    let inner = LocalCas::new(local.clone(), tenant.clone());
    let cas = Arc::new(Forgetful { inner, losses: AtomicU32::new(losses) });
    let url = format!("http://{}", served.address);
    let config =
        Config { protocol, ..Config::new(url.clone(), "w", ActionOptions::below(dir.path().join("worker"))) };
    let executor = ExecutorOptions::new(Backend::Host, "w", dir.path());
    let work = Work::open(&config, executors::open(&executor).await.unwrap(), cas).await.unwrap();
    let stop = Stopper::new();
    let agent = tokio::spawn(Agent::serve(config, Arc::new(work), stop.clone()));

    let mut command = sh("echo said; echo small > small; head -c 3000000 /dev/zero > large");
    command.output_paths = strings(&["small", "large"]);
    let stage = super::actions::support::Stage::new().await;
    let action = stage.action(command, &Tree::default(), None);
    assert!(local.put_many(&tenant, stage.cas.all()).await.into_iter().all(|put| put.is_ok()));
    let digest = bazel_remote_apis::build::bazel::remote::execution::v2::Digest {
        hash: action.hash.to_string(),
        size_bytes: action.size as i64,
    };
    let mut client = ExecutionClient::connect(url).await.unwrap();
    let request = ExecuteRequest { action_digest: Some(digest), ..ExecuteRequest::default() };
    let mut operations = in_time(client.execute(request)).await.unwrap().into_inner();
    let response = loop {
        let operation = in_time(operations.message()).await.unwrap().expect("an operation");
        if let Some(operation::Result::Response(any)) = operation.result {
            break ExecuteResponse::decode(&any.value[..]).unwrap();
        }
    };
    if let Some(result) = &response.result {
        let named = result
            .output_files
            .iter()
            .map(|file| file.digest.as_ref())
            .chain([result.stdout_digest.as_ref()]);
        let function = blobs::DigestFunction::Sha256;
        let needed: Vec<_> =
            named.map(|named| execution::digest::from_proto(named, function, "an output").unwrap()).collect();
        assert_eq!(needed.len(), 3);
        assert!(
            local.find_missing(&tenant, &needed).await.unwrap().is_empty(),
            "what was committed can be read"
        );
    }
    stop.stop();
    in_time(agent).await.unwrap().unwrap();
    response
}

#[tokio::test]
async fn w8_a_worker_uploads_the_outputs_again_that_the_store_has_lost() {
    for protocol in [Protocol::Stream, Protocol::Plan] {
        let response = execute(protocol, 3).await;
        assert_eq!(response.status.unwrap_or_default().code, 0);
        assert_eq!(response.result.unwrap().exit_code, 0);
    }
}
