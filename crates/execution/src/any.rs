//! Packs messages into `google.protobuf.Any`.

use bazel_remote_apis::google::protobuf::Any;
use prost::Message;

/// `type_name` is the full name of the message's type, such as `build.bazel.remote.execution.v2.RequestMetadata`.
pub fn pack(type_name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/{type_name}"), value: message.encode_to_vec() }
}
