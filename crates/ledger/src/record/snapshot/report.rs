//! What one attempt reported, and what it was told.

use authority::{DeadReason, Outcome, Position, Time};

use crate::record::error::{DecodeError, need};
use crate::record::value::{Enumeration, Id};

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Report {
    #[prost(uint32, tag = "1")]
    pub attempt: u32,
    #[prost(uint64, tag = "2")]
    pub fencing_token: u64,
    #[prost(message, optional, tag = "3")]
    pub digest: Option<Id>,
    #[prost(uint32, tag = "4")]
    pub outcome: u32,
    /// With the outcome "retry" only.
    #[prost(uint64, optional, tag = "5")]
    pub retry_at: Option<u64>,
    /// With the outcome "dead" only.
    #[prost(uint32, tag = "6")]
    pub dead_reason: u32,
}

const COMPLETED: u32 = 1;
const FAILED: u32 = 2;
const RETRY: u32 = 3;
const DEAD: u32 = 4;
const DISCARDED: u32 = 5;

impl From<&authority::Report> for Report {
    fn from(report: &authority::Report) -> Report {
        let (outcome, retry_at, dead_reason) = match report.outcome {
            Outcome::Completed => (COMPLETED, None, 0),
            Outcome::Failed => (FAILED, None, 0),
            Outcome::RetryAt(time) => (RETRY, Some(time.0), 0),
            Outcome::Dead(reason) => (DEAD, None, reason.number()),
            Outcome::Discarded => (DISCARDED, None, 0),
        };
        Report {
            attempt: report.attempt,
            fencing_token: report.fencing_token.0,
            digest: Some((&report.digest).into()),
            outcome,
            retry_at,
            dead_reason,
        }
    }
}

impl TryFrom<Report> for authority::Report {
    type Error = DecodeError;

    fn try_from(report: Report) -> Result<authority::Report, DecodeError> {
        let outcome = match (report.outcome, report.retry_at, report.dead_reason) {
            (COMPLETED, None, 0) => Outcome::Completed,
            (FAILED, None, 0) => Outcome::Failed,
            (RETRY, Some(time), 0) => Outcome::RetryAt(Time(time)),
            (DEAD, None, reason) => Outcome::Dead(DeadReason::from_number(reason)?),
            (DISCARDED, None, 0) => Outcome::Discarded,
            (0, ..) => return Err(DecodeError::Missing("the outcome of a report")),
            (COMPLETED..=DISCARDED, ..) => {
                return Err(DecodeError::Invalid("the outcome of a report contradicts itself"));
            }
            _ => return Err(DecodeError::Newer("an outcome of a report")),
        };
        Ok(authority::Report {
            attempt: report.attempt,
            fencing_token: Position(report.fencing_token),
            digest: need(report.digest, "the report's digest")?.into(),
            outcome,
        })
    }
}
