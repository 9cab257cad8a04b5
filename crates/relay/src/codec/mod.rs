//! Encodes calls and their answers for other nodes.
//!
//! A message is a list of fields, each a tag, a length and a body. A reader skips fields that it does not know and fills in
//! those that an older node does not send where they are optional, so that nodes of different versions work together during
//! an upgrade; a variant that it does not know is an error. Decoding never panics and allocates in proportion to its input.

mod calls;
mod commands;
mod replies;
mod tasks;
mod values;

#[cfg(test)]
mod tests;

use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("a message ends within a field")]
    CutShort,
    #[error("the field {0} is missing")]
    Missing(&'static str),
    #[error("{0} is not known to this version")]
    Unknown(&'static str),
    #[error("{0} is not valid")]
    Invalid(&'static str),
}

/// A value of a message. Its body fills the bytes that it is read from.
pub(crate) trait Wire: Sized {
    /// The value of a field that was not sent; none when it must be sent.
    fn absent() -> Option<Self> {
        None
    }

    /// Whether the field is left out.
    fn is_absent(&self) -> bool {
        false
    }

    fn put(&self, out: &mut Vec<u8>);

    fn get(bytes: &[u8]) -> Result<Self, DecodeError>;
}

/// Encodes a message.
pub(crate) fn encode(message: &impl Wire) -> Vec<u8> {
    let mut out = Vec::new();
    message.put(&mut out);
    out
}

/// Writes a body behind its length.
fn put_block(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Writes a field, unless it is left out.
pub(crate) fn put_field(tag: u8, value: &impl Wire, out: &mut Vec<u8>) {
    if !value.is_absent() {
        out.push(tag);
        put_block(out, |out| value.put(out));
    }
}

/// What is left of a message.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn next(&mut self) -> Result<Option<(u8, &'a [u8])>, DecodeError> {
        let Some((tag, rest)) = self.0.split_first() else { return Ok(None) };
        self.0 = rest;
        Ok(Some((*tag, self.block()?)))
    }

    fn block(&mut self) -> Result<&'a [u8], DecodeError> {
        let (length, rest) = self.0.split_first_chunk::<4>().ok_or(DecodeError::CutShort)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (body, rest) = rest.split_at_checked(length).ok_or(DecodeError::CutShort)?;
        self.0 = rest;
        Ok(body)
    }
}

/// The value of a field that was read, or what its absence means.
pub(crate) fn read<T: Wire>(value: Option<T>, name: &'static str) -> Result<T, DecodeError> {
    value.or_else(T::absent).ok_or(DecodeError::Missing(name))
}

/// Structs, by their fields.
macro_rules! structs {
    ($($Name:ident { $($tag:literal $field:ident),* $(,)? })*) => {
        $(impl $crate::codec::Wire for $Name {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::codec::put_field($tag, &self.$field, out);)*
            }

            fn get(bytes: &[u8]) -> Result<Self, $crate::codec::DecodeError> {
                $(let mut $field = None;)*
                let mut fields = $crate::codec::Fields(bytes);
                while let Some((tag, body)) = fields.next()? {
                    match tag {
                        $($tag => $field = Some($crate::codec::Wire::get(body)?),)*
                        _ => {}
                    }
                }
                Ok($Name { $($field: $crate::codec::read($field, stringify!($field))?,)* })
            }
        })*
    };
}

/// Enums, by their variants and the fields of each. The field of a tuple variant is named by its number.
macro_rules! enums {
    ($($Name:ident { $($number:literal $Variant:ident { $($tag:literal $member:tt: $field:ident),* };)* })*) => {
        $(impl $crate::codec::Wire for $Name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($Name::$Variant { $($member: $field),* } => {
                        out.push($number);
                        $($crate::codec::put_field($tag, $field, out);)*
                    })*
                }
            }

            fn get(bytes: &[u8]) -> Result<Self, $crate::codec::DecodeError> {
                let (number, rest) = bytes.split_first().ok_or($crate::codec::DecodeError::CutShort)?;
                match *number {
                    $($number => {
                        $(let mut $field = None;)*
                        let mut fields = $crate::codec::Fields(rest);
                        #[allow(unused_variables)]
                        while let Some((tag, body)) = fields.next()? {
                            $(if tag == $tag {
                                $field = Some($crate::codec::Wire::get(body)?);
                            })*
                        }
                        Ok($Name::$Variant { $($member: $crate::codec::read($field, stringify!($field))?),* })
                    })*
                    _ => Err($crate::codec::DecodeError::Unknown(stringify!($Name))),
                }
            }
        })*
    };
}

pub(crate) use {enums, structs};

impl<T: Wire> Wire for Option<T> {
    fn absent() -> Option<Option<T>> {
        Some(None)
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }

    fn put(&self, out: &mut Vec<u8>) {
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn get(bytes: &[u8]) -> Result<Option<T>, DecodeError> {
        T::get(bytes).map(Some)
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn absent() -> Option<Vec<T>> {
        Some(Vec::new())
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|value| put_block(out, |out| value.put(out)));
    }

    fn get(bytes: &[u8]) -> Result<Vec<T>, DecodeError> {
        let (mut values, mut rest) = (Vec::new(), Fields(bytes));
        while !rest.0.is_empty() {
            values.push(T::get(rest.block()?)?);
        }
        Ok(values)
    }
}

impl<A: smallvec::Array> Wire for smallvec::SmallVec<A>
where
    A::Item: Wire,
{
    fn absent() -> Option<Self> {
        Some(Self::new())
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|value| put_block(out, |out| value.put(out)));
    }

    fn get(bytes: &[u8]) -> Result<Self, DecodeError> {
        Vec::get(bytes).map(Self::from_vec)
    }
}

impl<T: Wire> Wire for Arc<T> {
    fn put(&self, out: &mut Vec<u8>) {
        T::put(self, out);
    }

    fn get(bytes: &[u8]) -> Result<Arc<T>, DecodeError> {
        T::get(bytes).map(Arc::new)
    }
}

impl<T: Wire> Wire for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        T::put(self, out);
    }

    fn get(bytes: &[u8]) -> Result<Box<T>, DecodeError> {
        T::get(bytes).map(Box::new)
    }
}

/// Pairs are messages with two fields.
impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        put_field(1, &self.0, out);
        put_field(2, &self.1, out);
    }

    fn get(bytes: &[u8]) -> Result<(A, B), DecodeError> {
        let (mut first, mut second) = (None, None);
        let mut fields = Fields(bytes);
        while let Some((tag, body)) = fields.next()? {
            match tag {
                1 => first = Some(A::get(body)?),
                2 => second = Some(B::get(body)?),
                _ => {}
            }
        }
        Ok((read(first, "the first of a pair")?, read(second, "the second of a pair")?))
    }
}
