//! Handing answers to those who wait for them.

use tokio::sync::oneshot;

use super::Driver;
use crate::engine::ReplyTo;
use crate::request::Reply;

impl ReplyTo for oneshot::Sender<Reply> {
    fn is_closed(&self) -> bool {
        oneshot::Sender::is_closed(self)
    }
}

impl Driver {
    /// Sends the answers that rest on durable records.
    pub(super) fn deliver(&mut self) {
        self.outbox.extend(self.engine.take_answers());
        // Not the clock's time: a record of ours must not overtake requests that were received before it.
        let now = self.horizon();
        for (reply_to, reply) in self.outbox.drain(..) {
            self.metrics.answered(&reply);
            if let Err(reply) = reply_to.send(reply) {
                self.engine.undelivered(&reply, now);
            }
        }
    }
}
