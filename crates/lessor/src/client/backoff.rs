//! The options that say how long a failed task waits before its next attempt.

use wire::Backoff;

use super::duration::parse_ms;

#[derive(clap::Args)]
pub(super) struct BackoffOptions {
    /// Wait before the second attempt
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    backoff_initial: Option<u64>,

    /// How much longer each further wait is, from 1 to 100
    #[arg(long, value_name = "NUMBER", value_parser = parse_number)]
    backoff_factor: Option<f64>,

    /// The longest wait
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    backoff_max: Option<u64>,

    /// The share of each wait that is left to chance, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = parse_number)]
    backoff_jitter: Option<f64>,
}

impl BackoffOptions {
    /// What is given replaces what was there; nothing when there is neither.
    pub(super) fn over(&self, before: Option<Backoff>) -> Option<Backoff> {
        let old = before.unwrap_or_default();
        let new = Backoff {
            initial_ms: self.backoff_initial.or(old.initial_ms),
            factor: self.backoff_factor.or(old.factor),
            max_ms: self.backoff_max.or(old.max_ms),
            jitter: self.backoff_jitter.or(old.jitter),
        };
        (before.is_some() || new != Backoff::default()).then_some(new)
    }
}

/// JSON knows no other numbers than finite ones, and would say nothing in their place.
fn parse_number(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number.filter(|number| number.is_finite()).ok_or_else(|| "it must be a number, such as 1.5".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_finite_number_is_refused() {
        for text in ["nan", "inf", "-inf", "1e999", "much", ""] {
            assert!(parse_number(text).unwrap_err().contains("must be a number"), "{text}");
        }
        assert_eq!(parse_number("1.5"), Ok(1.5));
    }

    #[test]
    fn what_is_not_given_stays() {
        let given = BackoffOptions {
            backoff_initial: Some(500),
            backoff_factor: None,
            backoff_max: None,
            backoff_jitter: None,
        };
        let before = Backoff { initial_ms: Some(1), factor: Some(3.0), ..Backoff::default() };
        let after = given.over(Some(before)).unwrap();
        assert_eq!((after.initial_ms, after.factor, after.max_ms), (Some(500), Some(3.0), None));
    }
}
