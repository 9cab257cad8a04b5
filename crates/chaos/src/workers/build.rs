//! A client that wants every one of its actions built, whatever happens meanwhile: it asks again and attaches again.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bazel_remote_apis::build::bazel::remote::execution::v2::command::EnvironmentVariable;
use bazel_remote_apis::build::bazel::remote::execution::v2::content_addressable_storage_client::ContentAddressableStorageClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::execution_client::ExecutionClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    Action, BatchUpdateBlobsRequest, Command, Digest, Directory, ExecuteRequest, ExecuteResponse,
    WaitExecutionRequest, batch_update_blobs_request::Request as Blob,
};
use bazel_remote_apis::google::longrunning::{Operation, operation};
use data_encoding::HEXLOWER;
use prost::Message;
use sha2::{Digest as _, Sha256};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

const PAUSE: Duration = Duration::from_millis(50);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// One action in so many leaves a process behind that nobody ends but the worker.
const LEAVES_ONE_BEHIND: usize = 7;

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Build {
    channel: Channel,
    seed: u64,
}

impl Build {
    pub(super) fn new(address: &str, seed: u64) -> Result<Build> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?.connect_timeout(CONNECT_TIMEOUT);
        Ok(Build { channel: endpoint.connect_lazy(), seed })
    }

    /// Has one action built, and checks its result. The answer is how often it had to ask or attach again.
    pub(super) async fn action(&self, number: usize, deadline: Instant) -> Result<usize> {
        let mut again = 0;
        let mut known = None;
        loop {
            ensure!(Instant::now() < deadline, "it did not end");
            match self.attempt(number, &mut known).await {
                Ok(response) => {
                    check(number, &response)?;
                    return Ok(again);
                }
                Err(status) => match status.code() {
                    // The server is down, is about to stop, or has just come back.
                    Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal | Code::Aborted => {}
                    Code::ResourceExhausted | Code::DeadlineExceeded => {}
                    // What was not yet acknowledged when the server was killed may be gone, and is sent again.
                    Code::NotFound | Code::FailedPrecondition => known = None,
                    _ => bail!("it was refused: {status:?}"),
                },
            }
            again += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn attempt(&self, number: usize, known: &mut Option<String>) -> Result<ExecuteResponse, Status> {
        let mut executions = ExecutionClient::new(self.channel.clone());
        let stream = match known {
            Some(name) => executions.wait_execution(WaitExecutionRequest { name: name.clone() }).await?,
            None => {
                let action_digest = Some(self.upload(number).await?);
                executions.execute(ExecuteRequest { action_digest, ..ExecuteRequest::default() }).await?
            }
        };
        follow(stream.into_inner(), known).await
    }

    async fn upload(&self, number: usize) -> Result<Digest, Status> {
        let behind = match number % LEAVES_ONE_BEHIND {
            0 => "sleep 600 > /dev/null 2>&1 & ",
            _ => "",
        };
        let script = format!("{behind}sleep 0.2; echo {number} > out; cat out");
        let path = EnvironmentVariable { name: "PATH".into(), value: "/bin:/usr/bin".into() };
        let command = Command {
            arguments: vec!["/bin/sh".into(), "-c".into(), script],
            environment_variables: vec![path],
            output_paths: vec!["out".into()],
            ..Command::default()
        };
        let (command, root) = (command.encode_to_vec(), Directory::default().encode_to_vec());
        let action = Action {
            command_digest: Some(digest(&command)),
            input_root_digest: Some(digest(&root)),
            salt: self.seed.to_le_bytes().to_vec(),
            ..Action::default()
        };
        let action = action.encode_to_vec();
        let named = digest(&action);
        let requests =
            [command, root, action].map(|data| Blob { digest: Some(digest(&data)), data, ..Blob::default() });
        let request = BatchUpdateBlobsRequest { requests: requests.to_vec(), ..Default::default() };
        ContentAddressableStorageClient::new(self.channel.clone()).batch_update_blobs(request).await?;
        Ok(named)
    }
}

async fn follow(
    mut stream: Streaming<Operation>,
    known: &mut Option<String>,
) -> Result<ExecuteResponse, Status> {
    while let Some(operation) = stream.message().await? {
        *known = Some(operation.name);
        let Some(operation::Result::Response(any)) = operation.result else { continue };
        let response = ExecuteResponse::decode(&any.value[..]);
        return response.map_err(|error| Status::data_loss(format!("no response: {error}")));
    }
    Err(Status::unavailable("the stream ended early"))
}

fn check(number: usize, response: &ExecuteResponse) -> Result<()> {
    let status = response.status.as_ref().filter(|status| status.code != 0);
    ensure!(status.is_none(), "it ended with {status:?}");
    let result = response.result.as_ref().context("there is no result")?;
    let expected = format!("{number}\n").into_bytes();
    let outputs: Vec<_> =
        result.output_files.iter().map(|file| (&*file.path, file.digest.as_ref())).collect();
    ensure!(
        result.exit_code == 0 && outputs == [("out", Some(&digest(&expected)))],
        "its result is another's: {result:?}"
    );
    Ok(())
}

fn digest(bytes: &[u8]) -> Digest {
    let hash = HEXLOWER.encode(&Sha256::digest(bytes));
    Digest { hash, size_bytes: bytes.len() as i64 }
}
