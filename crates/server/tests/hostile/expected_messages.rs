//! The answers of each contract to a hostile worker.

use crate::held::Contract;

/// What an answer comes down to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Accepted, now or earlier.
    Committed,
    /// The attempt has no authority any more.
    Lost,
    /// A heartbeat of an attempt that is over, while another one is under way.
    BeatOfOld,
    /// A heartbeat of the attempt that ended the task.
    BeatOfEnded,
    /// The lease or the token is not one that this server gave to this caller.
    Foreign,
    /// The same, for a heartbeat.
    ForeignBeat,
    /// Another worker than the one that has the attempt.
    OtherWorker,
    /// A lease of one task, and the name of another.
    OtherTask,
    /// The lease of one attempt, and the name of another.
    OtherAttempt,
    /// The attempt already told something else.
    ConflictingReport,
    /// A server that never had the task.
    Unknown,
}

/// native, claim, callback, gRPC, gRPC stream.
const WORDS: [(Kind, [&str; 5]); 11] = [
    (Kind::Committed, ["COMMITTED", "COMMITTED", "COMMITTED", "COMMITTED", "COMMITTED"]),
    (
        Kind::Lost,
        [
            "CANCELLED 409 lease_lost",
            "CANCELLED 409 lease_lost, acknowledged",
            "409 attempt_mismatch",
            "CANCELLED",
            "CANCELLED",
        ],
    ),
    (
        Kind::BeatOfOld,
        ["410 lease_gone", "CANCELLED 409 lease_lost, acknowledged", "409 attempt_mismatch", "lost", "lost"],
    ),
    (
        Kind::BeatOfEnded,
        ["410 lease_gone", "CANCELLED 409 lease_lost, acknowledged", "410 task_expired", "lost", "lost"],
    ),
    (
        Kind::Foreign,
        [
            "REJECTED 403 bad_lease_id",
            "REJECTED 403 bad_lease_id",
            "401 invalid_token",
            "REJECTED PermissionDenied bad_lease_id",
            "REJECTED bad_lease_id",
        ],
    ),
    (
        Kind::ForeignBeat,
        [
            "403 bad_lease_id",
            "403 bad_lease_id",
            "401 invalid_token",
            "lost bad_lease_id",
            "lost bad_lease_id",
        ],
    ),
    (
        Kind::OtherWorker,
        [
            "REJECTED 403 bad_lease_id",
            "REJECTED 403 bad_lease_id",
            "409 attempt_already_started",
            "REJECTED PermissionDenied bad_lease_id",
            "REJECTED bad_lease_id",
        ],
    ),
    (
        Kind::OtherTask,
        [
            "REJECTED 403 wrong_task",
            "REJECTED 403 wrong_task",
            "401 invalid_token",
            "REJECTED PermissionDenied wrong_task",
            "REJECTED wrong_task",
        ],
    ),
    // In the native contract nothing but the lease names an attempt, so the lease of an old one is a lost one.
    (
        Kind::OtherAttempt,
        [
            "CANCELLED 409 lease_lost",
            "REJECTED 403 wrong_attempt",
            "409 attempt_mismatch",
            "REJECTED PermissionDenied wrong_task",
            "REJECTED wrong_task",
        ],
    ),
    (
        Kind::ConflictingReport,
        [
            "REJECTED 409 conflicting_report",
            "REJECTED 409 conflicting_report",
            "409 attempt_already_completed",
            "REJECTED FailedPrecondition conflicting_report",
            "REJECTED conflicting_report",
        ],
    ),
    (
        Kind::Unknown,
        [
            "REJECTED 404 unknown_task",
            "REJECTED 404 unknown_task",
            "404 task_not_found",
            "REJECTED NotFound unknown_task",
            "REJECTED unknown_task",
        ],
    ),
];

pub(crate) fn expected_message(kind: Kind, contract: Contract) -> &'static str {
    let (_, words) = WORDS.iter().find(|(of, _)| *of == kind).expect("every kind has its words");
    words[contract as usize]
}
