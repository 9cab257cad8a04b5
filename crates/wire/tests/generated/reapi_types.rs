//! `reapi_requests.proto` and `remote_execution.proto` describe the types of the crate `bazel-remote-apis`, which ships no
//! .proto files and no descriptors.
//!
//! Every request is built with every field set, and encoded; the encoded fields are those of the descriptor. The structs
//! are written out without `..Default::default()`: a field that a newer version of the crate adds does not compile here
//! until it is set, and then it is missing in the descriptor.

use std::collections::{BTreeMap, BTreeSet};

use bazel_remote_apis::build::bazel::remote::execution::v2 as reapi;
use bazel_remote_apis::google::protobuf::{Any, Duration, Timestamp, UInt32Value};
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};
use prost_types::FieldDescriptorProto;
use prost_types::field_descriptor_proto::{Label, Type};

use crate::request_limits::Descriptors;

const TEXT: &str = "text";
/// No message begins like this, so bytes are never taken for one.
const BYTES: [u8; 2] = [0xff, 0xff];

fn text() -> String {
    TEXT.to_owned()
}

fn twice<T: Clone>(value: T) -> Vec<T> {
    vec![value.clone(), value]
}

fn digest() -> reapi::Digest {
    reapi::Digest { hash: text(), size_bytes: 1 }
}

fn timestamp() -> Option<Timestamp> {
    Some(Timestamp { seconds: 1, nanos: 1 })
}

fn node_properties() -> Option<reapi::NodeProperties> {
    Some(reapi::NodeProperties {
        properties: twice(reapi::NodeProperty { name: text(), value: text() }),
        mtime: timestamp(),
        unix_mode: Some(UInt32Value { value: 1 }),
    })
}

fn symlink() -> reapi::OutputSymlink {
    reapi::OutputSymlink { path: text(), target: text(), node_properties: node_properties() }
}

#[allow(deprecated)]
fn action_result() -> reapi::ActionResult {
    let file = reapi::OutputFile {
        path: text(),
        digest: Some(digest()),
        is_executable: true,
        contents: BYTES.to_vec(),
        node_properties: node_properties(),
    };
    let directory = reapi::OutputDirectory {
        path: text(),
        tree_digest: Some(digest()),
        is_topologically_sorted: true,
        root_directory_digest: Some(digest()),
    };
    let metadata = reapi::ExecutedActionMetadata {
        worker: text(),
        queued_timestamp: timestamp(),
        worker_start_timestamp: timestamp(),
        worker_completed_timestamp: timestamp(),
        input_fetch_start_timestamp: timestamp(),
        input_fetch_completed_timestamp: timestamp(),
        execution_start_timestamp: timestamp(),
        execution_completed_timestamp: timestamp(),
        virtual_execution_duration: Some(Duration { seconds: 1, nanos: 1 }),
        output_upload_start_timestamp: timestamp(),
        output_upload_completed_timestamp: timestamp(),
        auxiliary_metadata: twice(Any { type_url: text(), value: BYTES.to_vec() }),
    };
    reapi::ActionResult {
        output_files: twice(file),
        output_file_symlinks: twice(symlink()),
        output_symlinks: twice(symlink()),
        output_directories: twice(directory),
        output_directory_symlinks: twice(symlink()),
        exit_code: 1,
        stdout_raw: BYTES.to_vec(),
        stdout_digest: Some(digest()),
        stderr_raw: BYTES.to_vec(),
        stderr_digest: Some(digest()),
        execution_metadata: Some(metadata),
    }
}

/// Every request that is served, with every field set.
fn requests() -> BTreeMap<&'static str, Vec<u8>> {
    let blob = reapi::batch_update_blobs_request::Request {
        digest: Some(digest()),
        data: BYTES.to_vec(),
        compressor: 1,
    };
    let results_cache_policy = Some(reapi::ResultsCachePolicy { priority: 1 });
    BTreeMap::from([
        ("GetCapabilitiesRequest", reapi::GetCapabilitiesRequest { instance_name: text() }.encode_to_vec()),
        (
            "FindMissingBlobsRequest",
            reapi::FindMissingBlobsRequest {
                instance_name: text(),
                blob_digests: twice(digest()),
                digest_function: 1,
            }
            .encode_to_vec(),
        ),
        (
            "BatchUpdateBlobsRequest",
            reapi::BatchUpdateBlobsRequest {
                instance_name: text(),
                requests: twice(blob),
                digest_function: 1,
            }
            .encode_to_vec(),
        ),
        (
            "BatchReadBlobsRequest",
            reapi::BatchReadBlobsRequest {
                instance_name: text(),
                digests: twice(digest()),
                acceptable_compressors: twice(1),
                digest_function: 1,
            }
            .encode_to_vec(),
        ),
        (
            "GetTreeRequest",
            reapi::GetTreeRequest {
                instance_name: text(),
                root_digest: Some(digest()),
                page_size: 1,
                page_token: text(),
                digest_function: 1,
            }
            .encode_to_vec(),
        ),
        (
            "GetActionResultRequest",
            reapi::GetActionResultRequest {
                instance_name: text(),
                action_digest: Some(digest()),
                inline_stdout: true,
                inline_stderr: true,
                inline_output_files: twice(text()),
                digest_function: 1,
            }
            .encode_to_vec(),
        ),
        (
            "UpdateActionResultRequest",
            reapi::UpdateActionResultRequest {
                instance_name: text(),
                action_digest: Some(digest()),
                action_result: Some(action_result()),
                results_cache_policy,
                digest_function: 1,
            }
            .encode_to_vec(),
        ),
        (
            "ExecuteRequest",
            reapi::ExecuteRequest {
                instance_name: text(),
                skip_cache_lookup: true,
                action_digest: Some(digest()),
                execution_policy: Some(reapi::ExecutionPolicy { priority: 1 }),
                results_cache_policy,
                digest_function: 1,
                inline_stdout: true,
                inline_stderr: true,
                inline_output_files: twice(text()),
            }
            .encode_to_vec(),
        ),
        ("WaitExecutionRequest", reapi::WaitExecutionRequest { name: text() }.encode_to_vec()),
    ])
}

/// The fields of a message by their numbers, each with its contents.
type Fields<'a> = BTreeMap<i32, (WireType, Vec<&'a [u8]>)>;

fn fields(mut message: &[u8]) -> Option<Fields<'_>> {
    let mut fields = BTreeMap::new();
    while !message.is_empty() {
        let (number, wire_type) = decode_key(&mut message).ok()?;
        let content = match wire_type {
            WireType::Varint => {
                decode_varint(&mut message).ok()?;
                &message[..0]
            }
            WireType::LengthDelimited => {
                let length = decode_varint(&mut message).ok()?;
                message.split_off(..length as usize)?
            }
            _ => return None,
        };
        let (_, contents) = fields.entry(number as i32).or_insert((wire_type, Vec::new()));
        contents.push(content);
    }
    Some(fields)
}

/// Compares an encoded message, in which every field is set, with its descriptor.
fn compare(descriptors: &Descriptors, type_name: &str, message: &[u8]) -> Result<(), String> {
    let fields = fields(message).ok_or_else(|| format!("{type_name}: the crate has no message there"))?;
    let described = &descriptors.messages[type_name].field;
    let numbers: BTreeSet<i32> = described.iter().map(FieldDescriptorProto::number).collect();
    let encoded: BTreeSet<i32> = fields.keys().copied().collect();
    if numbers != encoded {
        return Err(format!(
            "{type_name}: the crate has the fields {encoded:?}, the .proto file {numbers:?}"
        ));
    }
    for field in described {
        let (wire_type, contents) = &fields[&field.number()];
        let is_repeated = field.label() == Label::Repeated;
        let wrong = || Err(format!("{type_name}.{} is another field in the crate", field.name()));
        let (expected, count) = match (field.r#type(), is_repeated) {
            (Type::String | Type::Bytes | Type::Message, true) => (WireType::LengthDelimited, 2),
            (Type::String | Type::Bytes | Type::Message, false) => (WireType::LengthDelimited, 1),
            // Numbers are packed into one.
            (_, true) => (WireType::LengthDelimited, 1),
            (_, false) => (WireType::Varint, 1),
        };
        if *wire_type != expected || contents.len() != count {
            return wrong();
        }
        for content in contents {
            match field.r#type() {
                Type::String if *content != TEXT.as_bytes() => return wrong(),
                Type::Bytes if *content != BYTES => return wrong(),
                Type::Message => compare(descriptors, field.type_name(), content)?,
                _ => {}
            }
        }
    }
    Ok(())
}

#[test]
fn a6_the_described_requests_of_remote_execution_are_those_of_the_crate() {
    let (descriptors, requests) = (Descriptors::load(), requests());
    let package = ".build.bazel.remote.execution.v2.";
    let described: BTreeSet<&str> =
        descriptors.inputs.iter().filter_map(|input| input.strip_prefix(package)).collect();
    assert_eq!(described, requests.keys().copied().collect());
    for (name, message) in requests {
        compare(&descriptors, &format!("{package}{name}"), &message).unwrap();
    }
}

#[test]
fn a_field_that_is_missing_or_of_another_type_is_found() {
    let request = &requests()["FindMissingBlobsRequest"];
    let name = ".build.bazel.remote.execution.v2.FindMissingBlobsRequest";
    let changed = |change: fn(&mut Vec<FieldDescriptorProto>)| {
        let mut descriptors = Descriptors::load();
        change(&mut descriptors.messages.get_mut(name).unwrap().field);
        compare(&descriptors, name, request)
    };
    assert_eq!(changed(|_| {}), Ok(()));
    assert!(changed(|fields| drop(fields.remove(1))).unwrap_err().contains("has the fields {1, 2, 3}"));
    assert!(changed(|fields| fields[1].set_label(Label::Optional)).unwrap_err().contains("blob_digests"));
    assert!(changed(|fields| fields[1].set_type(Type::Bytes)).unwrap_err().contains("blob_digests"));
    assert!(changed(|fields| fields[0].set_type(Type::Bytes)).unwrap_err().contains("instance_name"));
    assert!(changed(|fields| fields[2].set_label(Label::Repeated)).unwrap_err().contains("digest_function"));
}
