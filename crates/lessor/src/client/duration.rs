//! Durations and times on the command line. A duration always has a unit, so that nobody has to know whether a plain
//! number means seconds or milliseconds.

use jiff::{Span, SpanRelativeTo, Timestamp};

const EXAMPLES: &str = "500ms, 90s, 5m, 2h, 1d or 1h30m";

pub(crate) fn parse_ms(text: &str) -> Result<u64, String> {
    if text.trim() == "0" {
        return Ok(0);
    }
    if text.trim().parse::<f64>().is_ok() {
        return Err(format!("a duration needs a unit, as in {EXAMPLES}"));
    }
    let span: Span = text.parse().map_err(|_| format!("a duration is written as {EXAMPLES}"))?;
    let duration = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| format!("months and years have no fixed length; write {EXAMPLES}"))?;
    u64::try_from(duration.as_millis()).map_err(|_| "a duration cannot be negative".to_owned())
}

/// Reads a time, or a duration from now.
pub(crate) fn parse_time(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let wrong = || format!("a time is written as 2030-01-31T12:00:00Z, or from now as {EXAMPLES}");
    let ms = parse_ms(text).map_err(|_| wrong())?;
    let now = Timestamp::now().as_millisecond();
    let at = i64::try_from(ms).ok().and_then(|ms| now.checked_add(ms)).ok_or_else(wrong)?;
    Timestamp::from_millisecond(at).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_unit() {
        for (text, ms) in [
            ("500ms", 500),
            ("90s", 90_000),
            ("1.5s", 1_500),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(parse_ms(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_an_example() {
        assert!(parse_ms("90").unwrap_err().contains("needs a unit"));
        assert!(parse_ms("soon").unwrap_err().contains("90s"));
        assert!(parse_ms("1mo").unwrap_err().contains("no fixed length"));
        assert!(parse_ms("-5s").unwrap_err().contains("negative"));
        assert!(parse_ms("").is_err());
    }

    #[test]
    fn a_time_is_absolute_or_from_now() {
        assert_eq!(parse_time("2030-01-31T12:00:00Z").unwrap().to_string(), "2030-01-31T12:00:00Z");
        assert!(parse_time("1h").unwrap() > Timestamp::now());
        assert!(parse_time("tomorrow").unwrap_err().contains("2030-01-31"));
        assert!(parse_time("999999999h").is_err());
    }
}
