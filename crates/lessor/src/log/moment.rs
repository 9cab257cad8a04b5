//! A moment of the past on the command line: a position, a time, or how long ago.

use anyhow::Result;
use authority::{Position, Time};
use history::time_travel::first_at_or_after;
use jiff::Timestamp;
use ledger::Reader;

use crate::client::duration::parse_ms;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Position(Position),
    Time(Time),
}

/// Reads `1234`, `2030-01-31T12:00:00Z` or `10m`, which is ten minutes ago.
pub(crate) fn parse(text: &str) -> Result<Moment, String> {
    parse_at(text, Timestamp::now())
}

fn parse_at(text: &str, now: Timestamp) -> Result<Moment, String> {
    let wrong = || {
        "a moment is a position (1234), a time (2030-01-31T12:00:00Z) or how long ago it was (90s, 10m, 2h, 1d)"
            .to_owned()
    };
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map(|position| Moment::Position(Position(position))).map_err(|_| wrong());
    }
    let ms = match text.parse::<Timestamp>() {
        Ok(time) => time.as_millisecond(),
        Err(_) => {
            let ago = parse_ms(text).map_err(|_| wrong())?;
            now.as_millisecond().saturating_sub(i64::try_from(ago).unwrap_or(i64::MAX))
        }
    };
    Ok(Moment::Time(Time(u64::try_from(ms).unwrap_or(0))))
}

impl Moment {
    /// The first position that is not before this moment.
    pub(super) fn first(self, reader: &dyn Reader) -> Result<Position> {
        match self {
            Moment::Position(position) => Ok(position),
            Moment::Time(time) => Ok(first_at_or_after(reader, time)?),
        }
    }

    /// The last position that is not after this moment; 0 when none is.
    pub(super) fn last(self, reader: &dyn Reader) -> Result<Position> {
        match self {
            Moment::Position(position) => Ok(position),
            Moment::Time(time) => {
                let after = first_at_or_after(reader, time.plus_ms(1))?;
                Ok(Position(after.0.saturating_sub(1)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_position_a_time_or_an_age() {
        let now = Timestamp::from_millisecond(1_000_000).unwrap();
        assert_eq!(parse_at("42", now), Ok(Moment::Position(Position(42))));
        assert_eq!(parse_at("1970-01-01T00:00:05Z", now), Ok(Moment::Time(Time(5_000))));
        assert_eq!(parse_at("10m", now), Ok(Moment::Time(Time(400_000))));
        assert_eq!(parse_at("5h", now), Ok(Moment::Time(Time(0))), "not before 1970");
        for wrong in ["yesterday", "-1", "1.5", "99999999999999999999999"] {
            assert!(parse_at(wrong, now).unwrap_err().contains("10m"), "{wrong}");
        }
    }
}
