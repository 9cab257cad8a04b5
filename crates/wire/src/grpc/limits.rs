//! Limits of what a request may decode to. An empty element takes two bytes of a message and up to a kilobyte of memory, so
//! elements are counted before a message is decoded.
//!
//! The table below has every repeated field of every request; a test compares it with the descriptors.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::LazyLock;

use bazel_remote_apis::build::bazel::remote::execution::v2 as reapi;
use bazel_remote_apis::google::protobuf::Any;
use prost::encoding::{WireType, decode_key, decode_varint};
use tonic::Status;

use super::generated as worker;

/// Most tasks, reports or leases in one message. The calls that take them refuse fewer, with a better answer.
pub const MAX_ITEMS: usize = 4_096;
/// Most digests, blobs, files or names in one message: about as many digests as fit into the largest message.
pub const MAX_ELEMENTS: usize = 65_536;
/// Most properties over all parts of one message.
pub const MAX_ENTRIES: usize = 65_536;
/// A message may decode to so many times its bytes, and so many bytes more.
pub const MAX_EXPANSION: usize = 12;
pub const MAX_EXTRA_BYTES: usize = 48 * 1_024 * 1_024;
/// A list may have room for twice its elements while it grows.
const GROWTH: usize = 2;

/// The fields of a message that are repeated, or that contain repeated fields.
type Fields = &'static [Field];

struct Field {
    number: u32,
    name: &'static str,
    kind: Kind,
    /// The fields of the message, or of each element.
    fields: Fields,
}

enum Kind {
    One,
    /// At most `max` elements over the whole request, each of which takes `bytes` when it is decoded.
    Many {
        max: usize,
        bytes: usize,
    },
    /// As `Many`, of numbers that may be packed.
    Numbers {
        max: usize,
        bytes: usize,
    },
}

const fn one(number: u32, name: &'static str, fields: Fields) -> Field {
    Field { number, name, kind: Kind::One, fields }
}

const fn many<T>(number: u32, name: &'static str, max: usize, fields: Fields) -> Field {
    Field { number, name, kind: Kind::Many { max, bytes: size_of::<T>() }, fields }
}

const fn numbers<T>(number: u32, name: &'static str, max: usize) -> Field {
    Field { number, name, kind: Kind::Numbers { max, bytes: size_of::<T>() }, fields: &[] }
}

/// The entry of a map from text to text.
type Entry = (String, String);

static PROPERTIES: Fields = &[many::<reapi::NodeProperty>(1, "node_properties.properties", MAX_ENTRIES, &[])];
static OUTPUT_FILE: Fields = &[one(7, "node_properties", PROPERTIES)];
static OUTPUT_SYMLINK: Fields = &[one(4, "node_properties", PROPERTIES)];
static METADATA: Fields = &[many::<Any>(11, "auxiliary_metadata", MAX_ENTRIES, &[])];
static ACTION_RESULT: Fields = &[
    many::<reapi::OutputFile>(2, "output_files", MAX_ELEMENTS, OUTPUT_FILE),
    many::<reapi::OutputDirectory>(3, "output_directories", MAX_ELEMENTS, &[]),
    one(9, "execution_metadata", METADATA),
    many::<reapi::OutputSymlink>(10, "output_file_symlinks", MAX_ELEMENTS, OUTPUT_SYMLINK),
    many::<reapi::OutputSymlink>(11, "output_directory_symlinks", MAX_ELEMENTS, OUTPUT_SYMLINK),
    many::<reapi::OutputSymlink>(12, "output_symlinks", MAX_ELEMENTS, OUTPUT_SYMLINK),
];
static REGISTER_WORKER: Fields = &[many::<Entry>(3, "platform_properties", MAX_ITEMS, &[])];
static LEASE_TASK: Fields =
    &[many::<String>(17, "queues", MAX_ITEMS, &[]), many::<Entry>(19, "properties", MAX_ITEMS, &[])];
static UPDATE_TASK_STATUS: Fields = &[one(4, "result", ACTION_RESULT)];
static HEARTBEAT: Fields = &[many::<worker::LeaseHeartbeat>(17, "leases", MAX_ITEMS, &[])];
static SUBMIT_TASK: Fields = &[many::<Entry>(8, "properties", MAX_ENTRIES, &[])];
static SUBMIT_TASKS: Fields = &[many::<worker::SubmitTask>(1, "tasks", MAX_ITEMS, SUBMIT_TASK)];
static WORK_HELLO: Fields =
    &[one(1, "worker", REGISTER_WORKER), many::<String>(2, "hello.queues", MAX_ITEMS, &[])];
static WORK: Fields = &[
    one(1, "hello", WORK_HELLO),
    many::<worker::UpdateTaskStatusRequest>(3, "reports", MAX_ITEMS, UPDATE_TASK_STATUS),
    many::<worker::LeaseHeartbeat>(4, "heartbeats", MAX_ITEMS, &[]),
];
static FIND_MISSING: Fields = &[many::<reapi::Digest>(2, "blob_digests", MAX_ELEMENTS, &[])];
static BATCH_UPDATE: Fields =
    &[many::<reapi::batch_update_blobs_request::Request>(2, "requests", MAX_ELEMENTS, &[])];
static BATCH_READ: Fields = &[
    many::<reapi::Digest>(2, "digests", MAX_ELEMENTS, &[]),
    numbers::<i32>(3, "acceptable_compressors", MAX_ITEMS),
];
static GET_ACTION_RESULT: Fields = &[many::<String>(5, "inline_output_files", MAX_ELEMENTS, &[])];
static UPDATE_ACTION_RESULT: Fields = &[one(3, "action_result", ACTION_RESULT)];
static EXECUTE: Fields = &[many::<String>(12, "inline_output_files", MAX_ELEMENTS, &[])];

/// The requests that have repeated fields.
static REQUESTS: LazyLock<HashMap<TypeId, Fields>> = LazyLock::new(|| {
    HashMap::from([
        (TypeId::of::<worker::RegisterWorkerRequest>(), REGISTER_WORKER),
        (TypeId::of::<worker::LeaseTaskRequest>(), LEASE_TASK),
        (TypeId::of::<worker::UpdateTaskStatusRequest>(), UPDATE_TASK_STATUS),
        (TypeId::of::<worker::HeartbeatRequest>(), HEARTBEAT),
        (TypeId::of::<worker::SubmitTasksRequest>(), SUBMIT_TASKS),
        (TypeId::of::<worker::WorkRequest>(), WORK),
        (TypeId::of::<reapi::FindMissingBlobsRequest>(), FIND_MISSING),
        (TypeId::of::<reapi::BatchUpdateBlobsRequest>(), BATCH_UPDATE),
        (TypeId::of::<reapi::BatchReadBlobsRequest>(), BATCH_READ),
        (TypeId::of::<reapi::GetActionResultRequest>(), GET_ACTION_RESULT),
        (TypeId::of::<reapi::UpdateActionResultRequest>(), UPDATE_ACTION_RESULT),
        (TypeId::of::<reapi::ExecuteRequest>(), EXECUTE),
    ])
});

/// Counts the elements of an encoded request. Returns the memory that it needs when it is decoded, or what is too much.
/// Bytes that are no message are left to the decoder.
pub fn check<Request: 'static>(message: &[u8]) -> Result<usize, Status> {
    let Some(fields) = REQUESTS.get(&TypeId::of::<Request>()) else { return Ok(message.len()) };
    let mut scan = Scan { decoded_bytes: message.len(), counts: Vec::new() };
    scan.message(fields, message)?;
    let max_bytes = message.len().saturating_mul(MAX_EXPANSION).saturating_add(MAX_EXTRA_BYTES);
    if scan.decoded_bytes > max_bytes {
        return Err(Status::invalid_argument(format!(
            "the message has too many elements for its size: decoded, it would take {} bytes, but may take {max_bytes}",
            scan.decoded_bytes
        )));
    }
    Ok(scan.decoded_bytes)
}

struct Scan {
    decoded_bytes: usize,
    /// How many elements each field of the table has so far.
    counts: Vec<(*const Field, usize)>,
}

impl Scan {
    /// Stops where the decoder stops as well: at bytes that are no field.
    fn message(&mut self, fields: Fields, mut rest: &[u8]) -> Result<(), Status> {
        while !rest.is_empty() {
            let Ok((number, wire_type)) = decode_key(&mut rest) else { return Ok(()) };
            let field = fields.iter().find(|field| field.number == number);
            let content = match wire_type {
                WireType::Varint => decode_varint(&mut rest).ok().map(|_| &rest[..0]),
                WireType::SixtyFourBit => rest.split_off(..8),
                WireType::ThirtyTwoBit => rest.split_off(..4),
                WireType::LengthDelimited => decode_varint(&mut rest)
                    .ok()
                    .and_then(|length| usize::try_from(length).ok())
                    .and_then(|length| rest.split_off(..length)),
                // The decoder would skip a group, whatever is in it.
                WireType::StartGroup | WireType::EndGroup => {
                    return Err(Status::invalid_argument("the message has a group, which no field is"));
                }
            };
            let Some(content) = content else { return Ok(()) };
            let Some(field) = field else { continue };
            match field.kind {
                Kind::One => {}
                Kind::Many { max, bytes } => self.count(field, 1, max, bytes)?,
                Kind::Numbers { max, bytes } => {
                    let packed = content.iter().filter(|byte| **byte < 0x80).count();
                    let elements = if wire_type == WireType::LengthDelimited { packed } else { 1 };
                    self.count(field, elements, max, bytes)?;
                }
            }
            if !field.fields.is_empty() {
                self.message(field.fields, content)?;
            }
        }
        Ok(())
    }

    fn count(&mut self, field: &Field, elements: usize, max: usize, bytes: usize) -> Result<(), Status> {
        let key = std::ptr::from_ref(field);
        let at = self.counts.iter().position(|(of, _)| *of == key).unwrap_or_else(|| {
            self.counts.push((key, 0));
            self.counts.len() - 1
        });
        let count = &mut self.counts[at].1;
        *count += elements;
        if *count > max {
            let name = field.name;
            return Err(Status::invalid_argument(format!(
                "{name}: has more than {max} elements, the most in one request; send several requests"
            )));
        }
        self.decoded_bytes += elements * bytes * GROWTH;
        Ok(())
    }
}
