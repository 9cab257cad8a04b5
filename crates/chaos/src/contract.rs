//! The contracts of workers, and the features of each contract.

use contract_clients::ReportKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Contract {
    /// `/v1/leases`.
    Native,
    /// `/internal/worker`.
    Claim,
    /// The worker service, a call for each step.
    Grpc,
    /// The worker service, all in one stream.
    Stream,
    /// Tasks are pushed to a target, and its workers call back.
    Callback,
}

impl Contract {
    pub const ALL: [Contract; 5] =
        [Contract::Native, Contract::Claim, Contract::Grpc, Contract::Stream, Contract::Callback];

    pub fn name(self) -> &'static str {
        match self {
            Contract::Native => "native",
            Contract::Claim => "claim",
            Contract::Grpc => "grpc",
            Contract::Stream => "stream",
            Contract::Callback => "callback",
        }
    }

    /// The name in the ledger's records.
    pub(crate) fn recorded(self) -> authority::Contract {
        match self {
            Contract::Native => authority::Contract::Leases,
            Contract::Claim => authority::Contract::Claims,
            Contract::Grpc => authority::Contract::Scheduler,
            Contract::Stream => authority::Contract::Stream,
            Contract::Callback => authority::Contract::Callbacks,
        }
    }

    /// Whether a worker can give a lease back.
    pub fn has_releases(self) -> bool {
        matches!(self, Contract::Native | Contract::Grpc | Contract::Stream)
    }

    /// Whether a failure has a category; where it has none, all are the user's code.
    pub fn has_categories(self) -> bool {
        self != Contract::Claim
    }

    /// Whether a request for work has a name by which it can be repeated.
    pub fn has_request_ids(self) -> bool {
        matches!(self, Contract::Native | Contract::Claim | Contract::Grpc)
    }

    /// Whether it names leases as most contracts do, so that a report may be made through any of those.
    pub fn has_lease_ids(self) -> bool {
        self != Contract::Callback
    }

    /// Whether each request is a call of its own.
    pub fn has_calls(self) -> bool {
        self != Contract::Stream
    }

    /// The next contract after this one that supports such a report; this one where there is no other.
    pub fn another(self, contracts: &[Contract], kind: &ReportKind) -> Contract {
        let able = |other: &Contract| other.has_lease_ids() && other.has_calls() && other.supports(kind);
        let own = contracts.iter().position(|contract| *contract == self).filter(|_| self.has_lease_ids());
        let others = own.map(|own| contracts.iter().cycle().skip(own + 1).take(contracts.len()));
        others.and_then(|mut others| others.find(|other| able(other))).copied().unwrap_or(self)
    }

    pub fn supports(self, kind: &ReportKind) -> bool {
        match kind {
            ReportKind::Completed(_) => true,
            ReportKind::Failed(failure) => {
                self.has_categories() || failure.category == wire::ErrorCategory::UserCode
            }
            ReportKind::Released => self.has_releases(),
        }
    }
}
