//! The values that several messages share: ids, names, enumerations, lists.

use std::sync::{Arc, LazyLock};

use authority::event::{ExpiryCause, NextStep, ReleaseCause};
use authority::{
    ActorKind, ApiKey, Backoff, CancelCause, CancelRequest, Category, Contract, DeadReason, Dedup, Digest,
    Lease, Outcome, Owner, Properties, PushTarget, QueueConfig, QueueKey, Report, Role, Scope, SecretHash,
    StoredKey, TaskError, TaskId, Time, TokenKey,
};
use prost::encoding::encode_varint;

use super::codec::{
    Field, Fields, Message, Value, messages, required, write_block, write_fixed64, write_varint,
};
use super::error::DecodeError;

messages! { finish:
    Backoff { 1 initial_ms, 2 factor_permille, 3 max_ms, 4 jitter_permille, }
    Dedup { 1 key, 2 content, }
    TaskError { 1 category, 2 code, 3 message, }
    PushTarget { 1 url, 2 concurrency, 3 headers, 4 secret, }
    Lease {
        1 fencing_token, 2 worker, 3 session, 4 request, 5 granted_at, 6 length_ms, 7 expires_at, 8 extended_at,
        9 started_by, 10 contract, 11 since,
    }
    CancelRequest { 1 cause, 2 reason, 3 requested_at, 4 grace_until, }
    // The outcome takes the tags 4 to 6.
    Report { 1 attempt, 2 fencing_token, 3 digest, 4 outcome, }
    Owner { 1 epoch, 2 node, 3 since, }
    TokenKey { 1 id, 2 since, }
    StoredKey { 1 key, 2 created_at, 3 since, }
}

required!(TaskId, Digest, Arc<QueueKey>, TaskError, QueueConfig, SecretHash, Arc<ApiKey>,);

/// Enumerations by the authority's numbers. Zero is never written.
macro_rules! enumerations {
    ($($type:ident $name:literal,)*) => {
        $(impl Value for $type {
            fn write(&self, tag: u32, out: &mut Vec<u8>) {
                write_varint(tag, self.number(), out);
            }

            fn read(tag: u32, fields: &mut Fields<'_>) -> Result<Option<$type>, DecodeError> {
                match fields.varint(tag)? {
                    None => Ok(None),
                    Some(0) => Err(DecodeError::Missing($name)),
                    Some(number) => $type::from_number(number).map(Some).ok_or(DecodeError::Newer($name)),
                }
            }
        })*

        required!($($type,)*);
    };
}

enumerations! {
    Category "the category of an error",
    DeadReason "the reason of a death",
    CancelCause "the cause of a cancel request",
    ExpiryCause "the cause of an expiry",
    ReleaseCause "the cause of a release",
    Contract "the contract of a lease",
    Role "the role of a key",
    ActorKind "the kind of an actor",
}

/// Sixteen bytes as two halves, so that reading an id allocates nothing.
fn write_id(tag: u32, id: u128, out: &mut Vec<u8>) {
    write_block(tag, out, |out| {
        for (tag, half) in [(1, (id >> 64) as u64), (2, id as u64)] {
            if half != 0 {
                write_fixed64(tag, half, out);
            }
        }
    });
}

fn read_id(tag: u32, fields: &mut Fields<'_>) -> Result<Option<u128>, DecodeError> {
    let Some(bytes) = fields.block(tag)? else { return Ok(None) };
    let mut halves = Fields(bytes);
    let mut half = |tag| match halves.fixed64(tag)? {
        Some(0) => Err(DecodeError::Invalid("a default is written out")),
        half => Ok(u128::from(half.unwrap_or(0))),
    };
    let id = half(1)? << 64 | half(2)?;
    halves.finish()?;
    Ok(Some(id))
}

impl Value for TaskId {
    fn write(&self, tag: u32, out: &mut Vec<u8>) {
        write_id(tag, self.0, out);
    }

    fn read(tag: u32, fields: &mut Fields<'_>) -> Result<Option<TaskId>, DecodeError> {
        Ok(read_id(tag, fields)?.map(TaskId))
    }
}

impl Value for Digest {
    fn write(&self, tag: u32, out: &mut Vec<u8>) {
        write_id(tag, u128::from_be_bytes(self.0), out);
    }

    fn read(tag: u32, fields: &mut Fields<'_>) -> Result<Option<Digest>, DecodeError> {
        Ok(read_id(tag, fields)?.map(|id| Digest(id.to_be_bytes())))
    }
}

impl Value for SecretHash {
    fn write(&self, tag: u32, out: &mut Vec<u8>) {
        write_block(tag, out, |out| out.extend_from_slice(&self.0));
    }

    fn read(tag: u32, fields: &mut Fields<'_>) -> Result<Option<SecretHash>, DecodeError> {
        let Some(bytes) = fields.block(tag)? else { return Ok(None) };
        let hash = bytes.try_into().map_err(|_| DecodeError::Invalid("a hash has not 32 bytes"))?;
        Ok(Some(SecretHash(hash)))
    }
}

/// Ids by halves, packed: a purge names up to a thousand tasks.
impl Field for Vec<TaskId> {
    fn encode(&self, tag: u32, out: &mut Vec<u8>) {
        let halves: Vec<u64> = self.iter().flat_map(|id| [(id.0 >> 64) as u64, id.0 as u64]).collect();
        prost::encoding::fixed64::encode_packed(tag, &halves, out);
    }

    fn decode(tag: u32, _: &'static str, fields: &mut Fields<'_>) -> Result<Vec<TaskId>, DecodeError> {
        let (ids, []) = fields.block(tag)?.unwrap_or_default().as_chunks::<16>() else {
            return Err(DecodeError::Invalid("a purged task's id is cut in half"));
        };
        let half = |bytes: &[u8]| bytes.iter().rev().fold(0, |half, byte| half << 8 | u128::from(*byte));
        Ok(ids.iter().map(|id| TaskId(half(&id[..8]) << 64 | half(&id[8..]))).collect())
    }
}

impl Value for QueueKey {
    fn write(&self, tag: u32, out: &mut Vec<u8>) {
        write_block(tag, out, |out| {
            self.scope.tenant.encode(1, out);
            self.scope.workspace.encode(2, out);
            self.name.encode(3, out);
        });
    }

    fn read(tag: u32, fields: &mut Fields<'_>) -> Result<Option<QueueKey>, DecodeError> {
        fields.block(tag)?.map(queue_key).transpose()
    }
}

/// Decodes a queue's full name.
pub(super) fn queue_key(bytes: &[u8]) -> Result<QueueKey, DecodeError> {
    let mut fields = Fields(bytes);
    let scope = Scope {
        tenant: Field::decode(1, "tenant", &mut fields)?,
        workspace: Field::decode(2, "workspace", &mut fields)?,
    };
    let name = Field::decode(3, "name", &mut fields)?;
    fields.finish()?;
    Ok(QueueKey { scope, name })
}

/// Names with values: properties and headers.
type Pair = (Arc<str>, Arc<str>);

fn write_pair(tag: u32, (name, value): (&Arc<str>, &Arc<str>), out: &mut Vec<u8>) {
    write_block(tag, out, |out| {
        name.encode(1, out);
        value.encode(2, out);
    });
}

/// Reads pairs, whose names rise strictly.
fn read_pairs(tag: u32, fields: &mut Fields<'_>) -> Result<Vec<Pair>, DecodeError> {
    let mut pairs = Vec::<Pair>::new();
    while let Some(bytes) = fields.block(tag)? {
        let mut pair = Fields(bytes);
        pairs.push((Field::decode(1, "name", &mut pair)?, Field::decode(2, "value", &mut pair)?));
        pair.finish()?;
    }
    if pairs.is_sorted_by(|a, b| a.0 < b.0) {
        Ok(pairs)
    } else {
        Err(DecodeError::Invalid("properties or headers are out of order"))
    }
}

impl Field for Vec<Pair> {
    fn encode(&self, tag: u32, out: &mut Vec<u8>) {
        self.iter().for_each(|(name, value)| write_pair(tag, (name, value), out));
    }

    fn decode(tag: u32, _: &'static str, fields: &mut Fields<'_>) -> Result<Vec<Pair>, DecodeError> {
        read_pairs(tag, fields)
    }
}

/// Most tasks require nothing; ten million of them share this.
static NO_PROPERTIES: LazyLock<Arc<Properties>> = LazyLock::new(Arc::default);

pub(super) fn no_properties() -> Arc<Properties> {
    NO_PROPERTIES.clone()
}

impl Field for Arc<Properties> {
    fn encode(&self, tag: u32, out: &mut Vec<u8>) {
        self.iter().for_each(|pair| write_pair(tag, pair, out));
    }

    fn decode(tag: u32, _: &'static str, fields: &mut Fields<'_>) -> Result<Arc<Properties>, DecodeError> {
        let pairs = read_pairs(tag, fields)?;
        Ok(if pairs.is_empty() { no_properties() } else { Arc::new(Properties::new(pairs)) })
    }
}

/// Repeated fields.
macro_rules! repeated {
    ($($type:ty,)*) => {
        $(impl Field for Vec<$type> {
            fn encode(&self, tag: u32, out: &mut Vec<u8>) {
                self.iter().for_each(|value| value.write(tag, out));
            }

            fn decode(tag: u32, _: &'static str, fields: &mut Fields<'_>) -> Result<Self, DecodeError> {
                let mut values = Vec::new();
                while let Some(value) = <$type>::read(tag, fields)? {
                    values.push(value);
                }
                Ok(values)
            }
        })*
    };
}

repeated!(Report, Arc<str>, Role,);

/// A message with a packed list, because an empty list is not the same as none.
impl Value for Vec<Category> {
    fn write(&self, tag: u32, out: &mut Vec<u8>) {
        write_block(tag, out, |out| {
            if !self.is_empty() {
                write_block(1, out, |out| {
                    self.iter().for_each(|category| encode_varint(category.number(), out));
                });
            }
        });
    }

    fn read(tag: u32, fields: &mut Fields<'_>) -> Result<Option<Vec<Category>>, DecodeError> {
        let Some(bytes) = fields.block(tag)? else { return Ok(None) };
        let mut message = Fields(bytes);
        let mut numbers = Fields(message.block(1)?.unwrap_or_default());
        message.finish()?;
        let mut categories = Vec::new();
        while !numbers.0.is_empty() {
            let category = Category::from_number(numbers.number()?);
            categories.push(category.ok_or(DecodeError::Newer("the category of an error"))?);
        }
        Ok(Some(categories))
    }
}

/// The time of the retry; a final failure has none.
impl Field for NextStep {
    fn encode(&self, tag: u32, out: &mut Vec<u8>) {
        if let NextStep::RetryAt(time) = self {
            time.write(tag, out);
        }
    }

    fn decode(tag: u32, _: &'static str, fields: &mut Fields<'_>) -> Result<NextStep, DecodeError> {
        Ok(Time::read(tag, fields)?.map_or(NextStep::Final, NextStep::RetryAt))
    }
}

/// A number, then the time of a retry and the reason of a death, each only with its own outcome.
impl Field for Outcome {
    fn encode(&self, tag: u32, out: &mut Vec<u8>) {
        let (number, retry_at, dead_reason) = match *self {
            Outcome::Completed => (1, None, None),
            Outcome::Failed => (2, None, None),
            Outcome::RetryAt(time) => (3, Some(time), None),
            Outcome::Dead(reason) => (4, None, Some(reason)),
            Outcome::Discarded => (5, None, None),
        };
        write_varint(tag, number, out);
        retry_at.encode(tag + 1, out);
        dead_reason.encode(tag + 2, out);
    }

    fn decode(tag: u32, name: &'static str, fields: &mut Fields<'_>) -> Result<Outcome, DecodeError> {
        let number = fields.varint(tag)?.unwrap_or(0);
        Ok(match (number, Time::read(tag + 1, fields)?, DeadReason::read(tag + 2, fields)?) {
            (1, None, None) => Outcome::Completed,
            (2, None, None) => Outcome::Failed,
            (3, Some(time), None) => Outcome::RetryAt(time),
            (4, None, Some(reason)) => Outcome::Dead(reason),
            (5, None, None) => Outcome::Discarded,
            (0, ..) => return Err(DecodeError::Missing(name)),
            (1..=5, ..) => return Err(DecodeError::Invalid("the outcome of a report contradicts itself")),
            _ => return Err(DecodeError::Newer("an outcome of a report")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An element of a list takes at least two bytes, a tag and a length. A list grows by doubling, so while it
    /// moves it takes at most three times its elements: together less than a hundred bytes for each of the input.
    #[test]
    fn a_list_of_empty_elements_takes_less_than_a_hundred_times_its_bytes() {
        const SMALLEST_ELEMENT_BYTES: usize = 2;
        const GROWTH: usize = 3;
        // Each text is an allocation of its own with two counters.
        const TEXT_BYTES: usize = 16;
        for element in
            [size_of::<Report>(), size_of::<Pair>() + 2 * TEXT_BYTES, size_of::<Arc<str>>() + TEXT_BYTES]
        {
            assert!(element * GROWTH <= 100 * SMALLEST_ELEMENT_BYTES, "{element} bytes");
        }
    }
}
