//! How answers look to people: tables, times, colours. Scripts use `--json`, which passes none of this.

pub mod category;
mod output;
mod record;
pub mod state;
mod table;
pub mod text;
pub mod time;

pub use output::{Output, note};
pub use record::Record;
pub use table::{Cell, Table};
