//! Times and durations for people.

use jiff::Timestamp;

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// How long ago a time was, or how far off it is.
pub(crate) fn relative(time: Timestamp, now: Timestamp) -> String {
    let ms = now.as_millisecond() - time.as_millisecond();
    match u64::try_from(ms) {
        Ok(ms) if ms < SECOND_MS => "just now".to_owned(),
        Ok(ms) => format!("{} ago", rough(ms)),
        Err(_) => format!("in {}", rough(ms.unsigned_abs())),
    }
}

/// The time itself, to the millisecond, and how long ago it was.
pub(crate) fn full(time: Timestamp, now: Timestamp) -> String {
    format!("{time:.3} ({})", relative(time, now))
}

/// A duration in its largest whole unit: for ages, where the rest does not matter.
pub(crate) fn rough(ms: u64) -> String {
    let units = [(DAY_MS, 2, "d"), (HOUR_MS, 2, "h"), (MINUTE_MS, 2, "min"), (SECOND_MS, 1, "s")];
    match units.into_iter().find(|(unit, least, _)| ms >= unit * least) {
        Some((unit, _, name)) => format!("{} {name}", ms / unit),
        None => format!("{ms} ms"),
    }
}

/// A duration to the millisecond, as it may be given on the command line: for settings.
pub(crate) fn exact(ms: u64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut rest = ms;
    let mut text = String::new();
    for (unit, name) in [(DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "m"), (SECOND_MS, "s"), (1, "ms")] {
        if rest >= unit {
            text.push_str(&format!("{}{name}", rest / unit));
            rest %= unit;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::duration::parse_ms;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    #[test]
    fn times_are_told_from_now() {
        let now = at(1_000_000_000_000);
        for (ms, told) in [
            (0, "just now"),
            (3_400, "3 s ago"),
            (119_000, "119 s ago"),
            (120_000, "2 min ago"),
            (7_200_000, "2 h ago"),
            (259_200_000, "3 d ago"),
            (-5_000, "in 5 s"),
            (-300, "in 300 ms"),
        ] {
            assert_eq!(relative(at(1_000_000_000_000 - ms), now), told);
        }
    }

    #[test]
    fn a_setting_is_shown_as_it_may_be_given() {
        for ms in [0, 1, 999, 1_000, 60_000, 90_500, 5_400_000, 86_400_000, 31_622_400_000] {
            assert_eq!(parse_ms(&exact(ms)), Ok(ms), "{}", exact(ms));
        }
    }

    #[test]
    fn a_full_time_has_milliseconds_and_an_age() {
        assert_eq!(full(at(0), at(5_000)), "1970-01-01T00:00:00.000Z (5 s ago)");
    }
}
