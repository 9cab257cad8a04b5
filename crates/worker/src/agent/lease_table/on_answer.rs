//! Applies the coordinator's answers to the lease table: verdicts on reports and the status of leases.

use std::sync::Arc;
use std::time::Duration;

use wire::grpc::{LeaseStatus, ReportAnswer, TaskStatus, UpdateTaskStatusResponse, Verdict};

use super::{LeaseTable, SendState, SentKind};
use crate::{Failure, Permit};

/// The coordinator does not find the outputs of a completion in the content store.
pub(in crate::agent) const OUTPUTS_MISSING: &str = "outputs_missing";
/// How often the outputs of one attempt are uploaded again before the attempt fails.
pub(in crate::agent) const MAX_UPLOADS_AGAIN: u32 = 3;

impl LeaseTable {
    pub(super) fn on_report_answer(
        &mut self,
        lease_id: &Arc<str>,
        sent: SentKind,
        sent_at: Duration,
        answer: &ReportAnswer,
        now: Duration,
    ) {
        let response = answer.answer.clone().unwrap_or_default();
        let why = answer.problem.as_ref().map(|problem| problem.detail.as_str()).unwrap_or_default();
        let is_undecided = answer.problem.is_some() && response.verdict() == Verdict::Unspecified;
        match sent {
            SentKind::Release => drop(self.releases.remove(lease_id)),
            SentKind::Start if response.verdict() != Verdict::Unspecified => {
                self.lose(lease_id, if why.is_empty() { "the lease was over on arrival" } else { why });
            }
            SentKind::Start => {
                let Some(held) = self.held.get_mut(lease_id) else { return };
                // Heartbeats say the same, so the start needs no repeat.
                held.start = SendState::Answered;
                if response.lease_expires_at.is_some() {
                    held.clock.extend(sent_at, None);
                }
                if response.should_cancel {
                    held.permit.cancel();
                }
            }
            SentKind::Report
                if is_undecided
                    && answer.problem.as_ref().is_some_and(|problem| problem.code == OUTPUTS_MISSING) =>
            {
                self.on_outputs_missing(lease_id, why);
            }
            SentKind::Report if is_undecided => {
                if let Some((_, state)) = self.held.get_mut(lease_id).and_then(|held| held.report.as_mut()) {
                    state.retry_later(now);
                }
            }
            SentKind::Report => self.on_verdict(lease_id, &response, why),
        }
    }

    /// The report waits until its outputs are uploaded again.
    fn on_outputs_missing(&mut self, lease_id: &Arc<str>, why: &str) {
        let Some(held) = self.held.get_mut(lease_id) else { return };
        tracing::warn!(
            task = held.task_id,
            why,
            "outputs are missing in the content store and are uploaded again"
        );
        if held.uploads_again >= MAX_UPLOADS_AGAIN {
            held.on_attempt_end(lease_id, outputs_stay_missing().into());
        } else if let Some((_, state)) = &mut held.report {
            held.uploads_again += 1;
            *state = SendState::Answered;
            self.lacking_outputs.push(lease_id.clone());
        }
    }

    /// The leases whose outputs have to be uploaded again, with the permits that keep them.
    pub(in crate::agent) fn take_lacking_outputs(&mut self) -> Vec<(Arc<str>, Permit)> {
        let lacking = std::mem::take(&mut self.lacking_outputs);
        let permit = |lease_id: Arc<str>| Some((lease_id.clone(), self.permit_of(&lease_id)?));
        lacking.into_iter().filter_map(permit).collect()
    }

    /// The outputs were uploaded again: the report is repeated. If they cannot be uploaded, the attempt has failed.
    pub(in crate::agent) fn on_uploaded_again(&mut self, lease_id: &Arc<str>, uploaded: Result<(), Failure>) {
        let Some(held) = self.held.get_mut(lease_id) else { return };
        match (uploaded, &mut held.report) {
            (Ok(()), Some((_, state))) => *state = SendState::NOW,
            (Ok(()), None) => {}
            (Err(failure), _) => held.on_attempt_end(lease_id, failure.into()),
        }
    }

    fn on_verdict(&mut self, lease_id: &Arc<str>, response: &UpdateTaskStatusResponse, why: &str) {
        let Some(mut held) = self.held.remove(lease_id) else { return };
        let status = held.report.as_ref().map(|(report, _)| report.status());
        let is_completion = status == Some(TaskStatus::Completed);
        let task = held.task_id.as_str();
        match response.verdict() {
            Verdict::Committed => {
                self.completed += i64::from(is_completion);
                self.failed += i64::from(!is_completion);
                tracing::info!(task, state = response.task_state().as_str_name(), "committed");
            }
            Verdict::Cancelled => tracing::warn!(task, "the lease was lost, and the result is discarded"),
            Verdict::Rejected | Verdict::Unspecified => {
                tracing::error!(task, why, "the report was rejected");
                if is_completion {
                    // The attempt is still open. It fails, because the coordinator does not accept its result.
                    held.on_attempt_end(lease_id, Failure::result_rejected(why).into());
                    self.held.insert(lease_id.clone(), held);
                }
            }
        }
    }

    pub(super) fn on_lease_status(&mut self, status: &LeaseStatus, sent_at: Option<Duration>) {
        if status.lost {
            // A report in flight ends its lease. The answer to the report says how.
            let is_reporting =
                self.held.get(status.lease_id.as_str()).is_some_and(|held| held.report.is_some());
            if !is_reporting {
                self.lose(&status.lease_id, "the coordinator says that the lease is over");
            }
            return;
        }
        let Some(held) = self.held.get_mut(status.lease_id.as_str()) else { return };
        if status.problem.is_none()
            && let Some(sent_at) = sent_at
        {
            held.clock.extend(sent_at, None);
        }
        if status.should_cancel {
            held.permit.cancel();
        }
    }

    /// Cancels an attempt that can no longer commit. It is not reported.
    pub(super) fn lose(&mut self, lease_id: &str, why: &str) {
        if let Some(held) = self.held.remove(lease_id) {
            held.permit.lose();
            tracing::warn!(task = held.task_id, why, "a lease is lost, and its attempt is canceled");
        }
    }
}

/// The failure of an attempt whose outputs do not stay in the content store.
pub(in crate::agent) fn outputs_stay_missing() -> Failure {
    Failure::broken("the outputs do not stay in the content store: it may be too small for them")
}
