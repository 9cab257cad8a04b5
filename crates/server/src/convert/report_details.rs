//! The details that a worker adds to its report beside the outcome: metrics, a stack trace, partial progress. They are stored
//! within limits, and no decision reads them.

use std::sync::Arc;

use authority::ReportDetails;
use authority::limits::{
    MAX_MESSAGE_BYTES, MAX_METRICS_BYTES, MAX_PARTIAL_PROGRESS_BYTES, MAX_STACK_TRACE_BYTES,
};
use wire::Json;

use super::names::beginning;
use super::problem::{Code, Problem};

/// The details as a contract has them; `null` and empty texts count as missing.
#[derive(Default)]
pub(crate) struct Details<'a> {
    pub metrics: Option<&'a Json>,
    pub stack_trace: Option<&'a str>,
    pub cancelled_during_phase: Option<&'a str>,
    pub partial_progress: Option<&'a Json>,
}

impl Details<'_> {
    pub(crate) fn parse(self) -> Result<Option<Arc<ReportDetails>>, Problem> {
        let details = ReportDetails {
            metrics: json("metrics", self.metrics, MAX_METRICS_BYTES)?,
            stack_trace: text(self.stack_trace, MAX_STACK_TRACE_BYTES),
            cancelled_during_phase: text(self.cancelled_during_phase, MAX_MESSAGE_BYTES),
            partial_progress: json("partialProgress", self.partial_progress, MAX_PARTIAL_PROGRESS_BYTES)?,
        };
        Ok((details != ReportDetails::default()).then(|| Arc::new(details)))
    }
}

fn json(field: &str, json: Option<&Json>, max_bytes: usize) -> Result<Option<Arc<[u8]>>, Problem> {
    let Some(text) = json.map(Json::as_text).filter(|text| *text != "null") else { return Ok(None) };
    if text.len() > max_bytes {
        let detail = format!("{field}: must have at most {max_bytes} bytes, but has {}", text.len());
        return Err(Problem { field: Some(field.to_owned()), ..Problem::new(Code::PayloadTooLarge, detail) });
    }
    Ok(Some(Arc::from(text.as_bytes())))
}

/// A text of any length, of which the beginning is kept: no report is lost because of a long stack trace.
fn text(text: Option<&str>, max_bytes: usize) -> Option<Arc<str>> {
    text.filter(|text| !text.is_empty()).map(|text| beginning(text, max_bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_bounded_and_a_long_stack_trace_loses_no_report() {
        let long = "x".repeat(MAX_STACK_TRACE_BYTES + 1);
        let details = Details { stack_trace: Some(&long), ..Details::default() }.parse().unwrap().unwrap();
        assert_eq!(details.stack_trace.as_ref().unwrap().len(), MAX_STACK_TRACE_BYTES);
        let json = |bytes: usize| Json::from_value(&"x".repeat(bytes - 2)).unwrap();
        let (fits, long) = (json(MAX_METRICS_BYTES), json(MAX_METRICS_BYTES + 1));
        assert!(Details { metrics: Some(&fits), ..Details::default() }.parse().is_ok());
        let problem = Details { metrics: Some(&long), ..Details::default() }.parse().unwrap_err();
        assert_eq!((problem.code, problem.field.as_deref()), (Code::PayloadTooLarge, Some("metrics")));
    }

    #[test]
    fn missing_details_are_none() {
        let null = Json::null();
        let details = Details { metrics: Some(&null), stack_trace: Some(""), ..Details::default() };
        assert_eq!(details.parse().unwrap(), None);
    }
}
