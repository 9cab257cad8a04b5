//! Validates names, texts and numbers of requests. Each check names the field that is wrong.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use authority::Properties;
use authority::limits::{MAX_MESSAGE_BYTES, MAX_NAME_BYTES, MAX_PROPERTIES};

use crate::convert::Problem;

const MAX_PROGRESS_BYTES: usize = 1_024;

/// A name: not empty, not too long, without control characters.
pub(crate) fn name(field: &str, value: &str) -> Result<Arc<str>, Problem> {
    fault_of_name(value, MAX_NAME_BYTES)
        .map_or_else(|| Ok(Arc::from(value)), |what| Err(Problem::field(field, what)))
}

pub(crate) fn optional_name(field: &str, value: Option<&str>) -> Result<Option<Arc<str>>, Problem> {
    value.map(|value| name(field, value)).transpose()
}

/// A list of one to `max` names.
pub(crate) fn name_list(field: &str, values: &[String], max: usize) -> Result<Vec<Arc<str>>, Problem> {
    if !(1..=max).contains(&values.len()) {
        let what = format!("must have between 1 and {max} entries, but has {}", values.len());
        return Err(Problem::field(field, what));
    }
    let name = |(n, value): (usize, &String)| {
        fault_of_name(value, MAX_NAME_BYTES).map_or_else(
            || Ok(Arc::from(&**value)),
            |what| Err(Problem::field(format!("{field}[{n}]"), what)),
        )
    };
    values.iter().enumerate().map(name).collect()
}

/// A name in a report. Some workers send an empty text where they have none, and no report is lost for that.
pub(crate) fn reported_name(field: &str, value: Option<&str>) -> Result<Option<Arc<str>>, Problem> {
    optional_name(field, value.filter(|value| !value.is_empty()))
}

pub(crate) fn fault_of_name(value: &str, max_bytes: usize) -> Option<String> {
    if value.is_empty() {
        Some("must not be empty".to_owned())
    } else if value.len() > max_bytes {
        Some(format!("must have at most {max_bytes} bytes, but has {}", value.len()))
    } else if value.chars().any(char::is_control) {
        Some("must not contain control characters".to_owned())
    } else {
        None
    }
}

/// A text for people, such as a reason.
pub(crate) fn message(field: &str, value: &str) -> Result<Arc<str>, Problem> {
    if value.len() > MAX_MESSAGE_BYTES {
        let what = format!("must have at most {MAX_MESSAGE_BYTES} bytes, but has {}", value.len());
        Err(Problem::field(field, what))
    } else {
        Ok(Arc::from(value))
    }
}

/// What a worker says of its failure. Where it says too much, its beginning is kept: no report is lost for its length.
pub(crate) fn reported_message(value: &str) -> Arc<str> {
    beginning(value, MAX_MESSAGE_BYTES).into()
}

/// What a worker says of its progress. The newest is kept in memory for each leased task, so it is short.
pub(crate) fn progress_message(value: &str) -> Arc<str> {
    beginning(value, MAX_PROGRESS_BYTES).into()
}

/// The text, cut at a character's end where it is too long.
pub(crate) fn beginning(text: &str, max_bytes: usize) -> &str {
    let mut end = text.len().min(max_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

pub(crate) fn properties(
    field: &str,
    pairs: Option<&BTreeMap<String, String>>,
) -> Result<Arc<Properties>, Problem> {
    let Some(pairs) = pairs else { return Ok(Arc::default()) };
    if pairs.len() > MAX_PROPERTIES {
        let what = format!("must have at most {MAX_PROPERTIES} entries, but has {}", pairs.len());
        return Err(Problem::field(field, what));
    }
    for (key, value) in pairs {
        name(&format!("{field} (a name)"), key)?;
        if !value.is_empty() {
            name(&format!("{field}.{key}"), value)?;
        }
    }
    let pairs = pairs.iter().map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str())));
    Ok(Arc::new(Properties::new(pairs)))
}

pub(crate) fn within<N: PartialOrd + std::fmt::Display + Copy>(
    field: &str,
    value: N,
    range: RangeInclusive<N>,
) -> Result<N, Problem> {
    if range.contains(&value) {
        Ok(value)
    } else {
        let what = format!("must be between {} and {}, but is {value}", range.start(), range.end());
        Err(Problem::field(field, what))
    }
}

pub(crate) fn optional_within<N: PartialOrd + std::fmt::Display + Copy>(
    field: &str,
    value: Option<N>,
    range: RangeInclusive<N>,
) -> Result<Option<N>, Problem> {
    value.map(|value| within(field, value, range)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i2_empty_endless_and_unprintable_names_are_refused() {
        for bad in ["", "\u{0}", "a\nb", "a\u{7f}", "\u{85}", &"x".repeat(MAX_NAME_BYTES + 1)] {
            let problem = name("queue", bad).unwrap_err();
            assert_eq!((problem.code.name(), problem.field.as_deref()), ("invalid_field", Some("queue")));
        }
        for good in ["q", "über/alles", "a b", &"x".repeat(MAX_NAME_BYTES)] {
            assert_eq!(&*name("queue", good).unwrap(), good);
        }
    }

    #[test]
    fn a_report_may_have_empty_names_and_long_messages() {
        assert_eq!(reported_name("code", Some("")).unwrap(), None);
        assert_eq!(reported_name("code", Some("E1")).unwrap().as_deref(), Some("E1"));
        assert!(reported_name("code", Some("a\nb")).is_err());
        assert_eq!(&*reported_message("short"), "short");
        assert_eq!(reported_message(&"x".repeat(MAX_MESSAGE_BYTES + 1)).len(), MAX_MESSAGE_BYTES);
        let odd = format!("x{}", "ä".repeat(MAX_PROGRESS_BYTES));
        let kept = progress_message(&odd);
        assert_eq!((kept.len(), kept.chars().last()), (MAX_PROGRESS_BYTES - 1, Some('ä')));
    }

    #[test]
    fn properties_are_counted_and_checked() {
        let many: BTreeMap<_, _> = (0..=MAX_PROPERTIES).map(|n| (n.to_string(), "x".to_owned())).collect();
        assert!(properties("properties", Some(&many)).is_err());
        let bad = BTreeMap::from([("os".to_owned(), "li\nnux".to_owned())]);
        assert_eq!(properties("properties", Some(&bad)).unwrap_err().field.as_deref(), Some("properties.os"));
        assert!(properties("properties", None).unwrap().is_empty());
    }

    #[test]
    fn numbers_that_are_not_numbers_are_out_of_range() {
        assert!(within("progressPct", f64::NAN, 0.0..=100.0).is_err());
        assert!(within("progressPct", 100.0, 0.0..=100.0).is_ok());
    }
}
