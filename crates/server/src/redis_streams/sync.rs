//! Keeps the streams up to the index over one connection, and remembers what Redis has for each stream, as far as it is known.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use coordinator::wall;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, Value, cmd};

use super::commands::{self, LOST, Scripts};
use super::index::{Changes, QueueNumber, Work};
use super::reconcile::Reconciliation;
use super::{Shared, names};
use crate::convert::message_id;
use crate::metrics::Metrics;

/// How often streams are checked, and how many at a time, in turns. An idle stream that lost entries is found this way.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const CHECKED_STREAMS: usize = 256;
/// The most streams that are changed with one round trip.
const ROUND_STREAMS: usize = 64;
/// The most messages that are published with one round trip.
const ROUND_MESSAGES: usize = 1_000;
/// Streams of an earlier process that a start takes up. Beyond it, streams without open tasks stay as they are.
const MAX_OLD_STREAMS: usize = 100_000;

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error(
        "it holds the streams of another ledger ({found}; this is {expected}): use another database (redis://HOST:PORT/1), or \
         delete the key {} to let this server take the streams over",
        names::LEDGER
    )]
    OtherLedger { found: String, expected: String },
}

pub(super) struct StreamSync {
    shared: Arc<Shared>,
    ledger: String,
    metrics: Metrics,
    /// By the number of the queue.
    streams: Vec<Stream>,
    /// Distinguishes the markers of this process from those of earlier ones.
    run: String,
    changes: u64,
    /// The streams that could not be reconciled because somebody else changed them meanwhile; they wait for the next check.
    contested: BTreeSet<QueueNumber>,
    next_check: QueueNumber,
    /// How many changes there were when the last round began.
    taken: usize,
}

/// What Redis has for a queue, if its entries are known.
#[derive(Default)]
struct Stream {
    marker: String,
    length: u64,
    sent: Option<Sent>,
}

/// A change without an answer yet.
struct Sent {
    changes: Changes,
    marker: String,
    length: u64,
}

impl StreamSync {
    pub(super) fn new(shared: Arc<Shared>, ledger: String, metrics: Metrics) -> Result<StreamSync, String> {
        let mut run = [0; 8];
        getrandom::fill(&mut run).map_err(|error| format!("the system has no random numbers: {error}"))?;
        Ok(StreamSync {
            shared,
            ledger,
            metrics,
            streams: Vec::new(),
            run: data_encoding::HEXLOWER.encode(&run),
            changes: 0,
            contested: BTreeSet::new(),
            next_check: 0,
            taken: 0,
        })
    }

    /// How many changes there were when the last round began.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// Begins with a new connection: takes up the streams, and finds out what Redis still has.
    pub(super) async fn begin(&mut self, connection: &mut MultiplexedConnection) -> Result<(), Error> {
        self.claim(connection).await?;
        let all = 0..self.shared.lock().index.len();
        self.check(connection, all).await.map(drop)
    }

    /// Marks the streams as those of this ledger, and takes up the streams of an earlier process.
    async fn claim(&mut self, connection: &mut MultiplexedConnection) -> Result<(), Error> {
        let mut claim = redis::pipe();
        claim.cmd("SET").arg(names::LEDGER).arg(&self.ledger).arg("NX").ignore();
        claim.cmd("GET").arg(names::LEDGER);
        let (found,): (Option<String>,) = claim.query_async(connection).await?;
        if let Some(found) = found.filter(|found| *found != self.ledger) {
            return Err(Error::OtherLedger { found, expected: self.ledger.clone() });
        }
        let mut cursor = 0_u64;
        let mut taken = 0;
        loop {
            let mut scan = cmd("SSCAN");
            scan.arg(names::STREAMS).arg(cursor).arg("COUNT").arg(1_000);
            let (next, names): (u64, Vec<String>) = scan.query_async(connection).await?;
            taken += names.len();
            let mut state = self.shared.lock();
            names.iter().filter(|name| names::is_stream(name)).for_each(|name| state.index.add_named(name));
            if next == 0 || taken >= MAX_OLD_STREAMS {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// Checks streams in turns, and the id of the ledger, which is lost when Redis loses everything.
    pub(super) async fn check_some(&mut self, connection: &mut MultiplexedConnection) -> Result<(), Error> {
        let found: Option<String> = cmd("GET").arg(names::LEDGER).query_async(connection).await?;
        if found.as_ref() != Some(&self.ledger) {
            self.claim(connection).await?;
            self.next_check = 0;
        }
        let contested = std::mem::take(&mut self.contested);
        contested.into_iter().for_each(|queue| self.forget(queue));
        let queues = self.shared.lock().index.len();
        let end = queues.min(self.next_check + CHECKED_STREAMS);
        let lost = self.check(connection, self.next_check..end).await?;
        self.next_check = if end == queues { 0 } else { end };
        // Where one stream is lost, others may be as well.
        if lost { self.check(connection, 0..queues).await.map(drop) } else { Ok(()) }
    }

    /// Compares marker and length of streams with those that were sent, and learns whether changes without an answer were
    /// applied. Returns whether a stream was not as expected; it will be reconciled.
    async fn check(
        &mut self,
        connection: &mut MultiplexedConnection,
        queues: std::ops::Range<QueueNumber>,
    ) -> Result<bool, Error> {
        let mut lost = false;
        let queues: Vec<QueueNumber> = queues.collect();
        for part in queues.chunks(CHECKED_STREAMS) {
            let known: Vec<(QueueNumber, Arc<str>)> = {
                let index = &self.shared.lock().index;
                let known = part.iter().filter(|queue| index.is_known(**queue));
                known.map(|&queue| (queue, index.name(queue))).collect()
            };
            let mut ask = redis::pipe();
            ask.ignore_errors();
            for (_, name) in &known {
                ask.cmd("GET").arg(names::marker(name)).cmd("XLEN").arg(&**name);
            }
            let found = query(connection, &ask).await?;
            for ((queue, _), found) in known.into_iter().zip(found.chunks(2)) {
                lost |= !self.is_as_sent(queue, found);
            }
        }
        Ok(lost)
    }

    fn is_as_sent(&mut self, queue: QueueNumber, found: &[Value]) -> bool {
        let [marker, length] = found else { return false };
        let marker: Option<String> = redis::from_redis_value_ref(marker).ok();
        let stream = self.stream(queue);
        if let Some(sent) = stream.sent.take() {
            if marker.as_ref() == Some(&sent.marker) {
                (stream.marker, stream.length) = (sent.marker, sent.length);
            } else {
                self.shared.lock().index.put_back(queue, sent.changes);
            }
        }
        let stream = self.stream(queue);
        let is_same = marker.as_ref() == Some(&stream.marker)
            && commands::number(length) == i64::try_from(stream.length).ok();
        if !is_same {
            self.forget(queue);
        }
        is_same
    }

    /// Does the work of some queues. Returns whether there was more when it began, or a stream must be reconciled. Changes that
    /// come meanwhile are gathered for a later round.
    pub(super) async fn round(
        &mut self,
        connection: &mut MultiplexedConnection,
        scripts: &Scripts,
    ) -> Result<bool, Error> {
        let (work, pending, mut is_more) = {
            let index = &mut self.shared.lock().index;
            let pending = index.pending();
            (index.take_work(ROUND_STREAMS), pending, index.has_work())
        };
        self.metrics.redis().pending.set(pending as i64);
        self.taken = pending;
        let mut changed = Vec::new();
        let mut send = redis::pipe();
        send.ignore_errors();
        let mut unknown = Vec::new();
        for (queue, work) in work {
            match work {
                Work::Reconcile => unknown.push(queue),
                Work::Send(changes) => {
                    self.add_change(&mut send, scripts, queue, changes);
                    changed.push(queue);
                }
            }
        }
        // Before the changes, whose answers may be lost with the connection.
        let mut rest = unknown.into_iter();
        while let Some(queue) = rest.next() {
            if let Err(error) = self.reconcile(connection, scripts, queue).await {
                // What was taken and not done is work again.
                std::iter::once(queue).chain(rest).for_each(|queue| self.forget(queue));
                return Err(error);
            }
        }
        let results = query(connection, &send).await?;
        for (queue, result) in changed.into_iter().zip(results) {
            is_more |= !self.take_answer(queue, result)?;
        }
        Ok(is_more)
    }

    fn add_change(&mut self, send: &mut Pipeline, scripts: &Scripts, queue: QueueNumber, changes: Changes) {
        let next = self.next_marker();
        let name = self.shared.lock().index.name(queue);
        let stream = self.stream(queue);
        let removes = commands::ids(&changes.removes);
        let keys = [&*name, &*names::marker(&name)];
        send.add_command(scripts.change(keys, [&stream.marker, &next], &removes, &changes.adds));
        let length = (stream.length + changes.adds.len() as u64).saturating_sub(removes.len() as u64);
        stream.sent = Some(Sent { changes, marker: next, length });
    }

    /// Takes the answer to a change. Returns whether the stream is as expected; otherwise it will be reconciled.
    fn take_answer(&mut self, queue: QueueNumber, result: Value) -> Result<bool, Error> {
        let number = match result {
            // The change stays without an answer; the next connection finds out.
            Value::ServerError(error) => return Err(RedisError::from(error).into()),
            value => commands::number(&value).unwrap_or(LOST),
        };
        let stream = self.stream(queue);
        let Some(sent) = stream.sent.take() else { return Ok(true) };
        (stream.marker, stream.length) = (sent.marker, sent.length);
        let is_as_expected = i64::try_from(stream.length) == Ok(number);
        if is_as_expected {
            let metrics = self.metrics.redis();
            metrics.added.inc_by(sent.changes.adds.len() as u64);
            metrics.removed.inc_by(sent.changes.removes.len() as u64);
        } else {
            self.forget(queue);
        }
        Ok(is_as_expected)
    }

    async fn reconcile(
        &mut self,
        connection: &mut MultiplexedConnection,
        scripts: &Scripts,
        queue: QueueNumber,
    ) -> Result<(), Error> {
        let (name, wanted, newest, epoch) = {
            let index = &mut self.shared.lock().index;
            (index.name(queue), index.snapshot(queue), index.position().0, index.epoch())
        };
        // A ledger from a backup begins with lower epochs than the streams have seen.
        let is_first = self.stream(queue).marker.is_empty();
        let length = wanted.len() as u64;
        let mut next_marker = || self.next_marker();
        let reconciliation = Reconciliation {
            connection,
            scripts,
            stream: &name,
            wanted,
            newest,
            epoch: if is_first { u64::MAX } else { epoch },
            next_marker: &mut next_marker,
        };
        match reconciliation.run().await? {
            Some(marker) => {
                *self.stream(queue) = Stream { marker, length, sent: None };
                self.metrics.redis().reconciled.inc();
            }
            None => {
                tracing::debug!(
                    stream = &*name,
                    "somebody else changes a stream; it is corrected with the next check"
                );
                self.shared.lock().index.set_aside(queue);
                self.contested.insert(queue);
            }
        }
        Ok(())
    }

    /// Tells subscribers that delayed tasks are due.
    pub(super) async fn publish_due(&mut self, connection: &mut MultiplexedConnection) -> Result<(), Error> {
        loop {
            let due = self.shared.lock().index.take_due(wall(), ROUND_MESSAGES);
            if due.is_empty() {
                return Ok(());
            }
            let mut publish = redis::pipe();
            for (stream, position) in due {
                publish.cmd("PUBLISH").arg(&*stream).arg(message_id(position)).ignore();
            }
            publish.exec_async(connection).await?;
        }
    }

    fn forget(&mut self, queue: QueueNumber) {
        self.stream(queue).sent = None;
        self.shared.lock().index.forget(queue);
    }

    fn stream(&mut self, queue: QueueNumber) -> &mut Stream {
        if self.streams.len() <= queue {
            self.streams.resize_with(queue + 1, Stream::default);
        }
        &mut self.streams[queue]
    }

    /// A marker that was never used: epoch of the owner, run, ledger position, number of the change.
    fn next_marker(&mut self) -> String {
        self.changes += 1;
        let index = &self.shared.lock().index;
        format!("e{}:{}:{}:{}", index.epoch(), self.run, index.position(), self.changes)
    }
}

/// The results of a pipeline, errors of single commands included.
async fn query(connection: &mut MultiplexedConnection, pipeline: &Pipeline) -> Result<Vec<Value>, Error> {
    if pipeline.is_empty() { Ok(Vec::new()) } else { Ok(pipeline.query_async(connection).await?) }
}
