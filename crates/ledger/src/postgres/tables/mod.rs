//! Tables of tasks beside the ledger, for users who ask in SQL. `docs/tables.md` describes them.
//!
//! The changes of a batch are written in its transaction, or soon after, or not at all. What the tables lack can be
//! rebuilt from the ledger at any time; the coordinator never reads them.

mod cell;
mod check;
mod columns;
mod follow;
mod json;
mod missing;
mod queue;
mod rebuild;
mod replay;
mod rows;
mod session;
mod statements;
mod verify;

use std::str::FromStr;

pub(super) use check::Check;
pub(super) use columns::Context;
pub(super) use follow::{Follower, tables_position};
pub use rebuild::{Rebuilt, rebuild};
pub(super) use rows::TableRows;
pub(super) use statements::Statements;
pub use verify::{Difference, Verified, WhatDiffers, verify};

/// Creates the tables, after the schema of the ledger.
pub(super) const SCHEMA: &str = include_str!("tables.sql");

/// When the tables are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tables {
    /// In the transaction of the batch: they never lag.
    #[default]
    Transaction,
    /// Soon after, the net change of many batches at once.
    Following,
    /// Never.
    Off,
}

/// The names in a configuration file, in the order of [`Tables`].
const NAMES: [(&str, Tables); 3] =
    [("transaction", Tables::Transaction), ("following", Tables::Following), ("off", Tables::Off)];

impl Tables {
    /// The name in a configuration file.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, tables)| *tables == self).map_or("", |(name, _)| name)
    }
}

impl FromStr for Tables {
    type Err = String;

    fn from_str(name: &str) -> Result<Tables, String> {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, tables)| *tables)
            .ok_or_else(|| format!("tables is \"transaction\", \"following\" or \"off\", not {name:?}"))
    }
}
