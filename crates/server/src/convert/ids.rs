//! Task ids: UUIDv7 with the shard in the twelve bits after the version, and the draws for the backoff's jitter.

use authority::{TaskId, Time};

use crate::convert::{Code, Problem};

/// The only shard of an embedded coordinator.
const SHARD: u128 = 0;
/// Hyphens included.
const ID_CHARS: usize = 36;

/// A new id, made from the coordinator's time and the system's randomness.
pub(crate) fn new_task_id(now: Time) -> Result<TaskId, Problem> {
    let random = getrandom::u64().map_err(no_randomness)?;
    Ok(assemble(now, random))
}

/// A random number for a backoff's jitter.
pub(crate) fn draw() -> Result<u32, Problem> {
    getrandom::u32().map_err(no_randomness)
}

/// Reads an id as it is written; other spellings of a UUID name no task.
pub fn parse_task_id(text: &str) -> Option<TaskId> {
    if text.len() != ID_CHARS {
        return None;
    }
    uuid::Uuid::try_parse(text).ok().map(|uuid| TaskId(uuid.as_u128()))
}

fn assemble(now: Time, random: u64) -> TaskId {
    let time = u128::from(now.0 & 0xffff_ffff_ffff) << 80;
    let version = 7 << 76;
    let variant = 2 << 62;
    TaskId(time | version | (SHARD << 64) | variant | u128::from(random >> 2))
}

fn no_randomness(error: getrandom::Error) -> Problem {
    tracing::error!(%error, "the system gave no randomness");
    Problem::new(Code::Internal, "the system gave no randomness")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_is_a_uuid_of_version_7_with_shard_0() {
        let id = assemble(Time(0x0190_1234_5678), u64::MAX).to_string();
        assert_eq!(id, "01901234-5678-7000-bfff-ffffffffffff");
        let uuid = uuid::Uuid::parse_str(&id).unwrap();
        assert_eq!((uuid.get_version_num(), uuid.get_variant()), (7, uuid::Variant::RFC4122));
    }

    #[test]
    fn an_id_reads_back() {
        let id = new_task_id(Time(1_700_000_000_000)).unwrap();
        assert_eq!(parse_task_id(&id.to_string()), Some(id));
        assert_eq!(parse_task_id(&id.to_string().replace('-', "")), None);
        assert_eq!(parse_task_id("nope"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,50}") {
            let _ = parse_task_id(&text);
        }
    }
}
