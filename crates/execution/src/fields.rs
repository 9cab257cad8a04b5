//! Iterates over the fields of an encoded message without decoding them, so that a limit can be checked before any memory
//! is allocated.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// The length-delimited fields of a message, each with its number; none where the bytes are not a message.
pub fn length_delimited(mut bytes: &[u8]) -> impl Iterator<Item = Option<(u32, &[u8])>> {
    std::iter::from_fn(move || {
        while !bytes.is_empty() {
            match next(&mut bytes) {
                Some(None) => {}
                Some(field) => return Some(field),
                None => {
                    bytes = &[];
                    return Some(None);
                }
            }
        }
        None
    })
}

/// The next field if it is length-delimited, an inner none if it is not, and none if the bytes are malformed.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<Option<(u32, &'a [u8])>> {
    let (number, wire_type) = decode_key(bytes).ok()?;
    if wire_type != WireType::LengthDelimited {
        skip_field(wire_type, number, bytes, DecodeContext::default()).ok()?;
        return Some(None);
    }
    let length = usize::try_from(decode_varint(bytes).ok()?).ok()?;
    let (field, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(Some((number, field)))
}
