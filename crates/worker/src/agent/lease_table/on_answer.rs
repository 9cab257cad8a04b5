//! Applies the coordinator's answers to the lease table: verdicts on reports and the status of leases.

use std::sync::Arc;
use std::time::Duration;

use wire::grpc::{LeaseStatus, ReportAnswer, TaskStatus, UpdateTaskStatusResponse, Verdict};

use super::{LeaseTable, SendState, SentKind};
use crate::Failure;

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
            SentKind::Report if is_undecided => {
                if let Some((_, state)) = self.held.get_mut(lease_id).and_then(|held| held.report.as_mut()) {
                    state.retry_later(now);
                }
            }
            SentKind::Report => self.on_verdict(lease_id, &response, why),
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
            held.permit.cancel();
            tracing::warn!(task = held.task_id, why, "a lease is lost, and its attempt is canceled");
        }
    }
}
