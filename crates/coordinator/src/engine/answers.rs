//! Answers that wait for the disk, in the order in which they were decided.

use std::collections::VecDeque;

use authority::Position;

use crate::request::Reply;

/// Where an answer goes.
pub trait ReplyTo {
    /// Whether the caller has stopped waiting.
    fn is_closed(&self) -> bool;
}

pub(super) struct Answers<T> {
    durable: Position,
    /// Positions never fall from front to back.
    queue: VecDeque<(Position, T, Reply)>,
    /// Refusals, which rest on no record.
    free: Vec<(T, Reply)>,
}

impl<T> Answers<T> {
    pub(super) fn new(durable: Position) -> Answers<T> {
        Answers { durable, queue: VecDeque::new(), free: Vec::new() }
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
            self.queue.push_back((rests_on, reply_to, reply))
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
        let settled = self.queue.partition_point(|(position, _, _)| *position <= self.durable);
        let settled = self.queue.drain(..settled).map(|(_, reply_to, reply)| (reply_to, reply));
        self.free.drain(..).chain(settled)
    }

    /// Those whose records may or may not have reached the disk.
    pub(super) fn take_unsettled(&mut self) -> impl Iterator<Item = T> {
        self.queue.drain(..).map(|(_, reply_to, _)| reply_to)
    }
}
