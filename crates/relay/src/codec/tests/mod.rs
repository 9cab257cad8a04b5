//! Every variant of calls and answers survives the way to another node, and no bytes make the decoder panic.

mod calls;
mod replies;
mod samples;

use std::collections::BTreeSet;

use authority::command::{Purge, Tick};
use authority::{Category, Command, Dedup, Digest, TaskError};
use coordinator::{Call, CallReply, Request};
use proptest::prelude::*;

use self::calls::{calls, commands};
use self::replies::call_replies;
use self::samples::text;
use super::{DecodeError, Wire, encode, put_field};
use crate::frame::{Downward, Upward};

/// The samples have all variants of their type.
fn assert_variants(samples: &[impl Wire], variants: u8) {
    let numbers: BTreeSet<u8> = samples.iter().map(|sample| encode(sample)[0]).collect();
    assert_eq!(numbers, (1..=variants).collect());
}

fn frames() -> Vec<(bool, Vec<u8>)> {
    let asks = calls().into_iter().map(|call| Upward::Ask { id: 1, shard: 0, epoch: 2, call }.encode());
    let answers = call_replies()
        .into_iter()
        .map(|reply| Downward::Answer { id: 1, reply, durable: authority::Position(7) }.encode());
    asks.map(|ask| (true, ask)).chain(answers.map(|answer| (false, answer))).collect()
}

#[test]
fn every_call_and_every_answer_arrives_as_it_was_sent() {
    for call in calls() {
        assert_eq!(format!("{:?}", Call::get(&encode(&call)).unwrap()), format!("{call:?}"));
    }
    for reply in call_replies() {
        assert_eq!(format!("{:?}", CallReply::get(&encode(&reply)).unwrap()), format!("{reply:?}"));
    }
}

/// A payload takes its own bytes and little more.
#[test]
fn bytes_are_sent_as_bytes() {
    let submit = Call::Ask(Request::decide(commands().remove(0)));
    assert!(encode(&submit).len() < 11_000);
}

#[test]
fn a_field_of_a_newer_node_is_skipped_and_an_optional_field_of_an_older_one_is_filled_in() {
    let mut newer = encode(&Dedup { key: text("k"), content: Digest([1; 16]) });
    put_field(200, &42_u64, &mut newer);
    assert_eq!(Dedup::get(&newer).unwrap().key, text("k"));
    let mut older = Vec::new();
    put_field(1, &Category::Timeout, &mut older);
    put_field(3, &text("message"), &mut older);
    assert_eq!(TaskError::get(&older).unwrap().code, None);
    let mut cut = Vec::new();
    put_field(1, &Category::Timeout, &mut cut);
    assert_eq!(TaskError::get(&cut), Err(DecodeError::Missing("message")));
    assert!(matches!(Call::get(&[99]), Err(DecodeError::Unknown(_))));
}

#[test]
fn commands_of_the_owner_itself_are_not_taken_from_other_nodes() {
    for command in [Command::Tick(Tick), Command::Purge(Purge { by_age: true })] {
        let call = encode(&Call::Ask(Request::decide(command)));
        assert!(matches!(Call::get(&call), Err(DecodeError::Invalid(_))));
    }
}

#[test]
fn no_frame_that_is_cut_short_makes_the_decoder_panic() {
    for (is_ask, frame) in frames() {
        for end in 0..frame.len().min(600) {
            let _ = if is_ask {
                Upward::decode(&frame[..end]).err()
            } else {
                Downward::decode(&frame[..end]).err()
            };
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = (Upward::decode(&bytes).err(), Downward::decode(&bytes).err());
    }

    #[test]
    fn no_change_of_a_frame_makes_the_decoder_panic(which: prop::sample::Index, at: prop::sample::Index, to: u8) {
        let mut frames = frames();
        let index = which.index(frames.len());
        let (is_ask, mut frame) = frames.swap_remove(index);
        let at = at.index(frame.len());
        frame[at] = to;
        let _ = if is_ask { Upward::decode(&frame).err() } else { Downward::decode(&frame).err() };
    }
}
