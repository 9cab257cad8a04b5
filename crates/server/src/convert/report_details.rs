//! The details that a worker adds to its report beside the outcome: metrics, a stack trace, partial progress. They are stored
//! within limits, and no decision reads them.

use std::sync::Arc;

use authority::ReportDetails;
use authority::limits::{
    MAX_MESSAGE_BYTES, MAX_METRICS_BYTES, MAX_PARTIAL_PROGRESS_BYTES, MAX_STACK_TRACE_BYTES,
};
use wire::Json;

use super::names::beginning;

/// The details as a contract has them; `null` and empty texts count as missing.
#[derive(Default)]
pub(crate) struct Details<'a> {
    pub metrics: Option<&'a Json>,
    pub stack_trace: Option<&'a str>,
    pub cancelled_during_phase: Option<&'a str>,
    pub partial_progress: Option<&'a Json>,
}

impl Details<'_> {
    /// The details within their limits. What is too long is left out or cut: no report is lost because of it.
    pub(crate) fn bounded(self) -> Option<Arc<ReportDetails>> {
        let details = ReportDetails {
            metrics: json("metrics", self.metrics, MAX_METRICS_BYTES),
            stack_trace: text(self.stack_trace, MAX_STACK_TRACE_BYTES),
            cancelled_during_phase: text(self.cancelled_during_phase, MAX_MESSAGE_BYTES),
            partial_progress: json("partialProgress", self.partial_progress, MAX_PARTIAL_PROGRESS_BYTES),
        };
        (details != ReportDetails::default()).then(|| Arc::new(details))
    }
}

fn json(field: &'static str, json: Option<&Json>, max_bytes: usize) -> Option<Arc<[u8]>> {
    let text = json.map(Json::as_text).filter(|text| *text != "null")?;
    if text.len() > max_bytes {
        tracing::warn!(
            field,
            bytes = text.len(),
            max_bytes,
            "a field of a report is too long and is left out"
        );
        return None;
    }
    Some(Arc::from(text.as_bytes()))
}

/// A text of any length, of which the beginning is kept: no report is lost because of a long stack trace.
fn text(text: Option<&str>, max_bytes: usize) -> Option<Arc<str>> {
    text.filter(|text| !text.is_empty()).map(|text| beginning(text, max_bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_details_are_cut_or_left_out_and_missing_ones_are_none() {
        let long = "x".repeat(MAX_STACK_TRACE_BYTES + 1);
        let details = Details { stack_trace: Some(&long), ..Details::default() }.bounded().unwrap();
        assert_eq!(details.stack_trace.as_ref().unwrap().len(), MAX_STACK_TRACE_BYTES);
        let json = |bytes: usize| Json::from_value(&"x".repeat(bytes - 2)).unwrap();
        let (fits, long, null) = (json(MAX_METRICS_BYTES), json(MAX_METRICS_BYTES + 1), Json::null());
        assert!(Details { metrics: Some(&fits), ..Details::default() }.bounded().is_some());
        assert_eq!(Details { metrics: Some(&long), ..Details::default() }.bounded(), None);
        let details = Details { metrics: Some(&null), stack_trace: Some(""), ..Details::default() };
        assert_eq!(details.bounded(), None);
    }
}
