//! Bytes that no writer wrote: never a panic, never memory beyond what the input's size allows, and never a guess
//! about what is not understood.

use authority::Event;
use ledger::record::snapshot::BlockDecoder;
use ledger::record::{DecodeError, decode};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::fixture::block_of;
use crate::{samples, strategies};

const TASK_CREATED: u32 = 3;
const TASK_FAILED: u32 = 10;
const TASK_DEAD: u32 = 11;
const QUEUE_CONFIGURED: u32 = 16;
const TASKS_PURGED: u32 = 17;
/// The first tag that no version 1 writer uses.
const UNUSED: u32 = 22;

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..300)) {
        let _ = decode(&bytes);
        let _ = BlockDecoder::default().entries(&bytes).count();
    }

    #[test]
    fn a_changed_record_never_panics(
        record in strategies::record(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = decode(&bytes);
    }

    #[test]
    fn a_changed_task_entry_never_panics(
        (queue, task) in strategies::task(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut block = Vec::new();
        ledger::record::snapshot::encode_task(&queue, &task, &mut block);
        for (at, byte) in changes {
            let at = at.index(block.len());
            block[at] = byte;
        }
        let _ = BlockDecoder::default().entries(&block).count();
    }

    #[test]
    fn a_record_cut_anywhere_is_refused(record in strategies::record()) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        for length in 0..bytes.len() {
            prop_assert!(decode(&bytes[..length]).is_err(), "cut to {} of {}", length, bytes.len());
        }
    }
}

#[test]
fn every_flipped_bit_of_a_full_record_is_refused_or_read_as_a_record_of_the_same_length() {
    for record in samples::records() {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(other) = decode(&flipped) {
                let mut again = Vec::new();
                other.encode(&mut again);
                assert_eq!(again.len(), bytes.len(), "bit {bit} of {}", record.event.name());
            }
        }
    }
}

#[test]
fn a_block_cut_anywhere_gives_whole_entries_and_then_at_most_one_error() {
    let entries = samples::entries();
    let block = block_of(&entries);
    for length in 0..block.len() {
        let mut decoded: Vec<_> = BlockDecoder::default().entries(&block[..length]).collect();
        if decoded.last().is_some_and(Result::is_err) {
            decoded.pop();
        }
        let whole: Vec<_> = decoded.into_iter().map(|entry| entry.expect("only the last is cut")).collect();
        assert!(whole.len() < entries.len() && entries.starts_with(&whole), "cut to {length}");
    }
}

#[test]
fn lengths_that_lie_are_refused_before_anything_is_reserved() {
    // Each names far more bytes than any machine has.
    for huge in [u64::MAX, 1 << 62, 1 << 40] {
        for tag in 1..UNUSED {
            let mut bytes = key(tag, 2);
            varint(huge, &mut bytes);
            assert!(decode(&bytes).is_err(), "tag {tag}");
            for inner in 1..UNUSED {
                let mut body = key(inner, 2);
                varint(huge, &mut body);
                assert!(decode(&field(tag, &body)).is_err(), "tag {tag}, inner tag {inner}");
            }
        }
        let mut block = Vec::new();
        varint(huge, &mut block);
        block.push(0);
        let entries: Vec<_> = BlockDecoder::default().entries(&block).collect();
        assert!(matches!(entries[..], [Err(_)]));
    }
}

#[test]
fn d25_an_unknown_event_kind_is_refused_as_written_by_a_newer_version() {
    for tag in [UNUSED, 100, 1_000] {
        let error = decode(&field(tag, b"whatever it means")).expect_err("nobody knows this kind");
        assert!(matches!(error, DecodeError::Newer(_)));
        assert!(error.to_string().contains("newer version"), "{error}");
    }
}

#[test]
fn d25_an_unknown_field_is_refused_wherever_it_stands() {
    for record in samples::records() {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        bytes.extend(field(UNUSED, b"new"));
        assert!(matches!(decode(&bytes), Err(DecodeError::Newer(_))), "beside {}", record.event.name());
    }
    let mut failed = task_failed(1);
    failed.extend(field(UNUSED, b"new"));
    assert!(matches!(decode(&field(TASK_FAILED, &failed)), Err(DecodeError::Newer(_))));
}

#[test]
fn an_unknown_field_that_may_be_ignored_is_skipped_in_every_event_and_refused_beside_it() {
    for record in samples::records() {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let (event_start, tag, body) = event_of(&bytes);
        for ignorable in [101, 150, 199] {
            let number = [key(ignorable, 0), vec![7]].concat();
            let extended = [body, &field(ignorable, b"new"), &number].concat();
            let newer = [&bytes[..event_start], &field(tag, &extended)].concat();
            assert_eq!(decode(&newer), Ok(record.clone()), "{}", record.event.name());
        }
        for other in [UNUSED, 99, 200] {
            let extended = [body, &field(other, b"new")].concat();
            let newer = [&bytes[..event_start], &field(tag, &extended)].concat();
            assert!(matches!(decode(&newer), Err(DecodeError::Newer(_))), "{}", record.event.name());
        }
        let beside = [&bytes[..], &field(100, b"new")].concat();
        assert!(matches!(decode(&beside), Err(DecodeError::Newer(_))), "beside {}", record.event.name());
    }
}

/// The messages that may have ignorable fields: the options of a task, the configuration of a queue, the report of a dead
/// task. Each with the tag of its event and its own tag in it.
const WITH_IGNORABLE: [(u32, u32); 3] = [(TASK_CREATED, 7), (TASK_DEAD, 4), (QUEUE_CONFIGURED, 2)];
/// A message that may have none: the error of a failed task.
const WITHOUT_IGNORABLE: (u32, u32) = (TASK_FAILED, 4);

#[test]
fn an_ignorable_field_is_skipped_in_some_messages_and_refused_in_the_others() {
    let (mut extended, mut refused) = (0, 0);
    for record in samples::records() {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let (event_start, event_tag, body) = event_of(&bytes);
        for (tag, start, end) in blocks(body) {
            let with = |more: &[u8]| {
                let message = field(tag, &[block_content(&body[start..end]), more].concat());
                let event = [&body[..start], &message, &body[end..]].concat();
                decode(&[&bytes[..event_start], &field(event_tag, &event)].concat())
            };
            if WITH_IGNORABLE.contains(&(event_tag, tag)) {
                // The decoded record is the one without the field, so nothing of it is in the state.
                assert_eq!(with(&field(150, b"new")), Ok(record.clone()), "{}", record.event.name());
                assert!(matches!(with(&field(99, b"new")), Err(DecodeError::Newer(_))));
                extended += 1;
            }
            if WITHOUT_IGNORABLE == (event_tag, tag) {
                assert!(matches!(with(&field(150, b"new")), Err(DecodeError::Newer(_))));
                refused += 1;
            }
        }
    }
    assert_eq!(extended, WITH_IGNORABLE.len());
    assert!(refused > 0);
}

/// The blocks of a message: tag, start and end.
fn blocks(message: &[u8]) -> Vec<(u32, usize, usize)> {
    let (mut rest, mut found) = (message, Vec::new());
    while !rest.is_empty() {
        let start = message.len() - rest.len();
        let (tag, wire_type) = prost::encoding::decode_key(&mut rest).expect("a key");
        prost::encoding::skip_field(wire_type, tag, &mut rest, Default::default()).expect("a field");
        if wire_type == prost::encoding::WireType::LengthDelimited {
            found.push((tag, start, message.len() - rest.len()));
        }
    }
    found
}

fn block_content(mut block: &[u8]) -> &[u8] {
    prost::encoding::decode_key(&mut block).expect("a key");
    prost::encoding::decode_varint(&mut block).expect("a length");
    block
}

/// Where the event of a record begins, its tag and its message.
fn event_of(bytes: &[u8]) -> (usize, u32, &[u8]) {
    let mut rest = bytes;
    loop {
        let start = bytes.len() - rest.len();
        let (tag, wire_type) = prost::encoding::decode_key(&mut rest).expect("a record has an event");
        let number = prost::encoding::decode_varint(&mut rest).expect("a number or a length");
        if wire_type == prost::encoding::WireType::LengthDelimited {
            assert_eq!(number as usize, rest.len());
            return (start, tag, rest);
        }
    }
}

#[test]
fn d25_an_unknown_category_is_refused_and_none_at_all_is_malformed() {
    for known in 1..=6 {
        assert!(matches!(
            decode(&field(TASK_FAILED, &task_failed(known))).expect("this category is known").event,
            Event::TaskFailed(_)
        ));
    }
    assert!(matches!(decode(&field(TASK_FAILED, &task_failed(7))), Err(DecodeError::Newer(_))));
    assert!(matches!(decode(&field(TASK_FAILED, &task_failed(0))), Err(DecodeError::Missing(_))));
}

#[test]
fn what_no_writer_leaves_out_is_missed() {
    assert_eq!(decode(&[]), Err(DecodeError::Missing("the event")));
    assert!(matches!(decode(&field(TASK_CREATED, &[])), Err(DecodeError::Missing(_))));
    assert!(matches!(decode(&field(TASK_FAILED, &[])), Err(DecodeError::Missing(_))));
}

#[test]
fn half_an_id_in_a_purge_is_malformed() {
    let halves = field(1, &[7; 24]);
    assert!(matches!(decode(&field(TASKS_PURGED, &halves)), Err(DecodeError::Invalid(_))));
}

#[test]
fn properties_out_of_order_are_malformed() {
    let property = |name: &[u8]| field(6, &field(1, name));
    let created = |names: [&[u8]; 2]| {
        let body = [field(1, &[]), field(2, &[]), property(names[0]), property(names[1])].concat();
        decode(&field(TASK_CREATED, &body))
    };
    assert!(created([b"arch", b"os"]).is_ok());
    assert!(matches!(created([b"os", b"arch"]), Err(DecodeError::Invalid(_))));
    assert!(matches!(created([b"os", b"os"]), Err(DecodeError::Invalid(_))));
}

/// The body of a TaskFailed with an error of this category.
fn task_failed(category: u8) -> Vec<u8> {
    let error = if category == 0 { Vec::new() } else { vec![1 << 3, category] };
    [field(1, &[]), field(3, &[]), field(4, &error)].concat()
}

fn field(tag: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = key(tag, 2);
    varint(body.len() as u64, &mut bytes);
    bytes.extend_from_slice(body);
    bytes
}

fn key(tag: u32, wire_type: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint(u64::from(tag << 3 | wire_type), &mut bytes);
    bytes
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
