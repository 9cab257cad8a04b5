//! The values of columns, in the binary form that PostgreSQL takes.

use std::error::Error;
use std::sync::Arc;

use authority::{Position, TaskId, Time};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type};

/// Later times are shown as `infinity`: after the year 9999.
const MAX_TIME_MS: u64 = 253_402_300_799_999;
/// From 1970, where our times begin, to 2000, where PostgreSQL's begin.
const EPOCH_MS: i64 = 946_684_800_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Null,
    Int(i64),
    Uuid(u128),
    Time(Time),
    Name(&'static str),
    Text(Arc<str>),
    /// Text that `jsonb` accepts.
    Json(Box<str>),
}

impl Cell {
    /// Text cannot hold the character NUL.
    pub(super) fn text(text: &Arc<str>) -> Cell {
        if text.contains('\0') {
            Cell::Text(text.replace('\0', "\u{fffd}").into())
        } else {
            Cell::Text(text.clone())
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let heap = match self {
            Cell::Text(text) => text.len(),
            Cell::Json(text) => text.len(),
            _ => 0,
        };
        size_of::<Cell>() + heap
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Cell {
        Cell::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Cell {
    fn from(value: u32) -> Cell {
        Cell::Int(value.into())
    }
}

impl From<i32> for Cell {
    fn from(value: i32) -> Cell {
        Cell::Int(value.into())
    }
}

impl From<Time> for Cell {
    fn from(value: Time) -> Cell {
        Cell::Time(value)
    }
}

impl From<Position> for Cell {
    fn from(value: Position) -> Cell {
        Cell::from(value.0)
    }
}

impl From<TaskId> for Cell {
    fn from(value: TaskId) -> Cell {
        Cell::Uuid(value.0)
    }
}

impl From<&'static str> for Cell {
    fn from(value: &'static str) -> Cell {
        Cell::Name(value)
    }
}

impl From<&Arc<str>> for Cell {
    fn from(value: &Arc<str>) -> Cell {
        Cell::text(value)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::Null, Into::into)
    }
}

impl ToSql for Cell {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Cell::Null => return Ok(IsNull::Yes),
            Cell::Int(value) if *ty == Type::INT4 => {
                let small = i32::try_from(*value).unwrap_or(i32::MAX);
                out.extend_from_slice(&small.to_be_bytes());
            }
            Cell::Int(value) => out.extend_from_slice(&value.to_be_bytes()),
            Cell::Uuid(value) => out.extend_from_slice(&value.to_be_bytes()),
            Cell::Time(Time(ms)) if *ms > MAX_TIME_MS => out.extend_from_slice(&i64::MAX.to_be_bytes()),
            Cell::Time(Time(ms)) => {
                out.extend_from_slice(&((*ms as i64 - EPOCH_MS) * 1_000).to_be_bytes());
            }
            Cell::Name(text) => out.extend_from_slice(text.as_bytes()),
            Cell::Text(text) => out.extend_from_slice(text.as_bytes()),
            Cell::Json(text) => {
                // The version of the binary form.
                out.extend_from_slice(&[1]);
                out.extend_from_slice(text.as_bytes());
            }
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}
