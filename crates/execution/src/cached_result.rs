//! An entry of the action cache: a result, and the position of the record that committed it. A result that a client
//! uploaded has position zero.

use prost::Message;

use crate::reapi::ActionResult;

const POSITION_BYTES: usize = 8;

pub fn encode(position: u64, result: &ActionResult) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(POSITION_BYTES + result.encoded_len());
    bytes.extend_from_slice(&position.to_le_bytes());
    // Encoding into a vector cannot fail.
    let _ = result.encode(&mut bytes);
    bytes
}

pub fn decode(entry: &[u8]) -> Option<(u64, ActionResult)> {
    let (position, result) = entry.split_first_chunk::<POSITION_BYTES>()?;
    Some((u64::from_le_bytes(*position), ActionResult::decode(result).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_back_and_garbage_is_none() {
        let result = ActionResult { exit_code: 3, ..ActionResult::default() };
        assert_eq!(decode(&encode(7, &result)), Some((7, result)));
        assert_eq!(decode(&[1, 2, 3]), None);
        assert_eq!(decode(&[0xff; 40]), None);
    }
}
