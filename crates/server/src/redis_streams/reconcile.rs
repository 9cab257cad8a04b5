//! Makes a stream have exactly the entries of the index, whatever Redis has: after a start, a loss, an older dump, or changes by
//! others.
//!
//! Redis adds entries only above the highest id that a stream ever had. Where an entry below is missing, the stream is built
//! beside the old one and replaces it at once, with its consumer groups.

use redis::aio::MultiplexedConnection;
use redis::streams::StreamInfoStreamReply;
use redis::{RedisResult, Value, cmd};

use super::commands::{self, LOST, Scripts, entries, parse_id};
use super::index::{Envelope, MAX_CHANGES};
use super::names;

/// Entries that are read at once.
const PAGE: usize = 1_000;
/// With more entries that are not ours than this, the stream is replaced.
const MAX_SURPLUS: usize = 100_000;

/// A stream that is being reconciled.
pub(super) struct Reconciliation<'a> {
    pub connection: &'a mut MultiplexedConnection,
    pub scripts: &'a Scripts,
    pub stream: &'a str,
    /// The entries that it should have, oldest first.
    pub wanted: Vec<Envelope>,
    /// No entry of ours is newer.
    pub newest: u64,
    /// Another owner whose epoch is higher keeps the stream.
    pub epoch: u64,
    /// Names the next change.
    pub next_marker: &'a mut (dyn FnMut() -> String + Send),
}

/// The difference between a stream and the entries that it should have.
struct Difference {
    missing: Vec<Envelope>,
    surplus: Vec<String>,
    must_be_replaced: bool,
}

impl Reconciliation<'_> {
    /// Returns the marker of the last change, or nothing if somebody else changed the stream meanwhile.
    pub(super) async fn run(mut self) -> RedisResult<Option<String>> {
        let marker = names::marker(self.stream);
        let own = (self.next_marker)();
        // From here on, changes that were sent over an earlier connection have no effect.
        let mut begin = redis::pipe();
        begin.cmd("SADD").arg(names::STREAMS).arg(self.stream).ignore();
        begin.add_command(self.scripts.take(&marker, &own, self.epoch));
        begin.cmd("TYPE").arg(self.stream);
        let (taken, kind): (i64, String) = begin.query_async(self.connection).await?;
        if taken == LOST {
            return Ok(None);
        }
        let difference = match kind.as_str() {
            "none" => {
                Difference { missing: self.wanted.clone(), surplus: Vec::new(), must_be_replaced: false }
            }
            "stream" => self.compare().await?,
            _ => Difference { missing: Vec::new(), surplus: Vec::new(), must_be_replaced: true },
        };
        if difference.must_be_replaced {
            return self.replace(&marker, own).await;
        }
        let stream = self.stream;
        self.change(stream, &marker, own, &difference.surplus, &difference.missing, self.wanted.len()).await
    }

    async fn compare(&mut self) -> RedisResult<Difference> {
        let info: StreamInfoStreamReply =
            cmd("XINFO").arg("STREAM").arg(self.stream).query_async(self.connection).await?;
        let last = parse_id(&info.last_generated_id);
        let mut difference = Difference { missing: Vec::new(), surplus: Vec::new(), must_be_replaced: false };
        let mut wanted = self.wanted.iter().copied().peekable();
        let mut after: Option<String> = None;
        loop {
            let page = entries(self.connection, self.stream, after.as_deref(), PAGE).await?;
            let is_last = page.len() < PAGE;
            after = page.last().map(|entry| entry.id.clone()).or(after);
            for found in page {
                while let Some(envelope) = wanted.next_if(|next| (next.position, 0) < found.number) {
                    difference.missing.push(envelope);
                }
                match wanted.next_if(|next| (next.position, 0) == found.number) {
                    // Somebody else has taken the id.
                    Some(envelope) if found.job != Some(envelope.task.to_string()) => {
                        difference.must_be_replaced = true;
                    }
                    Some(_) => {}
                    None => difference.surplus.push(found.id),
                }
            }
            if is_last || difference.must_be_replaced || difference.surplus.len() > MAX_SURPLUS {
                break;
            }
        }
        difference.missing.extend(wanted);
        let is_below = difference.missing.first().is_some_and(|envelope| (envelope.position, 0) <= last);
        // The next entry could not be added above an id that is not ours.
        let is_blocked = last.0 > self.newest;
        difference.must_be_replaced |= is_below || is_blocked || difference.surplus.len() > MAX_SURPLUS;
        Ok(difference)
    }

    async fn replace(mut self, marker: &str, own: String) -> RedisResult<Option<String>> {
        let built = names::rebuilt(self.stream);
        let () = cmd("DEL").arg(&built).query_async(self.connection).await?;
        let wanted = std::mem::take(&mut self.wanted);
        let Some(own) = self.change(&built, marker, own, &[], &wanted, wanted.len()).await? else {
            return Ok(None);
        };
        let next = (self.next_marker)();
        let swap = self.scripts.swap([self.stream, marker, &built], [&own, &next], self.newest);
        let length: i64 = swap.query_async(self.connection).await?;
        Ok((length == wanted.len() as i64).then_some(next))
    }

    /// Applies the changes in parts. Returns the marker of the last part, if the stream then has the expected length.
    async fn change(
        &mut self,
        stream: &str,
        marker: &str,
        mut own: String,
        removes: &[String],
        adds: &[Envelope],
        expected: usize,
    ) -> RedisResult<Option<String>> {
        let no_removes = removes.chunks(MAX_CHANGES).map(|part| (part, &[][..]));
        let parts = no_removes.chain(adds.chunks(MAX_CHANGES).map(|part| (&[][..], part)));
        for (removes, adds) in parts {
            let next = (self.next_marker)();
            let change = self.scripts.change([stream, marker], [&own, &next], removes, adds);
            let result: Value = change.query_async(self.connection).await?;
            if commands::number(&result).is_none_or(|number| number < 0) {
                return Ok(None);
            }
            own = next;
        }
        let length: usize = cmd("XLEN").arg(stream).query_async(self.connection).await?;
        Ok((length == expected).then_some(own))
    }
}
