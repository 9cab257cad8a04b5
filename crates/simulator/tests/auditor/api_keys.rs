//! Changed records of API keys, which the auditor must find.

use std::sync::Arc;

use authority::{ApiKey, Event, Role};

use super::{change_record, must_be_found};

#[test]
fn an_api_key_with_a_role_that_nobody_asked_for_is_found() {
    must_be_found(|history| {
        change_record(history, |recorded| match &mut recorded.event {
            Event::KeyCreated(event) => {
                event.key = Arc::new(ApiKey { roles: vec![Role::Admin], ..(*event.key).clone() });
                true
            }
            _ => false,
        })
    });
}

#[test]
fn the_end_of_an_api_key_that_nobody_asked_for_is_found() {
    must_be_found(|history| {
        change_record(history, |recorded| match &mut recorded.event {
            Event::KeyRevoked(event) => {
                event.revoked_by = "nobody".into();
                true
            }
            _ => false,
        })
    });
}
