//! Execute: submits a task for an action, unless its result is cached or an equal execution is in flight (R29 to R41).

use std::sync::Arc;

use authority::command::{AttachOperation, SubmitTask};
use authority::{QueueKey, Scope, TaskId};
use blobs::{Digest, Serve};
use execution::{EXECUTION_QUEUE, ExecutionPayload, Origin, action, command, digest};
use tonic::{Request, Status};

use super::follow::{self, OperationStream};
use super::in_flight::Submission;
use super::pins::PinGuard;
use super::{inputs, operation, operation_name, platform, shared_key};
use crate::convert::{ids, request_metadata};
use crate::edge::auth::Caller;
use crate::reapi::capabilities::PRIORITIES;
use crate::reapi::inline_outputs::InlineOutputs;
use crate::reapi::messages::{Action, ActionResult, Command, ExecuteRequest};
use crate::reapi::store::Store;
use crate::reapi::{Reapi, instance};

pub(super) async fn execute(
    reapi: &Reapi,
    request: &Request<ExecuteRequest>,
) -> Result<OperationStream, Status> {
    let asked = request.get_ref();
    if !reapi.content.settings.exec_enabled {
        return Err(Status::failed_precondition(
            "this server is a cache only: capabilities.exec_enabled is false",
        ));
    }
    let scope = instance::scope(request.metadata(), &asked.instance_name)?;
    Caller::of(request.extensions()).check_queues([EXECUTION_QUEUE])?;
    let function = digest::function_from_proto(asked.digest_function)?;
    let action_digest = digest::from_proto(asked.action_digest.as_ref(), function, "action_digest")?;
    let priority = asked.execution_policy.as_ref().map_or(0, |policy| policy.priority);
    if !PRIORITIES.contains(&priority) {
        return Err(Status::invalid_argument(format!(
            "execution_policy.priority must be between {} and {}, but is {priority}",
            PRIORITIES.start(),
            PRIORITIES.end()
        )));
    }
    let wanted = InlineOutputs::new(asked.inline_stdout, asked.inline_stderr, &asked.inline_output_files);
    let store = reapi.store(&scope)?;
    if !asked.skip_cache_lookup
        && let Some(result) =
            reapi.content.results.get(&store, &scope, &action_digest, Serve::Committed).await?
    {
        return cached(&store, &asked.instance_name, &action_digest, result, &wanted).await;
    }
    let accepted = match read(reapi, &store, &action_digest).await? {
        Read::Accepted(accepted) => *accepted,
        Read::Lacks(missing) => return lacks(&asked.instance_name, &action_digest, &missing),
    };
    match begin(reapi, request, &scope, &action_digest, accepted, priority).await? {
        Begun::Task(task, operation) => Ok(follow::follow(reapi.clone(), scope, task, operation, wanted)),
        Begun::Cached(result) => cached(&store, &asked.instance_name, &action_digest, *result, &wanted).await,
    }
}

/// The operation of an action whose result is known.
async fn cached(
    store: &Store,
    instance: &str,
    action: &Digest,
    result: ActionResult,
    wanted: &InlineOutputs,
) -> Result<OperationStream, Status> {
    let result = wanted.fill(store, result, action.function).await?;
    let response = operation::response(Ok(result), true);
    Ok(follow::at_once(operation::done(&operation_name::of_cached(instance)?, Some(action), &response)))
}

/// Names all missing blobs: in the status of the call if it is small enough, or else in an operation that is over at once.
fn lacks(instance: &str, action: &Digest, missing: &[Digest]) -> Result<OperationStream, Status> {
    let status = inputs::refusal(missing);
    if status.details().len() <= inputs::MAX_HEADER_DETAIL_BYTES {
        return Err(status);
    }
    let response = operation::response(Err(status), false);
    Ok(follow::at_once(operation::done(&operation_name::of_cached(instance)?, Some(action), &response)))
}

enum Read {
    Accepted(Box<Accepted>),
    Lacks(Vec<Digest>),
}

struct Accepted {
    action: Action,
    command: Command,
    /// Protects the inputs from eviction.
    held: Option<PinGuard>,
}

/// Reads the action and its command, if all inputs are present.
async fn read(reapi: &Reapi, store: &Store, digest: &Digest) -> Result<Read, Status> {
    let permit = store.walk().await?;
    let Some(action) = inputs::message::<Action>(store, digest, "an action").await? else {
        return Ok(Read::Lacks(vec![*digest]));
    };
    check_timeout(reapi, &action)?;
    let command_digest =
        digest::from_proto(action.command_digest.as_ref(), digest.function, "command_digest")?;
    let root = digest::from_proto(action.input_root_digest.as_ref(), digest.function, "input_root_digest")?;
    let command = inputs::message::<Command>(store, &command_digest, "a command").await?;
    let tree = inputs::tree(store, &permit, &root).await?;
    let needed: Vec<Digest> =
        [*digest, command_digest].into_iter().chain(tree.directories).chain(tree.files).collect();
    // Pinned before the lookup, so that inputs that are found stay.
    let held = reapi.executions.pins.pin(store, &needed);
    let missing = store.missing(&needed).await?;
    match command {
        Some(command) if missing.is_empty() => {
            command::check(&command)?;
            Ok(Read::Accepted(Box::new(Accepted { action, command, held })))
        }
        // The command was uploaded between the two lookups; the client's next try finds it.
        None if missing.is_empty() => Ok(Read::Lacks(vec![command_digest])),
        _ => Ok(Read::Lacks(missing)),
    }
}

fn check_timeout(reapi: &Reapi, action: &Action) -> Result<(), Status> {
    let max = reapi.content.settings.max_action_timeout;
    match action::timeout(action)? {
        Some(timeout) if timeout > max => Err(Status::invalid_argument(format!(
            "the action's timeout must be at most {} s, but is {} s",
            max.as_secs(),
            timeout.as_secs()
        ))),
        _ => Ok(()),
    }
}

/// An action without a timeout may run for as long as any action.
fn timeout_ms(reapi: &Reapi, action: &Action) -> Result<u64, Status> {
    let timeout = action::timeout(action)?.unwrap_or(reapi.content.settings.max_action_timeout);
    Ok(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))
}

enum Begun {
    /// The operation that waits for a task.
    Task(TaskId, Arc<str>),
    /// An equal execution completed since the cache was asked.
    Cached(Box<ActionResult>),
}

/// Joins an equal execution or submits a task.
async fn begin(
    reapi: &Reapi,
    request: &Request<ExecuteRequest>,
    scope: &Scope,
    digest: &Digest,
    accepted: Accepted,
    priority: i32,
) -> Result<Begun, Status> {
    let asked = request.get_ref();
    let Accepted { action, command, held } = accepted;
    let properties = platform::requirements(&action, &command)?;
    let _dedup_lock = reapi.executions.in_flight.dedup_lock(scope, digest).await;
    let may_join = !asked.skip_cache_lookup && !action.do_not_cache;
    let named = |task| operation_name::make(&asked.instance_name, task);
    if may_join {
        if let Some((task, operation)) = reapi.executions.in_flight.join(scope, digest, named).await? {
            return Ok(Begun::Task(task, operation));
        }
        let store = reapi.store(scope)?;
        let result = reapi.content.results.look_again(&store, scope, digest, Serve::Committed).await?;
        if let Some(result) = result {
            return Ok(Begun::Cached(Box::new(result)));
        }
    }
    let task = ids::new_task_id(reapi.app.handle.now())?;
    let operation = named(task)?;
    let payload = ExecutionPayload {
        operation_name: operation.to_string(),
        action_digest: digest.to_string(),
        digest_function: digest::function_to_proto(digest.function).as_str_name().to_owned(),
        instance_name: asked.instance_name.clone(),
        do_not_cache: action.do_not_cache,
        skip_cache_lookup: asked.skip_cache_lookup,
        timeout_ms: Some(timeout_ms(reapi, &action)?),
        origin: request_metadata::decode(request.metadata())
            .as_ref()
            .map(Origin::from_proto)
            .unwrap_or_default(),
    };
    let payload = payload.encode()?;
    let mut submit = SubmitTask {
        id: task,
        queue: Arc::new(QueueKey { scope: scope.clone(), name: Arc::from(EXECUTION_QUEUE) }),
        payload: Arc::from(payload),
        priority,
        delay_ms: 0,
        properties,
        options: None,
        operation: Some(operation.clone()),
    };
    let mut held = held;
    if may_join && reapi.content.settings.is_content_shared {
        match begin_once(reapi, &submit, digest, held, named).await? {
            Once::Begun(begun) => return Ok(begun),
            Once::Unnamed(still_held) => held = still_held,
        }
    }
    submit.options = None;
    reapi.executions.in_flight.begin(submit, digest, !action.do_not_cache, held).await?;
    Ok(Begun::Task(task, operation))
}

enum Once {
    Begun(Begun),
    /// No key can be given to the execution.
    Unnamed(Option<PinGuard>),
}

/// Submits a task unless an equal execution was submitted through another node; then joins that one, or takes its result.
async fn begin_once(
    reapi: &Reapi,
    submit: &SubmitTask,
    digest: &Digest,
    mut held: Option<PinGuard>,
    named: impl Fn(TaskId) -> Result<Arc<str>, Status>,
) -> Result<Once, Status> {
    let (in_flight, scope) = (&reapi.executions.in_flight, &submit.queue.scope);
    let mut previous = None;
    for _ in 0..=shared_key::MAX_EARLIER_EXECUTIONS {
        let submit = SubmitTask { options: Some(shared_key::options(digest, previous)), ..submit.clone() };
        let equal = match in_flight.begin(submit.clone(), digest, true, held).await? {
            Submission::Begun => {
                let operation = submit.operation.unwrap_or_default();
                return Ok(Once::Begun(Begun::Task(submit.id, operation)));
            }
            Submission::Equal(equal, still_held) => {
                held = still_held;
                equal.task
            }
            Submission::KeyTaken(held) => return Ok(Once::Unnamed(held)),
        };
        let operation = named(equal.id)?;
        let attach = AttachOperation { scope: scope.clone(), task: equal.id, operation: operation.clone() };
        if in_flight.join_existing(&equal, attach).await? {
            return Ok(Once::Begun(Begun::Task(equal.id, operation)));
        }
        let store = reapi.store(scope)?;
        if let Some(result) =
            reapi.content.results.look_again(&store, scope, digest, Serve::Committed).await?
        {
            return Ok(Once::Begun(Begun::Cached(Box::new(result))));
        }
        previous = Some(equal.id);
    }
    Ok(Once::Unnamed(held))
}
