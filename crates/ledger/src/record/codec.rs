//! Encodes and decodes the fields of a protobuf message, straight from and into the authority's types.
//!
//! A message is written in the rising order of its tags, and only that form is read: a field out of order, a number in
//! more bytes than needed or a default that is written out did not come from a writer of ours. Decoding never panics and
//! allocates in proportion to its input.

use std::ops::RangeInclusive;
use std::sync::Arc;

use authority::{Position, Time};
use prost::encoding::{encode_varint, encoded_len_varint};

use super::error::DecodeError;

/// Fields with these tags are skipped by a reader that does not know them, in the messages that may have them: neither
/// a decision nor the state digest depends on them. docs/records.md lists the messages and the tags in use.
pub(super) const IGNORABLE_TAGS: RangeInclusive<u32> = 100..=199;

const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const BLOCK: u32 = 2;
const FIXED_32: u32 = 5;

/// A value that stands behind a tag.
pub(super) trait Value: Sized {
    /// Writes the tag and the value, also when the value is the default.
    fn write(&self, tag: u32, out: &mut Vec<u8>);

    /// Reads the value if the next field has this tag.
    fn read(tag: u32, fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError>;
}

/// A field of a message: a value that may be absent, and what its absence means.
pub(super) trait Field: Sized {
    fn encode(&self, tag: u32, out: &mut Vec<u8>);

    fn decode(tag: u32, name: &'static str, fields: &mut Fields<'_>) -> Result<Self, DecodeError>;
}

/// A message: fields in rising order.
pub(super) trait Message: Sized {
    fn encode_fields(&self, out: &mut Vec<u8>);

    /// Decodes the message that fills `bytes`.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;
}

/// Implements [`Message`] and [`Value`] by a list of fields. `$end` says what may follow them: `finish` or
/// `skip_ignorable`.
macro_rules! messages {
    ($end:ident: $($Name:ident { $($tag:literal $field:ident,)* })*) => {
        $(
            impl Message for $Name {
                fn encode_fields(&self, out: &mut Vec<u8>) {
                    $(self.$field.encode($tag, out);)*
                }

                fn decode(bytes: &[u8]) -> Result<$Name, DecodeError> {
                    let mut fields = Fields(bytes);
                    let message =
                        $Name { $($field: Field::decode($tag, stringify!($field), &mut fields)?,)* };
                    fields.$end()?;
                    Ok(message)
                }
            }

            impl Value for $Name {
                fn write(&self, tag: u32, out: &mut Vec<u8>) {
                    write_block(tag, out, |out| self.encode_fields(out));
                }

                fn read(tag: u32, fields: &mut Fields<'_>) -> Result<Option<$Name>, DecodeError> {
                    fields.block(tag)?.map(<$Name as Message>::decode).transpose()
                }
            }
        )*
    };
}

/// Fields that every writer writes.
macro_rules! required {
    ($($type:ty,)*) => {
        $(impl Field for $type {
            fn encode(&self, tag: u32, out: &mut Vec<u8>) {
                self.write(tag, out);
            }

            fn decode(tag: u32, name: &'static str, fields: &mut Fields<'_>) -> Result<$type, DecodeError> {
                <$type>::read(tag, fields)?.ok_or(DecodeError::Missing(name))
            }
        })*
    };
}

pub(super) use {messages, required};

/// Writes a length-delimited field: the tag, the length of what `body` writes, and that.
pub(super) fn write_block(tag: u32, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    write_key(tag, BLOCK, out);
    write_delimited(out, body);
}

/// Writes the length of what `body` writes, and that.
pub(super) fn write_delimited(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    const SHORT: usize = 0x7f;
    let start = out.len();
    // Most blocks are short: their length takes the one byte that is left free here.
    out.push(0);
    body(out);
    let length = out.len() - start - 1;
    if length <= SHORT {
        out[start] = length as u8;
    } else {
        let mut prefix = [0; 10];
        encode_varint(length as u64, &mut &mut prefix[..]);
        out.splice(start..=start, prefix[..encoded_len_varint(length as u64)].iter().copied());
    }
}

pub(super) fn write_varint(tag: u32, value: u64, out: &mut Vec<u8>) {
    write_key(tag, VARINT, out);
    encode_varint(value, out);
}

pub(super) fn write_fixed64(tag: u32, value: u64, out: &mut Vec<u8>) {
    write_key(tag, FIXED_64, out);
    out.extend_from_slice(&value.to_le_bytes());
}

fn write_bytes(tag: u32, bytes: &[u8], out: &mut Vec<u8>) {
    write_key(tag, BLOCK, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn write_key(tag: u32, wire_type: u32, out: &mut Vec<u8>) {
    encode_varint(u64::from(tag << 3 | wire_type), out);
}

/// The fields of a message that are not read yet.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The number behind this tag, if it comes next.
    pub(super) fn varint(&mut self, tag: u32) -> Result<Option<u64>, DecodeError> {
        if self.is_next(tag, VARINT)? { self.number().map(Some) } else { Ok(None) }
    }

    /// The eight bytes behind this tag as a number, if they come next.
    pub(super) fn fixed64(&mut self, tag: u32) -> Result<Option<u64>, DecodeError> {
        if !self.is_next(tag, FIXED_64)? {
            return Ok(None);
        }
        let (bytes, rest) = self.0.split_first_chunk().ok_or(CUT_SHORT)?;
        self.0 = rest;
        Ok(Some(u64::from_le_bytes(*bytes)))
    }

    /// The block behind this tag, if it comes next.
    pub(super) fn block(&mut self, tag: u32) -> Result<Option<&'a [u8]>, DecodeError> {
        if self.is_next(tag, BLOCK)? { self.take_block().map(Some) } else { Ok(None) }
    }

    /// The next field, which must be a block, with its tag.
    pub(super) fn next_block(&mut self) -> Result<Option<(u32, &'a [u8])>, DecodeError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (tag, wire_type) = self.key()?;
        if wire_type != BLOCK {
            return Err(UNKNOWN_FIELD);
        }
        self.take_block().map(|block| Some((tag, block)))
    }

    /// Skips fields that may be ignored.
    pub(super) fn skip_ignorable(&mut self) -> Result<(), DecodeError> {
        while !self.0.is_empty() {
            let (tag, wire_type) = self.key()?;
            if !IGNORABLE_TAGS.contains(&tag) {
                return Err(UNKNOWN_FIELD);
            }
            match wire_type {
                VARINT => drop(self.number()?),
                FIXED_64 => drop(self.take(8)?),
                BLOCK => drop(self.take_block()?),
                FIXED_32 => drop(self.take(4)?),
                _ => return Err(DecodeError::Invalid("a field has an unknown wire type")),
            }
        }
        Ok(())
    }

    /// Refuses what was not read: a reader that skips a field may reach another state than the writer.
    pub(super) fn finish(&self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(UNKNOWN_FIELD) }
    }

    fn is_next(&mut self, tag: u32, wire_type: u32) -> Result<bool, DecodeError> {
        if self.0.is_empty() {
            return Ok(false);
        }
        let before = self.0;
        let (next_tag, next_type) = self.key()?;
        if next_tag != tag {
            self.0 = before;
            return Ok(false);
        }
        if next_type == wire_type {
            Ok(true)
        } else {
            Err(DecodeError::Invalid("a field has the wire type of another"))
        }
    }

    fn key(&mut self) -> Result<(u32, u32), DecodeError> {
        let key = u32::try_from(self.number()?).map_err(|_| DecodeError::Invalid("a tag is too large"))?;
        Ok((key >> 3, key & 7))
    }

    /// What follows its own length.
    pub(super) fn take_block(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = usize::try_from(self.number()?).map_err(|_| CUT_SHORT)?;
        self.take(length)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(CUT_SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn number(&mut self) -> Result<u64, DecodeError> {
        // Most numbers take one byte.
        if let Some((byte @ ..=0x7f, rest)) = self.0.split_first() {
            self.0 = rest;
            return Ok(u64::from(*byte));
        }
        let before = self.0.len();
        let value = prost::encoding::decode_varint(&mut self.0)?;
        if before - self.0.len() == encoded_len_varint(value) {
            Ok(value)
        } else {
            Err(DecodeError::Invalid("a number takes more bytes than it needs"))
        }
    }
}

pub(super) const UNKNOWN_FIELD: DecodeError = DecodeError::Newer("a kind or a field");
const CUT_SHORT: DecodeError = DecodeError::Invalid("it ends within a field");

impl<T: Value> Field for Option<T> {
    fn encode(&self, tag: u32, out: &mut Vec<u8>) {
        if let Some(value) = self {
            value.write(tag, out);
        }
    }

    fn decode(tag: u32, _: &'static str, fields: &mut Fields<'_>) -> Result<Option<T>, DecodeError> {
        T::read(tag, fields)
    }
}

/// Pointers, by what they point to.
macro_rules! pointers {
    ($($Pointer:ident,)*) => {
        $(impl<T: Value> Value for $Pointer<T> {
            fn write(&self, tag: u32, out: &mut Vec<u8>) {
                T::write(self, tag, out);
            }

            fn read(tag: u32, fields: &mut Fields<'_>) -> Result<Option<$Pointer<T>>, DecodeError> {
                Ok(T::read(tag, fields)?.map($Pointer::new))
            }
        })*
    };
}

pointers!(Arc, Box,);

/// Numbers, by their conversions to and from a varint.
macro_rules! number {
    ($($type:ty: $value:ident => $to:expr, $from:expr;)*) => {
        $(impl Value for $type {
            fn write(&self, tag: u32, out: &mut Vec<u8>) {
                let $value = *self;
                write_varint(tag, $to, out);
            }

            fn read(tag: u32, fields: &mut Fields<'_>) -> Result<Option<$type>, DecodeError> {
                let Some($value) = fields.varint(tag)? else { return Ok(None) };
                $from.map(Some).ok_or(DecodeError::Invalid("a number is out of range"))
            }
        })*
    };
}

number! {
    u64: value => value, Some(value);
    u32: value => u64::from(value), u32::try_from(value).ok();
    bool: value => u64::from(value), match value { 0 => Some(false), 1 => Some(true), _ => None };
    // The sign is the lowest bit.
    i32: value => u64::from((value << 1 ^ value >> 31) as u32),
        u32::try_from(value).ok().map(|value| (value >> 1) as i32 ^ -((value & 1) as i32));
    Position: value => value.0, Some(Position(value));
    Time: value => value.0, Some(Time(value));
}

impl Value for Arc<str> {
    fn write(&self, tag: u32, out: &mut Vec<u8>) {
        write_bytes(tag, self.as_bytes(), out);
    }

    fn read(tag: u32, fields: &mut Fields<'_>) -> Result<Option<Arc<str>>, DecodeError> {
        let Some(bytes) = fields.block(tag)? else { return Ok(None) };
        let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::Invalid("a text is not UTF-8"))?;
        Ok(Some(Arc::from(text)))
    }
}

impl Value for Arc<[u8]> {
    fn write(&self, tag: u32, out: &mut Vec<u8>) {
        write_bytes(tag, self, out);
    }

    fn read(tag: u32, fields: &mut Fields<'_>) -> Result<Option<Arc<[u8]>>, DecodeError> {
        Ok(fields.block(tag)?.map(Arc::from))
    }
}

/// Fields that are left out when they have their default.
macro_rules! defaulted {
    ($($type:ty,)*) => {
        $(impl Field for $type {
            fn encode(&self, tag: u32, out: &mut Vec<u8>) {
                if *self != <$type>::default() {
                    self.write(tag, out);
                }
            }

            fn decode(tag: u32, _: &'static str, fields: &mut Fields<'_>) -> Result<$type, DecodeError> {
                match <$type>::read(tag, fields)? {
                    None => Ok(<$type>::default()),
                    Some(value) if value != <$type>::default() => Ok(value),
                    Some(_) => Err(DecodeError::Invalid("a default is written out")),
                }
            }
        })*
    };
}

defaulted!(u32, u64, i32, bool, Position, Time, Arc<str>, Arc<[u8]>,);
