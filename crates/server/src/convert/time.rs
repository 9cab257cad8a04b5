//! Converts the coordinator's milliseconds to timestamps, and back.

use authority::Time;
use jiff::Timestamp;

use crate::convert::Problem;

/// A time for the wire; one that no calendar holds is shown as the last one that it does.
pub fn to_timestamp(time: Time) -> Timestamp {
    i64::try_from(time.0).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or(Timestamp::MAX)
}

pub(crate) fn from_timestamp(field: &str, timestamp: Timestamp) -> Result<Time, Problem> {
    u64::try_from(timestamp.as_millisecond())
        .map(Time)
        .map_err(|_| Problem::field(field, "must not lie before 1970"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_utc_with_milliseconds() {
        assert_eq!(to_timestamp(Time(1_700_000_000_123)).to_string(), "2023-11-14T22:13:20.123Z");
        assert_eq!(to_timestamp(Time(u64::MAX)), Timestamp::MAX);
    }

    #[test]
    fn offsets_are_understood_and_the_distant_past_is_not() {
        let time: Timestamp = "2023-11-14T23:13:20.123+01:00".parse().unwrap();
        assert_eq!(from_timestamp("deadline", time).unwrap(), Time(1_700_000_000_123));
        assert!(from_timestamp("deadline", "1969-12-31T23:59:59Z".parse().unwrap()).is_err());
    }
}
