//! Runs actions: fetches the inputs, lays them out, runs the command, and uploads the outputs.

mod once;
mod times;
mod workspace;

use std::sync::Arc;
use std::time::SystemTime;

use blobs::{Digest, DigestFunction};
use prost::Message;
pub use tokio_util::sync::CancellationToken;
use wire::grpc::LeasedTask;

use crate::cache::Cache;
use crate::executors::{End, KILLED, Ran, Run};
use crate::inputs::message_cache::MessageCache;
use crate::inputs::{Fetched, Inputs};
use crate::outputs::{self, Collected, Destination, Expected, KeptOutputs};
use crate::worker_context::{WorkerContext, blocking_setup};
use crate::{ActionOptions, Cas, Error, Executor, Failure, Outcome, Performer, Permit};
use execution::action::timeout;
use execution::reapi::{Action, ActionResult, Command, ExecutedActionMetadata};
use execution::{ExecutionPayload, any, digest};
pub use once::{Once, OnceError, execute_once};
use times::{now, record_run, timestamp};
pub(crate) use workspace::Workspace;

/// How often inputs that were evicted between fetch and layout are fetched again.
const MAX_ROUNDS: u32 = 3;

/// The size of cached commands, in each of two generations.
const MAX_COMMAND_BYTES: usize = 8 * 1024 * 1024;
const REQUEST_METADATA: &str = "build.bazel.remote.execution.v2.RequestMetadata";

pub struct Actions {
    pub(crate) context: Arc<WorkerContext>,
    allow_absolute_symlinks: bool,
    pub(crate) inputs: Arc<Inputs>,
    commands: MessageCache<Command>,
}

/// An action whose inputs are in the cache.
struct Ready {
    action: Action,
    command: Arc<Command>,
    expected: Arc<Expected>,
    inputs: Fetched,
}

impl Actions {
    /// Locks the worker's directories and removes what an earlier process of this worker left.
    pub async fn open(
        worker_id: &str,
        options: &ActionOptions,
        executor: Arc<dyn Executor>,
        cas: Arc<dyn Cas>,
    ) -> Result<Actions, Error> {
        let context = WorkerContext::open(worker_id, options, executor, cas).await?;
        let own = options.clone();
        let cache = blocking_setup(move || Cache::open(&own.cache_dir, own.cache_max_bytes)).await?;
        let inputs = Inputs::new(Arc::new(cache), context.cas.clone(), options.allow_absolute_symlinks);
        let allow_absolute_symlinks = options.allow_absolute_symlinks;
        let commands = MessageCache::new(MAX_COMMAND_BYTES);
        Ok(Actions { context, allow_absolute_symlinks, inputs: Arc::new(inputs), commands })
    }

    /// Runs one action. `freed` is called when its command has ended.
    pub async fn run(
        &self,
        instance: &str,
        action: Digest,
        cancel: &CancellationToken,
        freed: impl FnOnce() + Send,
    ) -> Result<ActionResult, Failure> {
        self.run_and_keep(instance, action, [cancel; 2], freed).await.map(|(result, _)| result)
    }

    /// The same, with the outputs, which can be uploaded again. The second token says that nothing is reported any more.
    async fn run_and_keep(
        &self,
        instance: &str,
        action: Digest,
        [cancel, lost]: [&CancellationToken; 2],
        freed: impl FnOnce() + Send,
    ) -> Result<(ActionResult, KeptOutputs), Failure> {
        let mut metadata = ExecutedActionMetadata {
            worker: self.context.worker_id.clone(),
            worker_start_timestamp: now(),
            input_fetch_start_timestamp: now(),
            ..ExecutedActionMetadata::default()
        };
        let ready = unless(cancel, self.fetch(instance, action)).await?;
        let workspace = unless(cancel, self.workspace(instance, &ready)).await?;
        metadata.input_fetch_completed_timestamp = now();
        let ran = self.context.executor.execute(self.prepared(&ready, &workspace, cancel)?).await?;
        record_run(&mut metadata, &ran);
        metadata.output_upload_start_timestamp = now();
        freed();
        let exit_code = match self.exit_code(&ran, &ready.action, &workspace).await {
            Err(failure) if ran.end.exit_code().is_none() => {
                let upload = unless(lost, self.upload_output(instance, action.function, workspace));
                return Err(match upload.await {
                    Ok(output) => failure.with_partial(ActionResult {
                        exit_code: KILLED,
                        execution_metadata: Some(metadata),
                        ..output
                    }),
                    Err(why) => {
                        if !lost.is_cancelled() {
                            tracing::warn!(%why, "the output of a stopped command is lost");
                        }
                        failure
                    }
                });
            }
            ended => ended?,
        };
        let upload = self.upload_outputs(instance, action.function, &ready, workspace);
        let (mut result, kept) = unless(cancel, upload).await?;
        result.exit_code = exit_code;
        metadata.output_upload_completed_timestamp = now();
        metadata.worker_completed_timestamp = now();
        result.execution_metadata = Some(metadata);
        Ok((result, kept))
    }

    /// One call to the store if the command and the input root are cached, and otherwise one more for both.
    async fn fetch(&self, instance: &str, action: Digest) -> Result<Ready, Failure> {
        let mut missing = Vec::new();
        let content = self.inputs.fetch.whole(instance, &[action]).await?.pop().flatten();
        let content = content.ok_or_else(|| Failure::missing_inputs(&[action]))?;
        let action_digest = action;
        let action: Action = decode(&content, "the action")?;
        let function = action_digest.function;
        let command = digest::from_proto(action.command_digest.as_ref(), function, "the command")?;
        let root = digest::from_proto(action.input_root_digest.as_ref(), function, "the input root")?;
        let known = self.commands.get(&command);
        let mut wanted = Vec::new();
        wanted.extend(known.is_none().then_some(command));
        wanted.extend((!self.inputs.knows(&root)).then_some(root));
        let mut contents = self.inputs.fetch.whole(instance, &wanted).await?.into_iter();
        let command = match known {
            Some(known) => Some(known),
            None => match contents.next().flatten() {
                Some(content) => {
                    Some(self.commands.add(command, decode(&content, "the command")?, content.len()))
                }
                None => {
                    missing.push(command);
                    None
                }
            },
        };
        let inputs = self.inputs.fetch(instance, root, contents.next().flatten(), &mut missing).await?;
        let Some(command) = command.filter(|_| missing.is_empty()) else {
            missing.sort_unstable();
            missing.dedup();
            return Err(Failure::missing_inputs(&missing));
        };
        execution::command::check(&command)?;
        let expected = Arc::new(Expected::from_command(&command, self.allow_absolute_symlinks)?);
        Ok(Ready { action, command, expected, inputs })
    }

    /// The task that lays the inputs out owns the directory, so that it is removed only after the task has ended, even if
    /// this future is dropped.
    async fn workspace(&self, instance: &str, ready: &Ready) -> Result<Workspace, Failure> {
        for _ in 0..MAX_ROUNDS {
            let (context, inputs, expected) =
                (self.context.clone(), ready.inputs.clone(), ready.expected.clone());
            let make = move || {
                context.check_disk().and_then(|()| Workspace::make(&context.dirs, &inputs, &expected))
            };
            match self.context.dirs.work(make).await? {
                Ok(workspace) => return Ok(workspace),
                Err(evicted) => self.inputs.fetch_again(instance, &evicted).await?,
            }
        }
        Err(Failure::broken("inputs leave the cache before they can be used: it is too small for the action"))
    }

    fn prepared(
        &self,
        ready: &Ready,
        workspace: &Workspace,
        cancel: &CancellationToken,
    ) -> Result<Run, Failure> {
        let (command, root) = (&ready.command, &workspace.root);
        let platform = execution::action::platform(&ready.action, command);
        let properties = platform.map_or(&[][..], |platform| &platform.properties);
        let (stdout, stderr) = workspace.captures()?;
        let variables = command.environment_variables.iter();
        Ok(Run {
            arguments: command.arguments.clone(),
            environment: variables.map(|one| (one.name.clone(), one.value.clone())).collect(),
            input_root: root.clone(),
            working_directory: match command.working_directory.as_str() {
                "" => root.clone(),
                below => root.join(below),
            },
            timeout: timeout(&ready.action)?,
            stdout,
            stderr,
            max_output_bytes: self.context.max_output_bytes,
            platform: properties.iter().map(|one| (one.name.clone(), one.value.clone())).collect(),
            cancel: cancel.clone(),
        })
    }

    /// The exit code, or the attempt's failure. A command that broke a limit has a result that says so: it would break the
    /// limit at every attempt, and clients repeat what has no result.
    async fn exit_code(&self, ran: &Ran, action: &Action, workspace: &Workspace) -> Result<i32, Failure> {
        let ended = self.context.exit_code(ran, timeout(action)?).await;
        match (ran.end, ended) {
            (End::TooMuchOutput | End::OutOfMemory, Err(failure)) => {
                workspace.add_line(self.context.max_output_bytes, &failure.message).await?;
                ran.end.exit_code().ok_or(failure)
            }
            (_, ended) => ended,
        }
    }

    /// Uploads what a stopped command has written to standard output and standard error.
    async fn upload_output(
        &self,
        instance: &str,
        function: DigestFunction,
        workspace: Workspace,
    ) -> Result<ActionResult, Failure> {
        let collect = move || Ok((workspace.collect_output(function)?, workspace));
        let (Collected { result, blobs }, workspace) = self.context.dirs.work(collect).await?;
        outputs::upload(Destination { cas: &*self.context.cas, instance }, &blobs, &workspace.root).await?;
        Ok(result)
    }

    async fn upload_outputs(
        &self,
        instance: &str,
        function: DigestFunction,
        ready: &Ready,
        workspace: Workspace,
    ) -> Result<(ActionResult, KeptOutputs), Failure> {
        let (inputs, expected) = (ready.inputs.clone(), ready.expected.clone());
        let collect = move || Ok((workspace.collect(&inputs, &expected, function)?, workspace));
        let (Collected { result, mut blobs }, mut workspace) = self.context.dirs.work(collect).await?;
        let directory = workspace.root.parent().unwrap_or(&workspace.root).to_owned();
        outputs::upload(Destination { cas: &*self.context.cas, instance }, &blobs, &workspace.root).await?;
        if blobs.has_names() {
            let open = move || {
                blobs.open_files(&workspace.root);
                Ok((blobs, workspace))
            };
            (blobs, workspace) = self.context.dirs.work(open).await?;
        }
        if !ready.inputs.is_empty() {
            let (context, inputs) = (self.context.clone(), ready.inputs.clone());
            self.context.dirs.work(move || workspace.close(&context.dirs, &inputs)).await?;
        }
        let (cas, instance) = (self.context.cas.clone(), instance.to_owned());
        Ok((result, KeptOutputs { cas, instance, blobs, directory }))
    }
}

#[tonic::async_trait]
impl Performer for Actions {
    async fn perform(&self, task: LeasedTask, permit: Permit) -> Outcome {
        let decoded =
            ExecutionPayload::decode(&task.payload).and_then(|payload| Ok((payload.action()?, payload)));
        let (action, payload) = match decoded {
            Ok(decoded) => decoded,
            Err(invalid) => return Failure::from(invalid).into(),
        };
        let ran = self
            .run_and_keep(&payload.instance_name, action, [permit.cancelled(), permit.lost()], || {
                permit.free()
            })
            .await;
        match ran {
            Ok((mut result, kept)) => {
                permit.keep(kept);
                if let Some(metadata) = &mut result.execution_metadata {
                    let queued_at = task.created_at.and_then(|time| SystemTime::try_from(time).ok());
                    metadata.queued_timestamp = queued_at.and_then(timestamp);
                    let origin = payload.origin.to_proto();
                    metadata
                        .auxiliary_metadata
                        .extend(origin.map(|origin| any::pack(REQUEST_METADATA, &origin)));
                }
                Outcome::Action(Box::new(result))
            }
            Err(failure) => failure.into(),
        }
    }

    async fn settle(&self) {
        // A cancelled attempt may still leave its directory to later ones.
        self.context.dirs.pause().await;
        let inputs = self.inputs.clone();
        let _ = tokio::task::spawn_blocking(move || inputs.clear()).await;
        self.context.dirs.settle().await;
    }
}

/// Runs work until the attempt is cancelled.
pub(crate) async fn unless<T>(
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Failure::cancelled()),
        done = work => done,
    }
}

fn decode<M: Message + Default>(content: &[u8], what: &str) -> Result<M, Failure> {
    M::decode(content).map_err(|error| Failure::invalid_action(format!("{what} cannot be decoded: {error}")))
}
