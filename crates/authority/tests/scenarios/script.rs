//! One running script: a world, and the names that the script gave to tasks and leases.

use std::collections::BTreeMap;
use std::sync::Arc;

use authority::command::*;
use authority::event::ReleaseCause;
use authority::{
    Answer, Category, Command, Dedup, Event, LeaseRef, QueueConfig, QueueDefaults, QueueKey, Scope,
    TaskOptions, Time,
};
use authority::{Position, TaskError, TaskId};

use super::parse::{Words, category};
use super::show;
use crate::support::{World, commands, same_state};

pub(super) struct Script {
    world: World,
    names: Names,
}

/// Tasks by their names, leases as L1, L2, … in the order of their grants.
#[derive(Default)]
pub(super) struct Names {
    pub tasks: BTreeMap<String, TaskId>,
    pub leases: Vec<LeaseRef>,
}

impl Script {
    pub(super) fn new() -> Script {
        let mut world = World::new();
        world.state.set_queue_defaults(queue_defaults());
        Script { world, names: Names::default() }
    }

    /// Runs a line and gives the lines of what follows.
    pub(super) fn run(&mut self, line: &str) -> Result<Vec<String>, String> {
        let mut words = Words::new(line);
        let mut verb = words.next()?;
        if verb == "at" {
            let time = words.next()?.replace('_', "");
            self.world.at(time.parse().map_err(|_| "a time is missing")?);
            verb = words.next()?;
        }
        let lines = match verb {
            "state" => show::tasks(&self.world, &self.names, words.maybe_next())?,
            "queue" => vec![show::queue(&self.world, &queue(&mut words))],
            "limit" => {
                self.world.state.set_max_bytes(size(&mut words)?);
                Vec::new()
            }
            "final-limit" => {
                self.world.state.set_max_final_bytes(size(&mut words)?);
                Vec::new()
            }
            _ => {
                let command = self.command(verb, &mut words)?;
                self.trace(command)
            }
        };
        words.end()?;
        Ok(lines)
    }

    /// Replaying the script's events must give the state that it ended in.
    pub(super) fn check_replay(&self) -> Result<(), String> {
        let mut replayed = World::replayed(&self.world.log, self.world.now);
        replayed.state.set_queue_defaults(queue_defaults());
        same_state(&self.world.state, &replayed.state)
    }

    fn trace(&mut self, command: Command) -> Vec<String> {
        let first = self.world.state.position().0 + 1;
        let (events, answer) = self.world.trace(command.clone());
        for (event, position) in events.iter().zip(first..) {
            if let (Event::LeaseGranted(event), Command::LeaseTasks(asked)) = (event, &command) {
                self.names.leases.push(LeaseRef {
                    scope: asked.scope.clone(),
                    worker: event.worker.clone(),
                    task: event.task,
                    attempt: event.attempt,
                    fencing_token: Position(position),
                });
            }
        }
        let mut lines: Vec<String> = (events.iter().zip(first..))
            .map(|(event, position)| format!("#{position} {}", show::event(&self.names, event)))
            .collect();
        lines.extend(show::answer(&self.names, &answer).into_iter().map(|line| format!("= {line}")));
        if let Answer::Configured(ConfigureAnswer::Invalid(what)) = &answer {
            lines.push(format!("  {what}"));
        }
        lines
    }

    fn command(&mut self, verb: &str, words: &mut Words) -> Result<Command, String> {
        Ok(match verb {
            "submit" => self.submit(words)?,
            "lease" => self.lease(words)?,
            "heartbeat" => Command::ExtendLease(ExtendLease { lease: self.reference(words)? }),
            "start" => {
                let lease = self.reference(words)?;
                let started_by = words.text("as").unwrap_or_else(|| lease.worker.clone());
                Command::StartAttempt(StartAttempt { lease, started_by })
            }
            "complete" => {
                let lease = self.reference(words)?;
                commands::complete(&lease, words.take("result").unwrap_or("null"))
            }
            "fail" => self.fail(words)?,
            "release" => {
                let cause = match words.take("cause") {
                    Some("undelivered") => ReleaseCause::Undelivered,
                    _ => ReleaseCause::Worker,
                };
                Command::ReleaseLease(ReleaseLease { lease: self.reference(words)?, cause })
            }
            "cancel" => {
                let (task, scope) = (self.task(words)?, scope(words));
                let reason = words.text("reason").unwrap_or_else(|| Arc::from("user_requested"));
                Command::CancelTask(CancelTask { scope, task, reason, by: None })
            }
            "kill" => {
                let (task, scope) = (self.task(words)?, scope(words));
                Command::KillTask(KillTask { scope, task, detail: words.text("detail"), by: None })
            }
            "redrive" => {
                let (task, id) = (self.task(words)?, self.task(words)?);
                Command::RedriveTask(RedriveTask { scope: scope(words), task, id, by: None })
            }
            "configure" => {
                let queue = queue(words);
                Command::ConfigureQueue(ConfigureQueue { queue, config: config(words)?, by: None })
            }
            "session" => {
                let (worker, session) = (Arc::from(words.next()?), Arc::from(words.next()?));
                Command::StartSession(StartSession { tenant: scope(words).tenant, worker, session })
            }
            "attach" => {
                let (task, operation) = (self.task(words)?, Arc::from(words.next()?));
                Command::AttachOperation(AttachOperation { scope: scope(words), task, operation })
            }
            "detach" => {
                let (task, operation) = (self.task(words)?, Arc::from(words.next()?));
                Command::DetachOperation(DetachOperation { scope: scope(words), task, operation, by: None })
            }
            "key" => Command::RotateTokenKey(RotateTokenKey { key_id: Arc::from(words.next()?), by: None }),
            "owner" => Command::TakeOver(TakeOver { node: Arc::from(words.next()?), audit_head: None }),
            "createKey" => {
                let id = words.next()?;
                commands::create_key(id, words.next()?)
            }
            "revokeKey" => commands::revoke_key(words.next()?),
            "tick" => commands::tick(),
            "purge" => Command::Purge(Purge { by_age: words.take("byAge") != Some("false") }),
            other => return Err(format!("{other} is no command")),
        })
    }

    fn submit(&mut self, words: &mut Words) -> Result<Command, String> {
        let id = self.task(words)?;
        let dedup = words
            .text("dedup")
            .map(|key| Dedup { key, content: commands::digest(words.take("content").unwrap_or("the same")) });
        let options = TaskOptions {
            dedup,
            deadline: words.number("deadline")?.map(Time),
            timeout_ms: words.number("timeoutMs")?,
            lease_ms: words.number("leaseMs")?,
            max_attempts: words.number("maxAttempts")?,
            backoff: words.backoff()?,
            ..TaskOptions::default()
        };
        let name = Arc::from(words.take("queue").unwrap_or("q"));
        Ok(Command::SubmitTask(Box::new(SubmitTask {
            id,
            queue: Arc::new(QueueKey { scope: scope(words), name }),
            payload: Arc::from(words.take("payload").unwrap_or("{}").as_bytes()),
            priority: words.number("priority")?.unwrap_or(0),
            delay_ms: words.number("delayMs")?.unwrap_or(0),
            properties: words.properties("needs"),
            options: (options != TaskOptions::default()).then(|| Arc::new(options)),
            operation: words.text("operation"),
        })))
    }

    fn lease(&mut self, words: &mut Words) -> Result<Command, String> {
        let worker = Arc::from(words.next()?);
        let queues = words.maybe_next().unwrap_or("q").split(',').map(Arc::from).collect();
        let (scope, properties) = (scope(words), words.properties("offers"));
        Ok(Command::LeaseTasks(LeaseTasks {
            scope,
            worker,
            session: words.text("session"),
            queues,
            properties,
            max_tasks: words.number("max")?.unwrap_or(1),
            request: words.take("request").map(commands::digest),
            contract: authority::Contract::Leases,
        }))
    }

    fn fail(&mut self, words: &mut Words) -> Result<Command, String> {
        let lease = self.reference(words)?;
        let category = words.take("category").map_or(Ok(Category::UserCode), category)?;
        let message = words.take("message").unwrap_or("boom");
        Ok(Command::ReportFailure(ReportFailure {
            lease,
            digest: commands::digest(&format!("{} {message}", category.name())),
            error: TaskError { category, code: words.text("code"), message: Arc::from(message) },
            retryable: words.take("retryable").map(|word| word == "true"),
            draw: words.number("draw")?.unwrap_or(0),
            details: None,
        }))
    }

    /// A lease by its name; `by`, `tenant`, `task`, `attempt` and `number` make it a lie.
    fn reference(&mut self, words: &mut Words) -> Result<LeaseRef, String> {
        let name = words.next()?;
        let number = name.strip_prefix('L').and_then(|number| number.parse::<usize>().ok());
        let lease = number.and_then(|number| self.names.leases.get(number.checked_sub(1)?));
        let mut lease = lease.ok_or_else(|| format!("there is no lease {name}"))?.clone();
        if let Some(worker) = words.text("by") {
            lease.worker = worker;
        }
        if let Some(task) = words.take("task") {
            lease.task = self.names.task(task);
        }
        lease.attempt = words.number("attempt")?.unwrap_or(lease.attempt);
        lease.fencing_token = words.number("number")?.map_or(lease.fencing_token, Position);
        if let Some(tenant) = words.text("tenant") {
            lease.scope.tenant = tenant;
        }
        Ok(lease)
    }

    fn task(&mut self, words: &mut Words) -> Result<TaskId, String> {
        words.next().map(|name| self.names.task(name))
    }
}

impl Names {
    fn task(&mut self, name: &str) -> TaskId {
        let new = TaskId(self.tasks.len() as u128 + 1);
        *self.tasks.entry(name.to_string()).or_insert(new)
    }

    pub(super) fn of_task(&self, id: TaskId) -> &str {
        self.tasks.iter().find(|(_, task)| **task == id).map_or("?", |(name, _)| name)
    }

    pub(super) fn of_lease(&self, lease: Position) -> String {
        match self.leases.iter().position(|known| known.fencing_token == lease) {
            Some(at) => format!("L{}", at + 1),
            None => format!("lease {lease}"),
        }
    }
}

fn queue(words: &mut Words) -> Arc<QueueKey> {
    let name = Arc::from(words.maybe_next().unwrap_or("q"));
    Arc::new(QueueKey { scope: scope(words), name })
}

fn scope(words: &mut Words) -> Scope {
    let mut scope = commands::scope_of(words.take("tenant").unwrap_or("acme"));
    if let Some(workspace) = words.text("workspace") {
        scope.workspace = workspace;
    }
    scope
}

fn config(words: &mut Words) -> Result<QueueConfig, String> {
    Ok(QueueConfig {
        max_attempts: words.number("maxAttempts")?,
        lease_ms: words.number("leaseMs")?,
        heartbeat_interval_ms: words.number("heartbeatIntervalMs")?,
        cancel_grace_ms: words.number("cancelGracePeriodMs")?,
        backoff: words.backoff()?,
        retry_on: words.categories()?,
        max_queue_size: words.number("maxQueueSize")?,
        retention_ms: words.number("retentionMs")?,
        push: None,
    })
}

fn size(words: &mut Words) -> Result<usize, String> {
    words.next()?.parse().map_err(|_| "a size is missing".to_owned())
}

/// The queue `exec` of the scripts has defaults of its own.
fn queue_defaults() -> QueueDefaults {
    let exec = QueueConfig {
        lease_ms: Some(300_000),
        heartbeat_interval_ms: Some(30_000),
        max_queue_size: Some(10_000),
        ..QueueConfig::default()
    };
    QueueDefaults::default().with("exec", exec)
}
