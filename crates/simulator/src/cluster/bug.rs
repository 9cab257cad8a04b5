//! The injected bugs of a cluster, within the product's code and around it.

use authority::injected_bug::InjectedBug;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterBug {
    /// A bug within the product's own code.
    Inside(InjectedBug),
    /// The database inserts a batch at a free position, whatever is before it.
    KeyWithoutLink,
    /// An owner that is fenced goes on as if its batch were stored.
    FencedIgnored,
    /// An owner whose durable batches were replaced follows the other history.
    ForkFollowed,
}

impl ClusterBug {
    /// Every bug that there is.
    pub fn all() -> impl Iterator<Item = ClusterBug> {
        let around = [ClusterBug::KeyWithoutLink, ClusterBug::FencedIgnored, ClusterBug::ForkFollowed];
        around.into_iter().chain(InjectedBug::CLUSTER.iter().copied().map(ClusterBug::Inside))
    }

    /// Parts of the error messages that the auditor may give for a history with this bug.
    pub fn expected_errors(self) -> &'static [&'static str] {
        const UNDURABLE: &[&str] =
            &["no durable record", "speaks of records that are not durable", "was never recorded"];
        const STALE: &[&str] = &["had taken over before it was asked"];
        match self {
            ClusterBug::KeyWithoutLink => &["it does not follow the end of the history"],
            ClusterBug::FencedIgnored => UNDURABLE,
            ClusterBug::ForkFollowed => &["does not refuse"],
            ClusterBug::Inside(injected) => match injected {
                InjectedBug::UnknownTakenForDurable => UNDURABLE,
                InjectedBug::UnknownTakenForFailed => &["although nobody else had written"],
                InjectedBug::FoundWithoutBarrier | InjectedBug::WarningIgnored => UNDURABLE,
                InjectedBug::UndurableApplied => &["applied what is not durable"],
                InjectedBug::HeldBatchesForgotten | InjectedBug::LeastTakesOver => &["holds what was lost"],
                InjectedBug::ReceiptIgnored => &["no standby has received what is before"],
                InjectedBug::ReadUnconfirmed | InjectedBug::ConfirmedTooEarly => STALE,
                InjectedBug::TimeFromOwnWall | InjectedBug::OldLeadKept => {
                    &["ahead of the last owner's time"]
                }
                InjectedBug::UndurableTakenForDurable | InjectedBug::LossTakenForFork => {
                    &["it knows of no durable batch that another one has replaced"]
                }
                InjectedBug::EarlierEpochWritten => &["has begun"],
                _ => &[],
            },
        }
    }

    pub(crate) fn injected_bug(self) -> Option<InjectedBug> {
        match self {
            ClusterBug::Inside(injected) => Some(injected),
            _ => None,
        }
    }
}
