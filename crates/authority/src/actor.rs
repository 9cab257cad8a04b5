//! Actors: the holders of credentials who asked for a change, as its record names them.

use std::fmt;
use std::sync::Arc;

use crate::limits::MAX_ACTOR_TEXT_BYTES;
use crate::{Actor, ActorKind, Event};

impl Actor {
    /// Of texts that are too long, the beginning is kept: the issuer of a token chooses its name.
    pub fn new(kind: ActorKind, id: &str, name: &str) -> Actor {
        Actor { kind, id: bounded(id), name: bounded(name) }
    }
}

fn bounded(text: &str) -> Arc<str> {
    let mut end = text.len().min(MAX_ACTOR_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Arc::from(&text[..end])
}

/// For people, such as `the key ci (4f2a…)`.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} {} ({})", self.kind.name(), self.name, self.id)
    }
}

impl Event {
    /// Who asked for it, if that is recorded.
    pub fn by(&self) -> Option<&Arc<Actor>> {
        match self {
            Event::TaskCreated(event) => event.by.as_ref(),
            Event::TaskDead(event) => event.by.as_ref(),
            Event::CancelRequested(event) => event.by.as_ref(),
            Event::OperationDetached(event) => event.by.as_ref(),
            Event::QueueConfigured(event) => event.by.as_ref(),
            Event::TokenKeyRotated(event) => event.by.as_ref(),
            Event::KeyCreated(event) => event.by.as_ref(),
            Event::KeyRevoked(event) => event.by.as_ref(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_actor_is_named_by_its_kind_and_bounded() {
        let key = Actor::new(ActorKind::Key, "4f", "ci");
        let token = Actor::new(ActorKind::Token, "https://issuer", "ci");
        assert_eq!(key.to_string(), "the key ci (4f)");
        assert_eq!(token.to_string(), "the token ci (https://issuer)");
        let long = Actor::new(ActorKind::Token, &"i".repeat(1_000), &"\u{e9}".repeat(1_000));
        assert_eq!((long.id.len(), long.name.len()), (MAX_ACTOR_TEXT_BYTES, MAX_ACTOR_TEXT_BYTES));
    }
}
