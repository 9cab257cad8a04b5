//! Judges API keys: their records, the answers to their creation and revocation, and the list of those that live.

use std::collections::BTreeMap;
use std::sync::Arc;

use authority::command::{CreateKey, CreateKeyAnswer, EXPIRED, RevokeKey, RevokeKeyAnswer};
use authority::event::{KeyCreated, KeyRevoked};
use authority::{ApiKey, Command, Position, StoredKey};

use super::{Asked, Auditor, ensure};

/// The keys that ever lived, by id, each with the record that created it and, if it is over, the record that revoked it. An
/// id that is used again replaces the earlier key.
#[derive(Default)]
pub(super) struct KeyModels(BTreeMap<Arc<str>, KeyModel>);

struct KeyModel {
    key: Arc<ApiKey>,
    since: Position,
    revoked: Option<Position>,
}

impl KeyModels {
    fn live(&self) -> impl Iterator<Item = &KeyModel> {
        self.0.values().filter(|model| model.revoked.is_none())
    }
}

impl Auditor {
    pub(super) fn key_created(&mut self, event: &KeyCreated, position: Position) -> Result<(), String> {
        let key = &event.key;
        let asked = Command::CreateKey(CreateKey { key: key.clone(), by: event.by.clone() });
        ensure(self.causes.others.contains(&asked), "nobody asked for this key")?;
        ensure(self.keys.live().all(|live| live.key.id != key.id), "the key lives already")?;
        ensure(self.keys.live().all(|live| live.key.name != key.name), "another key has this name")?;
        self.keys.0.insert(key.id.clone(), KeyModel { key: key.clone(), since: position, revoked: None });
        Ok(())
    }

    pub(super) fn key_revoked(&mut self, event: &KeyRevoked, position: Position) -> Result<(), String> {
        let KeyRevoked { key_id, revoked_by, by } = event.clone();
        let is_expired = *revoked_by == *EXPIRED;
        let asked = Command::RevokeKey(RevokeKey { key_id, revoked_by, by });
        let is_asked = self.causes.others.contains(&asked);
        let model = self.keys.0.get_mut(&event.key_id).filter(|model| model.revoked.is_none());
        let model = model.ok_or("the key does not live")?;
        // A key that has expired makes way for another one.
        let may_make_way = is_expired && model.key.expires_at.is_some();
        ensure(is_asked || may_make_way, "nobody asked for the end of this key")?;
        model.revoked = Some(position);
        Ok(())
    }

    pub(super) fn answered_create_key(
        &self,
        create: &CreateKey,
        answer: &CreateKeyAnswer,
    ) -> Result<(), String> {
        let mut known = self.keys.0.values();
        match answer {
            CreateKeyAnswer::Created => {
                ensure(known.any(|model| model.key == create.key), "no durable record creates it")
            }
            CreateKeyAnswer::NameTaken => {
                let is_taken = |model: &KeyModel| model.key.name == create.key.name;
                ensure(known.any(is_taken), "no durable record gives this name to a key")
            }
            CreateKeyAnswer::TooMany => Err("so many never lived".into()),
            CreateKeyAnswer::Invalid(_) => Ok(()),
        }
    }

    pub(super) fn answered_revoke_key(
        &self,
        asked: &Asked,
        revoke: &RevokeKey,
        answer: RevokeKeyAnswer,
    ) -> Result<(), String> {
        let model = self.keys.0.get(&revoke.key_id);
        match answer {
            RevokeKeyAnswer::Revoked => {
                let ended =
                    model.is_some_and(|model| model.revoked.is_some() || model.since > asked.asked_at);
                ensure(ended, "no durable record revokes it")
            }
            RevokeKeyAnswer::Unknown => {
                let lives =
                    model.is_some_and(|model| model.revoked.is_none() && model.since <= asked.asked_at);
                ensure(!lives, "the key lives")
            }
        }
    }

    /// Each was created by a durable record and not revoked when it was asked, and none is left out that lived all the time.
    pub(super) fn check_keys(&self, asked: &Asked, keys: &[StoredKey]) -> Result<(), String> {
        for stored in keys {
            let model = self.keys.0.get(&stored.key.id).ok_or("no durable record creates it")?;
            if model.since == stored.since {
                ensure(model.key == stored.key, "it was created otherwise")?;
                ensure(model.revoked.is_none_or(|at| at > asked.asked_at), "it was revoked before")?;
            }
        }
        let is_listed = |model: &KeyModel| keys.iter().any(|stored| stored.key.id == model.key.id);
        let mut throughout = self.keys.live().filter(|model| model.since <= asked.asked_at);
        ensure(throughout.all(is_listed), "a key is left out that lived all the time")
    }
}
