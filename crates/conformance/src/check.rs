//! One check, with the numbers of the requirements that it covers.

use std::pin::Pin;

use crate::{Finding, Subject};

type Running<'a> = Pin<Box<dyn Future<Output = Result<(), Finding>> + Send + 'a>>;

pub struct Check {
    /// The numbers of the requirements; at least one.
    pub numbers: &'static [&'static str],
    /// The property that holds if the check passes, in one sentence.
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

    /// Whether the check covers one of these numbers, or no number is given.
    pub fn is_about(&self, numbers: &[String]) -> bool {
        numbers.is_empty()
            || self.numbers.iter().any(|own| numbers.iter().any(|n| n.eq_ignore_ascii_case(own)))
    }

    pub(crate) async fn run(&self, subject: &Subject) -> Result<(), Finding> {
        (self.run)(subject).await
    }
}
