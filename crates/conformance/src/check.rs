//! One thing that is checked, with the numbers of the requirements that it decides on.

use std::pin::Pin;

use crate::{Finding, Subject};

type Running<'a> = Pin<Box<dyn Future<Output = Result<(), Finding>> + Send + 'a>>;

pub struct Check {
    /// As the documents number their requirements; at least one.
    pub numbers: &'static [&'static str],
    /// What holds when the check passes, in one sentence.
    pub says: &'static str,
    run: for<'a> fn(&'a Subject) -> Running<'a>,
}

impl Check {
    pub(crate) const fn new(
        numbers: &'static [&'static str],
        says: &'static str,
        run: for<'a> fn(&'a Subject) -> Running<'a>,
    ) -> Check {
        Check { numbers, says, run }
    }

    /// Whether the check decides on one of these numbers; on any, when none is named.
    pub fn is_about(&self, numbers: &[String]) -> bool {
        numbers.is_empty()
            || self.numbers.iter().any(|own| numbers.iter().any(|n| n.eq_ignore_ascii_case(own)))
    }

    pub(crate) async fn run(&self, subject: &Subject) -> Result<(), Finding> {
        (self.run)(subject).await
    }
}
