//! Numbers, texts, ids and recorded enumerations.

use std::net::IpAddr;
use std::sync::Arc;

use authority::event::ReleaseCause;
use authority::{
    ActorKind, CancelCause, Category, Contract, DeadReason, Digest, Position, Properties, Role, SecretHash,
    TaskId, Time,
};

use ledger::Link;

use super::{DecodeError, Wire};

/// Numbers, in the bytes of their own size.
macro_rules! numbers {
    ($($type:ty,)*) => {
        $(impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn get(bytes: &[u8]) -> Result<$type, DecodeError> {
                let bytes = bytes.try_into().map_err(|_| DecodeError::Invalid("a number"))?;
                Ok(<$type>::from_le_bytes(bytes))
            }
        })*
    };
}

numbers!(u8, u32, u64, u128, i32, f64,);

/// Values by another value.
macro_rules! by {
    ($($type:ty: $value:ident => $to:expr, $other:ident: $Other:ty => $from:expr;)*) => {
        $(impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let $value = self;
                $to.put(out);
            }

            fn get(bytes: &[u8]) -> Result<$type, DecodeError> {
                let $other = <$Other>::get(bytes)?;
                $from
            }
        })*
    };
}

by! {
    usize: value => (*value as u64), number: u64 =>
        usize::try_from(number).map_err(|_| DecodeError::Invalid("a number"));
    bool: value => u8::from(*value), number: u8 => Ok(number != 0);
    Position: value => value.0, number: u64 => Ok(Position(number));
    Time: value => value.0, number: u64 => Ok(Time(number));
    TaskId: value => value.0, number: u128 => Ok(TaskId(number));
    Digest: value => u128::from_be_bytes(value.0), number: u128 => Ok(Digest(number.to_be_bytes()));
    Link: value => u128::from_be_bytes(value.0), number: u128 => Ok(Link(number.to_be_bytes()));
    Properties: value => value.iter().map(|(name, value)| (name.clone(), value.clone())).collect::<Vec<_>>(),
        pairs: Vec<(Arc<str>, Arc<str>)> => Ok(Properties::new(pairs));
    IpAddr: value => value.to_string(), text: String =>
        text.parse().map_err(|_| DecodeError::Invalid("an address"));
}

impl Wire for SecretHash {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn get(bytes: &[u8]) -> Result<SecretHash, DecodeError> {
        bytes.try_into().map(SecretHash).map_err(|_| DecodeError::Invalid("a hash"))
    }
}

impl Wire for () {
    fn put(&self, _: &mut Vec<u8>) {}

    fn get(_: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }
}

macro_rules! texts {
    ($($type:ty,)*) => {
        $(impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_bytes());
            }

            fn get(bytes: &[u8]) -> Result<$type, DecodeError> {
                std::str::from_utf8(bytes).map(Into::into).map_err(|_| DecodeError::Invalid("a text"))
            }
        })*
    };
}

texts!(String, Arc<str>,);

impl Wire for Arc<[u8]> {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn get(bytes: &[u8]) -> Result<Arc<[u8]>, DecodeError> {
        Ok(Arc::from(bytes))
    }
}

impl Wire for Arc<[String]> {
    fn put(&self, out: &mut Vec<u8>) {
        self.to_vec().put(out);
    }

    fn get(bytes: &[u8]) -> Result<Arc<[String]>, DecodeError> {
        Vec::get(bytes).map(Arc::from)
    }
}

/// Enumerations by the numbers under which they are recorded.
macro_rules! recorded {
    ($($Name:ident,)*) => {
        $(impl Wire for $Name {
            fn put(&self, out: &mut Vec<u8>) {
                self.number().put(out);
            }

            fn get(bytes: &[u8]) -> Result<$Name, DecodeError> {
                $Name::from_number(u64::get(bytes)?).ok_or(DecodeError::Unknown(stringify!($Name)))
            }
        })*
    };
}

recorded!(Category, DeadReason, CancelCause, Contract, Role, ActorKind, ReleaseCause,);
