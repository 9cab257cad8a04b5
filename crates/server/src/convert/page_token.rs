//! Page tokens: opaque, signed, and valid only for the list that they came from.

use std::sync::Arc;

use authority::limits::MAX_NAME_BYTES;
use authority::{Position, Scope, TaskState};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::convert::lease_id::{mac, same};

const MAC_BYTES: usize = 16;
const POSITION_BYTES: usize = 8;
/// Longest token that is read at all.
const MAX_TOKEN_CHARS: usize = (MAC_BYTES + POSITION_BYTES + MAX_NAME_BYTES) * 4 / 3 + 4;

#[derive(Clone)]
pub(crate) struct PageTokens {
    key: [u8; 32],
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct List<'a> {
    pub scope: &'a Scope,
    pub queue: Option<&'a str>,
    pub state: Option<TaskState>,
}

impl PageTokens {
    pub(crate) fn new(secret: &[u8; 32]) -> PageTokens {
        PageTokens { key: blake3::derive_key("lessor 2026 page token", secret) }
    }

    pub(crate) fn make(&self, list: List<'_>, after: &(Arc<str>, Position)) -> String {
        let (queue, position) = after;
        let mut place = position.0.to_be_bytes().to_vec();
        place.extend_from_slice(queue.as_bytes());
        let mut token = self.mac(list, &place).to_vec();
        token.extend_from_slice(&place);
        URL_SAFE_NO_PAD.encode(token)
    }

    /// Where the page begins, if the token was made for this list.
    pub(crate) fn verify(&self, list: List<'_>, token: &str) -> Option<(Arc<str>, Position)> {
        if token.len() > MAX_TOKEN_CHARS {
            return None;
        }
        let token = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (mac, place) = token.split_at_checked(MAC_BYTES)?;
        if !same(&self.mac(list, place), mac) {
            return None;
        }
        let (position, queue) = place.split_first_chunk::<POSITION_BYTES>()?;
        Some((std::str::from_utf8(queue).ok()?.into(), Position(u64::from_be_bytes(*position))))
    }

    fn mac(&self, list: List<'_>, place: &[u8]) -> [u8; MAC_BYTES] {
        let filters = [u8::from(list.queue.is_some()), list.state.map_or(0, |state| 1 + state as u8)];
        let parts = [
            list.scope.tenant.as_bytes(),
            list.scope.workspace.as_bytes(),
            &filters,
            list.queue.unwrap_or("").as_bytes(),
            place,
        ];
        mac(&self.key, parts)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tokens() -> PageTokens {
        PageTokens::new(&[7; 32])
    }

    fn scope() -> Scope {
        Scope { tenant: "acme".into(), workspace: "main".into() }
    }

    #[test]
    fn a_token_leads_back_to_its_place() {
        let scope = scope();
        let list = List { scope: &scope, queue: Some("q"), state: Some(TaskState::Dead) };
        let after: (Arc<str>, Position) = ("q".into(), Position(99));
        assert_eq!(tokens().verify(list, &tokens().make(list, &after)), Some(after));
    }

    #[test]
    fn the_longest_queue_name_still_fits() {
        let scope = scope();
        let list = List { scope: &scope, queue: None, state: None };
        let after: (Arc<str>, Position) = ("q".repeat(MAX_NAME_BYTES).into(), Position(u64::MAX));
        assert_eq!(tokens().verify(list, &tokens().make(list, &after)), Some(after));
    }

    #[test]
    fn a10_a_token_of_another_list_or_scope_is_refused() {
        let (scope, other) = (scope(), Scope { tenant: "evil".into(), workspace: "main".into() });
        let list = List { scope: &scope, queue: Some("q"), state: None };
        let token = tokens().make(list, &("q".into(), Position(99)));
        for list in [
            List { scope: &other, ..list },
            List { queue: None, ..list },
            List { queue: Some("p"), ..list },
            List { state: Some(TaskState::Waiting), ..list },
        ] {
            assert_eq!(tokens().verify(list, &token), None, "{list:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_or_verify(token in ".{0,900}") {
            let scope = scope();
            prop_assert_eq!(tokens().verify(List { scope: &scope, queue: None, state: None }, &token), None);
        }
    }
}
