//! The settings of a queue, with its push target.

use authority::QueueKey;
use wire::HIDDEN;

use crate::convert::push_secrets::PushSecrets;
use crate::convert::push_target;
use crate::edge::address_guard::Guard;
use crate::edge::json::parse;
use crate::queues::put;

use super::{SECRET, scope};

/// Parses the settings of a queue. A target that is accepted can be encrypted, opened and shown without its secrets.
pub fn queue_config(body: &[u8]) {
    let Ok(config) = parse::<wire::QueueConfig>(body) else { return };
    let _ = put::parse(&config);
    let Some(asked) = &config.push else { return };
    let Ok(target) = push_target::parse(asked, None, Guard::new(false)) else { return };
    if target.check().is_err() {
        return;
    }
    let (secrets, queue) = (PushSecrets::new(&SECRET), QueueKey { scope: scope(), name: "mail".into() });
    let Ok(sealed) = secrets.seal_target(&queue, &target) else { panic!("a target cannot be encrypted") };
    assert_eq!(sealed.check_sealed(), Ok(()), "an encrypted target fits into the ledger");
    assert_eq!(secrets.open_target(&queue, &sealed).as_ref(), Ok(&target));
    let shown = push_target::to_wire(&target);
    assert!(shown.headers.values().chain(&shown.secret).all(|value| value == HIDDEN), "secrets are hidden");
    let again = push_target::parse(&shown, Some(&target), Guard::new(false));
    assert_eq!(again.ok().as_ref(), Some(&target), "what is shown can be put again");
}
