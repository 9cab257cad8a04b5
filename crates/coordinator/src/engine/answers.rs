//! Answers that wait for the disk, in the order in which they were decided.

use std::collections::VecDeque;

use authority::Position;

use crate::request::Reply;
use crate::rules;

/// Where an answer goes.
pub trait ReplyTo {
    /// Whether the caller has stopped waiting.
    fn is_closed(&self) -> bool;
}

/// Where other nodes may write too, an answer is true only if nobody else had written when its request came. So it also
/// waits for an append or a confirmation that was begun after that.
pub(super) struct Answers<T> {
    durable: Position,
    needs_confirmation: bool,
    /// How many appends and confirmations were begun, and how many of them have returned. At most one is under way.
    begun: u64,
    returned: u64,
    /// Positions and rounds never fall from front to back.
    queue: VecDeque<Waiting<T>>,
    /// Refusals, which rest on no record.
    free: Vec<(T, Reply)>,
}

struct Waiting<T> {
    rests_on: Position,
    /// The append or confirmation that must have returned, counted from 1; 0 where none must.
    round: u64,
    reply_to: T,
    reply: Reply,
}

impl<T> Answers<T> {
    pub(super) fn new(durable: Position) -> Answers<T> {
        Answers {
            durable,
            needs_confirmation: false,
            begun: 0,
            returned: 0,
            queue: VecDeque::new(),
            free: Vec::new(),
        }
    }

    /// From now on answers wait for a confirmation.
    pub(super) fn need_confirmation(&mut self) {
        self.needs_confirmation = true;
    }

    /// An append or a confirmation begins.
    pub(super) fn begin_round(&mut self) {
        self.begun += 1;
    }

    /// The append or confirmation that was begun last has returned.
    pub(super) fn round_returned(&mut self) {
        self.returned = self.begun;
    }

    /// Whether an answer waits for an append or confirmation that was not begun yet.
    pub(super) fn wants_round(&self) -> bool {
        self.queue.back().is_some_and(|waiting| waiting.round > self.begun)
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Holds an answer until everything up to `rests_on` is durable. A refusal for lack of space is true whatever becomes
    /// of the records, and need not wait for a disk that may be the reason for it.
    pub(super) fn push(&mut self, rests_on: Position, reply_to: T, reply: Reply) {
        if reply.is_refusal() {
            self.free.push((reply_to, reply))
        } else {
            let round = rules::round_to_wait_for(self.needs_confirmation, self.begun);
            self.queue.push_back(Waiting { rests_on, round, reply_to, reply })
        }
    }

    pub(super) fn durable_up_to(&self) -> Position {
        self.durable
    }

    pub(super) fn durable(&mut self, position: Position) {
        assert!(position >= self.durable, "what was durable stays durable");
        self.durable = position;
    }

    pub(super) fn take(&mut self) -> impl Iterator<Item = (T, Reply)> {
        let is_settled =
            |waiting: &Waiting<T>| waiting.rests_on <= self.durable && waiting.round <= self.returned;
        let settled = self.queue.partition_point(is_settled);
        let settled = self.queue.drain(..settled).map(|waiting| (waiting.reply_to, waiting.reply));
        self.free.drain(..).chain(settled)
    }

    /// Those whose records may or may not have reached the disk.
    pub(super) fn take_unsettled(&mut self) -> impl Iterator<Item = T> {
        self.queue.drain(..).map(|waiting| waiting.reply_to)
    }
}
