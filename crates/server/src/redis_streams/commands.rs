//! The commands that the publisher sends: scripts that change a stream only if its marker says that nothing was lost and
//! nobody else changed it meanwhile. Everything here works with Redis 6.2 and Valkey.

use redis::aio::MultiplexedConnection;
use redis::streams::StreamRangeReply;
use redis::{Cmd, RedisResult, Value, cmd};

use super::index::Envelope;
use crate::convert::message_id;

/// What a script returns instead of the length of the stream if the marker is not the expected one.
pub(super) const LOST: i64 = -1;

/// Marks a stream as that of the caller, unless an owner with a higher epoch has: that one has replaced the caller.
/// KEYS: marker. ARGV: new marker, epoch.
const TAKE: &str = r"
local found = redis.pcall('GET', KEYS[1])
local epoch = type(found) == 'string' and string.match(found, '^e(%d+):')
if epoch and tonumber(epoch) > tonumber(ARGV[2]) then return -1 end
redis.call('SET', KEYS[1], ARGV[1])
return 0
";

/// Returns -2 if Redis refused an entry, because the stream has or had an entry with the same or a higher id.
/// KEYS: stream, marker. ARGV: expected marker, new marker, number of removed ids, removed ids, and position, task and delay of
/// each added entry.
const CHANGE: &str = r"
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return -1 end
local removed = tonumber(ARGV[3])
if removed > 0 then
  local ids = {}
  for i = 1, removed do ids[i] = ARGV[3 + i] end
  local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
  if not groups.err then
    for _, group in ipairs(groups) do
      for i = 1, #group, 2 do
        if group[i] == 'name' then redis.call('XACK', KEYS[1], group[i + 1], unpack(ids)) end
      end
    end
  end
  redis.call('XDEL', KEYS[1], unpack(ids))
end
local refused = false
for i = 4 + removed, #ARGV, 3 do
  local added = redis.pcall('XADD', KEYS[1], ARGV[i] .. '-0',
    'job_id', ARGV[i + 1], 'enqueue_id', ARGV[i], 'not_before_ms', ARGV[i + 2])
  if type(added) == 'table' and added.err then
    if not string.find(added.err, 'The ID specified in XADD', 1, true) then return added end
    refused = true
  end
end
redis.call('SET', KEYS[2], ARGV[2])
if refused then return -2 end
return redis.call('XLEN', KEYS[1])
";

/// Replaces a stream by the one that was built beside it, which gets the consumer groups of the old stream, with the entries
/// that their consumers hold. A group that was given an entry of somebody else above all positions starts again.
/// KEYS: stream, marker, built stream. ARGV: expected marker, new marker, newest position.
const SWAP: &str = r"
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return -1 end
local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
if not groups.err then
  for _, group in ipairs(groups) do
    local name, last
    for i = 1, #group, 2 do
      if group[i] == 'name' then name = group[i + 1] end
      if group[i] == 'last-delivered-id' then last = group[i + 1] end
    end
    if tonumber(string.match(last, '^%d+')) > tonumber(ARGV[3]) then last = '0-0' end
    redis.call('XGROUP', 'CREATE', KEYS[3], name, last, 'MKSTREAM')
    local from, copied = '-', 0
    repeat
      local held = redis.call('XPENDING', KEYS[1], name, from, '+', 1000)
      for _, entry in ipairs(held) do
        if #redis.call('XRANGE', KEYS[3], entry[1], entry[1]) > 0 then
          redis.call('XCLAIM', KEYS[3], name, entry[2], 0, entry[1],
            'IDLE', entry[3], 'RETRYCOUNT', entry[4], 'FORCE', 'JUSTID')
        end
        from = '(' .. entry[1]
      end
      copied = copied + #held
    until #held < 1000 or copied >= 100000
  end
end
if redis.call('EXISTS', KEYS[3]) == 1 then
  redis.call('RENAME', KEYS[3], KEYS[1])
else
  redis.call('DEL', KEYS[1])
end
redis.call('SET', KEYS[2], ARGV[2])
return redis.call('XLEN', KEYS[1])
";

/// The digests by which Redis knows the scripts.
pub(super) struct Scripts {
    take: String,
    change: String,
    swap: String,
}

impl Scripts {
    pub(super) async fn load(connection: &mut MultiplexedConnection) -> RedisResult<Scripts> {
        let mut load = redis::pipe();
        for script in [TAKE, CHANGE, SWAP] {
            load.cmd("SCRIPT").arg("LOAD").arg(script);
        }
        let (take, change, swap) = load.query_async(connection).await?;
        Ok(Scripts { take, change, swap })
    }

    pub(super) fn take(&self, marker: &str, to: &str, epoch: u64) -> Cmd {
        let mut take = cmd("EVALSHA");
        take.arg(&self.take).arg(1).arg(marker).arg(to).arg(epoch);
        take
    }

    /// `from` and `to` are the markers before and after the change.
    pub(super) fn change(
        &self,
        [stream, marker]: [&str; 2],
        [from, to]: [&str; 2],
        removes: &[String],
        adds: &[Envelope],
    ) -> Cmd {
        let mut change = cmd("EVALSHA");
        change.arg(&self.change).arg(2).arg(stream).arg(marker).arg(from).arg(to);
        change.arg(removes.len()).arg(removes);
        for add in adds {
            change.arg(add.position).arg(add.task.to_string()).arg(add.not_before_ms);
        }
        change
    }

    pub(super) fn swap(&self, [stream, marker, built]: [&str; 3], [from, to]: [&str; 2], newest: u64) -> Cmd {
        let mut swap = cmd("EVALSHA");
        swap.arg(&self.swap).arg(3).arg(stream).arg(marker).arg(built).arg(from).arg(to).arg(newest);
        swap
    }
}

/// The ids of entries, as scripts take them.
pub(super) fn ids(positions: &[u64]) -> Vec<String> {
    positions.iter().map(|position| message_id(*position)).collect()
}

/// An entry that Redis has: its id in both forms, and the task that it names.
pub(super) struct Found {
    pub id: String,
    pub number: (u64, u64),
    pub job: Option<String>,
}

/// The entries after an id, `-` for the first.
pub(super) async fn entries(
    connection: &mut MultiplexedConnection,
    stream: &str,
    after: Option<&str>,
    count: usize,
) -> RedisResult<Vec<Found>> {
    let from = after.map_or_else(|| "-".to_owned(), |id| format!("({id}"));
    let mut range = cmd("XRANGE");
    range.arg(stream).arg(from).arg("+").arg("COUNT").arg(count);
    let found: StreamRangeReply = range.query_async(connection).await?;
    Ok(found
        .ids
        .into_iter()
        .map(|entry| {
            let job = entry.get("job_id");
            Found { number: parse_id(&entry.id), id: entry.id, job }
        })
        .collect())
}

/// The two numbers of an id.
pub(super) fn parse_id(id: &str) -> (u64, u64) {
    let (first, second) = id.split_once('-').unwrap_or((id, "0"));
    (first.parse().unwrap_or(u64::MAX), second.parse().unwrap_or(u64::MAX))
}

/// The number that a script returned.
pub(super) fn number(value: &Value) -> Option<i64> {
    if let Value::Int(number) = value { Some(*number) } else { None }
}
