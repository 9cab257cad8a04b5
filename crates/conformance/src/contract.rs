//! The contracts, each with its checks and with the requirements that no check can observe from outside.

use std::fmt;
use std::str::FromStr;

use crate::{Check, callback, claim, grpc, native, reapi};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// Tasks, queues and leases under `/v1`.
    Native,
    /// `/internal/worker/…`
    Claim,
    /// `/v1/tasks/{taskId}/started` and what belongs to it, with the envelope that a push target is sent.
    Callback,
    /// The service `WorkerScheduler`.
    Grpc,
    /// The Remote Execution API v2: the content store, the action cache and executions.
    Reapi,
}

impl Contract {
    pub const ALL: [Contract; 5] =
        [Contract::Native, Contract::Claim, Contract::Callback, Contract::Grpc, Contract::Reapi];

    pub fn name(self) -> &'static str {
        match self {
            Contract::Native => "native",
            Contract::Claim => "claim",
            Contract::Callback => "callback",
            Contract::Grpc => "grpc",
            Contract::Reapi => "reapi",
        }
    }

    /// All checks, in the order of the report.
    pub fn checks(self) -> Vec<&'static Check> {
        let themes: &[&'static [Check]] = match self {
            Contract::Native => native::THEMES,
            Contract::Claim => claim::THEMES,
            Contract::Callback => callback::THEMES,
            Contract::Grpc => grpc::THEMES,
            Contract::Reapi => reapi::THEMES,
        };
        themes.iter().copied().flatten().collect()
    }

    /// The requirements that cannot be observed from outside, and why.
    pub fn unobservable(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Contract::Native => native::UNOBSERVABLE,
            Contract::Claim => claim::UNOBSERVABLE,
            Contract::Callback => callback::UNOBSERVABLE,
            Contract::Grpc => grpc::UNOBSERVABLE,
            Contract::Reapi => reapi::UNOBSERVABLE,
        }
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Contract {
    type Err = String;

    fn from_str(name: &str) -> Result<Contract, String> {
        let known = Contract::ALL.into_iter().find(|contract| contract.name() == name);
        known.ok_or_else(|| format!("the contracts are {}", Contract::ALL.map(Contract::name).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The numbers that the documents give their requirements, as far as they are the contract's.
    fn all(contract: Contract) -> BTreeSet<String> {
        let (prefix, range) = match contract {
            Contract::Native => ("S0-", 1..=27),
            Contract::Claim => ("S2-", 1..=30),
            Contract::Callback => ("S1-", 1..=57),
            Contract::Grpc => ("S3-", 9..=40),
            Contract::Reapi => ("R", 1..=58),
        };
        range.map(|n| format!("{prefix}{n}")).collect()
    }

    #[test]
    fn every_number_of_a_contract_is_checked_or_said_to_be_unobservable() {
        for contract in Contract::ALL {
            let checked: BTreeSet<String> =
                contract.checks().iter().flat_map(|check| check.numbers).map(|n| n.to_string()).collect();
            let not: BTreeSet<String> = contract.unobservable().iter().map(|(n, _)| n.to_string()).collect();
            let missing: Vec<_> =
                all(contract).into_iter().filter(|n| !checked.contains(n) && !not.contains(n)).collect();
            assert!(missing.is_empty(), "{contract}: {missing:?}");
            let both: Vec<_> = checked.intersection(&not).collect();
            assert!(both.is_empty(), "{contract}: {both:?}");
        }
    }

    #[test]
    fn every_check_has_a_number_and_a_sentence_of_its_own() {
        for contract in Contract::ALL {
            let checks = contract.checks();
            let sentences: BTreeSet<_> = checks.iter().map(|check| check.says).collect();
            assert_eq!(sentences.len(), checks.len(), "{contract}");
            assert!(checks.iter().all(|check| !check.numbers.is_empty()), "{contract}");
        }
    }

    #[test]
    fn a_contract_is_found_by_its_name() {
        for contract in Contract::ALL {
            assert_eq!(contract.name().parse(), Ok(contract));
        }
        assert!("http".parse::<Contract>().unwrap_err().contains("native"));
    }
}
