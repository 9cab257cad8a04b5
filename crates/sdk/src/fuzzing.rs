//! The decoders of what workers and push targets get, for the fuzz targets. Nothing else may use them.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use hyper::header::HeaderValue;
use wire::{Lease, Leases, TaskEnvelope};

use crate::assignment::Assignment;
use crate::backoff::Backoff;
use crate::callback_contract::CallbackContract;
use crate::clock;
use crate::contract::{Contract, LeaseAnswer};
use crate::lease_clock::LeaseClock;
use crate::lease_contract::LeaseContract;
use crate::transport::{Address, Answer, Transport, parse_retry_after};
use crate::{Outcome, signature};

const NOW_S: u64 = 1_700_000_000;
/// Heartbeats that are closer together are a load and no use.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);
const SECRET: &[u8] = b"0123456789abcdef";
const BODY: &[u8] = b"{}";

static TRANSPORT: LazyLock<Option<Transport>> = LazyLock::new(|| {
    let url = Some("http://127.0.0.1:1".to_owned());
    Transport::new(&Address { url, ..Address::default() }).ok()
});

/// Parses an answer in both contracts. Only a success commits a report or extends a lease, and only a refusal cancels.
pub fn answer(status: u16, body: &[u8]) {
    let Some(transport) = TRANSPORT.clone() else { return };
    let answer = Answer::new(status, body.to_vec());
    let (worker_id, text) = (Arc::from("w"), || "x".to_owned());
    let lease = LeaseContract { transport: transport.clone(), worker_id, lease_id: text(), task_id: text() };
    let Ok(envelope) = serde_json::from_str::<TaskEnvelope>(ENVELOPE) else {
        panic!("the envelope is sound")
    };
    let callback = CallbackContract::new(transport, Arc::from("w"), &envelope);
    for contract in [&lease as &dyn Contract, &callback] {
        let is_success = answer.is_success();
        match contract.parse_heartbeat_answer(&answer) {
            LeaseAnswer::Live { .. } => assert!(is_success, "{status} extends a lease"),
            LeaseAnswer::Over(why) => assert!(!is_success && !why.is_empty(), "{status} ends a lease"),
            LeaseAnswer::Foreign(_) => {}
        }
        for outcome in [contract.parse_verdict(&answer), contract.parse_release_answer(&answer)] {
            match outcome {
                Outcome::Committed(_) | Outcome::Released(_) => assert!(is_success, "{status} commits"),
                Outcome::Cancelled | Outcome::Rejected(_) => assert!(!is_success, "{status} refuses"),
                Outcome::Lost | Outcome::Unknown(_) => {}
            }
        }
        if contract.parse_start_answer(&answer).is_ok() {
            assert!(is_success || std::ptr::addr_eq(contract, &lease), "{status} lets an attempt begin");
        }
        // What the answer said is sent with the next call.
        let _ = contract.heartbeat(None);
    }
}

/// Takes leases as they came from the server. Each has a length that is not negative, and heartbeats have a distance.
pub fn leases(json: &[u8]) {
    let Ok(Leases { leases }) = serde_json::from_slice(json) else { return };
    for lease in leases {
        take_lease(lease);
    }
}

fn take_lease(lease: Lease) {
    let now = clock::now();
    let mut clock = LeaseClock::polled(&lease, now, now);
    assert!(clock.valid_until() >= now && clock.latest_end() >= now, "a lease ends in the past: {clock:?}");
    clock.extend(now, Some(lease.expires_at));
    clock.limit_to_grace(Duration::from_millis(lease.heartbeat_interval_ms));
    let _ = clock.needs_confirmation();
    let assignment = Assignment::from(lease);
    assert!(
        assignment.heartbeat_interval >= MIN_INTERVAL,
        "heartbeats every {:?}",
        assignment.heartbeat_interval
    );
}

/// Takes the envelope of a pushed task.
pub fn envelope(json: &[u8]) {
    let Ok(envelope) = serde_json::from_slice::<TaskEnvelope>(json) else { return };
    let timeout = Duration::from_millis(envelope.heartbeat_timeout_ms);
    let now = clock::now();
    let mut clock = LeaseClock::pushed(timeout, timeout, now);
    clock.begin(now);
    clock.extend(now, None);
    clock.limit_to_grace(Duration::from_millis(envelope.cancel_grace_period_ms));
    assert!(clock.valid_until() >= now);
    let _ = TRANSPORT.as_ref().map(|transport| transport.to(&envelope.callback_base_url));
    let assignment = Assignment::from(envelope);
    assert!(
        assignment.heartbeat_interval >= MIN_INTERVAL,
        "heartbeats every {:?}",
        assignment.heartbeat_interval
    );
}

/// Verifies the signature of a dispatch. Only the one that was made with the secret is good.
pub fn signature(header: &[u8]) {
    if signature::verify_at(NOW_S, &[SECRET.to_vec()], header, BODY).is_ok() {
        assert_eq!(header, SIGNATURE.as_bytes(), "nobody else can sign");
    }
}

/// HMAC-SHA256("0123456789abcdef", "1700000000.{}").
pub const SIGNATURE: &str =
    "t=1700000000,v1=e4f8e2ecae2295b2ddb2f0b5584c8275e226c0ebe9b3b819e70156bb67122e3e";

/// Reads how long a server asks to wait. The wait is bounded, whatever it says.
pub fn retry_after(value: &[u8]) {
    let asked = HeaderValue::from_bytes(value).ok().and_then(|value| parse_retry_after(&value));
    let delay = Backoff::limited().next_delay(asked);
    assert!(delay.is_some_and(|delay| delay <= MAX_RETRY_AFTER), "a wait of {delay:?}");
}

/// An envelope as the server sends it.
pub const ENVELOPE: &str = r#"{"dispatchId":"d1","taskId":"018f0000-0000-7000-8000-000000000001","tenantId":"default","workspaceId":"default","attempt":1,"enqueuedAt":"2026-01-31T12:00:00Z","tokenExpiresAt":"2026-01-31T13:00:00Z","payload":{"to":"ada"},"taskToken":"t","callbackBaseUrl":"http://127.0.0.1:8980","heartbeatIntervalMs":10000,"heartbeatTimeoutMs":30000,"cancelGracePeriodMs":5000,"fencingToken":7,"queue":"mail","runId":"run_1","taskKey":"mail","resources":{}}"#;
