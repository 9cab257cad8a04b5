//! Renders answers for people: tables, times, colors. `--json` uses none of this.

pub(crate) mod category;
mod output;
mod record;
pub(crate) mod state;
mod table;
pub(crate) mod text;
pub(crate) mod time;

pub(crate) use output::{Output, note};
pub(crate) use record::Record;
pub(crate) use table::{Cell, Table};
