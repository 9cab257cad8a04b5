//! The protocol's messages under short names, and conversions into them.

pub(super) use bazel_remote_apis::build::bazel::remote::execution::v2::*;
pub(super) use bazel_remote_apis::google::longrunning;
pub(super) use bazel_remote_apis::google::protobuf::{Any, Empty, Timestamp};
pub(super) use bazel_remote_apis::google::rpc;
pub(super) use wire::bytestream;

use prost::Message;

/// A status as part of a message, with its details.
pub(super) fn status(status: &tonic::Status) -> rpc::Status {
    match rpc::Status::decode(status.details()) {
        Ok(detailed) if detailed.code != 0 => detailed,
        _ => rpc::Status {
            code: status.code() as i32,
            message: status.message().to_owned(),
            ..rpc::Status::default()
        },
    }
}

pub(super) fn timestamp(time: authority::Time) -> Timestamp {
    Timestamp {
        seconds: i64::try_from(time.0 / 1_000).unwrap_or(i64::MAX),
        nanos: (time.0 % 1_000) as i32 * 1_000_000,
    }
}
