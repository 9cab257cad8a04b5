//! No request decodes to much more memory than it has bytes (A6). Every repeated field of every request, as the descriptors
//! name them, is flooded with elements that take the fewest bytes.

use std::collections::BTreeMap;
use std::path::Path;

use allocation_counter::measure;
use bazel_remote_apis::build::bazel::remote::execution::v2 as reapi;
use prost::Message;
use prost::encoding::encode_varint;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use tonic::Code;
use wire::grpc::{self as worker, FILE_DESCRIPTOR_SET, limits};

const MIB: usize = 1 << 20;
/// A request uses at most so many times its bytes, and so many bytes more.
const MAX_EXPANSION: usize = 16;
const MAX_EXTRA_BYTES: usize = 64 * MIB;

/// Decodes a request if the limits let it through. Returns the most memory that this took, or the refusal.
type Decode = fn(&[u8]) -> Result<usize, tonic::Status>;

fn decode<T: Message + Default + 'static>(message: &[u8]) -> Result<usize, tonic::Status> {
    let expected = limits::check::<T>(message)?;
    let mut decoded = None;
    let measured = measure(|| decoded = Some(T::decode(message)));
    assert!(decoded.is_some_and(|decoded| decoded.is_ok()), "the test builds messages");
    let bytes = measured.bytes_max as usize;
    assert!(bytes <= 2 * expected, "{bytes} bytes, and the limits expected {expected}");
    Ok(bytes)
}

/// The requests of all calls that have a codec with limits, by their last name, with the largest message of each.
fn requests() -> BTreeMap<&'static str, (Decode, usize)> {
    macro_rules! requests {
        ($($module:ident::$Request:ident $mib:literal),* $(,)?) => {
            BTreeMap::from([$((stringify!($Request), (decode::<$module::$Request> as Decode, $mib * MIB))),*])
        };
    }
    requests! {
        worker::RegisterWorkerRequest 2, worker::UnregisterWorkerRequest 2, worker::LeaseTaskRequest 2,
        worker::UpdateTaskStatusRequest 2, worker::HeartbeatRequest 2, worker::SubmitTasksRequest 16,
        worker::WorkRequest 4,
        reapi::GetCapabilitiesRequest 4, reapi::FindMissingBlobsRequest 4, reapi::BatchUpdateBlobsRequest 8,
        reapi::BatchReadBlobsRequest 4, reapi::GetTreeRequest 4, reapi::GetActionResultRequest 4,
        reapi::UpdateActionResultRequest 4, reapi::ExecuteRequest 4, reapi::WaitExecutionRequest 4,
    }
}

pub(crate) struct Descriptors {
    pub messages: BTreeMap<String, DescriptorProto>,
    /// The messages that calls take.
    pub inputs: Vec<String>,
}

impl Descriptors {
    pub(crate) fn load() -> Descriptors {
        let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let includes = [crate_dir.join("tests/generated"), crate_dir.join("proto")];
        let remote = protox::compile(["reapi_requests.proto"], includes).unwrap();
        let mut descriptors = Descriptors { messages: BTreeMap::new(), inputs: Vec::new() };
        for set in [FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap(), remote] {
            for file in &set.file {
                let prefix = format!(".{}", file.package());
                file.message_type.iter().for_each(|message| descriptors.add(&prefix, message));
                let methods = file.service.iter().flat_map(|service| &service.method);
                descriptors.inputs.extend(methods.map(|method| method.input_type().to_owned()));
            }
        }
        descriptors
    }

    fn add(&mut self, prefix: &str, message: &DescriptorProto) {
        let name = format!("{prefix}.{}", message.name());
        message.nested_type.iter().for_each(|nested| self.add(&name, nested));
        self.messages.insert(name, message.clone());
    }

    /// The paths to all repeated fields below a message, from the outside in.
    fn repeated(&self, message: &str, path: &[FieldDescriptorProto]) -> Vec<Vec<FieldDescriptorProto>> {
        let mut found = Vec::new();
        for field in &self.messages[message].field {
            let path = [path, std::slice::from_ref(field)].concat();
            if field.r#type() == Type::Message {
                found.extend(self.repeated(field.type_name(), &path));
            }
            if field.label() == Label::Repeated {
                found.push(path);
            }
        }
        found
    }
}

/// A field of one message whose content is given.
fn delimited(field: &FieldDescriptorProto, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_varint((field.number() as u64) << 3 | 2, &mut bytes);
    encode_varint(content.len() as u64, &mut bytes);
    bytes.extend_from_slice(content);
    bytes
}

/// A message of about `bytes` in which the last field of the path occurs as often as fits, in one parent each or all in
/// one. `is_map` makes the entries differ.
fn flood(path: &[FieldDescriptorProto], bytes: usize, all_in_one: bool, is_map: bool) -> Vec<u8> {
    let (last, parents) = path.split_last().unwrap();
    let wrap =
        |content: Vec<u8>| parents.iter().rev().fold(content, |content, parent| delimited(parent, &content));
    let element = |content: &[u8]| match delimited(last, content) {
        element if all_in_one => element,
        element => wrap(element),
    };
    let message = if is_map {
        let key = |n: u32| [&[0x0a, 4][..], &n.to_be_bytes().map(|byte| byte & 0x7f)].concat();
        let entry_bytes = element(&key(0)).len();
        (0..((bytes - 64) / entry_bytes) as u32).flat_map(|n| element(&key(n))).collect()
    } else {
        let empty = element(&[]);
        empty.repeat((bytes - 64) / empty.len())
    };
    if all_in_one { wrap(message) } else { message }
}

/// Four megabytes of empty tasks took a gigabyte.
#[test]
fn a6_no_repeated_field_of_a_request_takes_much_more_memory_than_bytes() {
    let (descriptors, requests) = (Descriptors::load(), requests());
    let mut flooded = 0;
    for input in &descriptors.inputs {
        let name = input.rsplit('.').next().unwrap();
        let (decode, max_bytes) =
            *requests.get(name).unwrap_or_else(|| panic!("{name} is missing in the test"));
        for path in descriptors.repeated(input, &[]) {
            let names = path.iter().map(FieldDescriptorProto::name).collect::<Vec<_>>().join(".");
            let entry = &descriptors.messages.get(path.last().unwrap().type_name());
            let is_map = entry.is_some_and(|entry| entry.options.as_ref().is_some_and(|o| o.map_entry()));
            let numbers = path.last().unwrap().r#type() == Type::Int32;
            for (bytes, all_in_one) in
                [(max_bytes, true), (max_bytes, false), (MIB / 2, true), (MIB / 2, false)]
            {
                let message = if numbers {
                    delimited(path.last().unwrap(), &vec![0; bytes - 64])
                } else {
                    flood(&path, bytes, all_in_one, is_map)
                };
                let max = MAX_EXPANSION * message.len() + MAX_EXTRA_BYTES;
                match decode(&message) {
                    Ok(used) => assert!(used <= max, "{name}.{names}: {} bytes took {used}", message.len()),
                    Err(status) => {
                        assert_eq!(status.code(), Code::InvalidArgument, "{name}.{names}: {status:?}")
                    }
                }
                flooded += 1;
            }
            let (last, empty) = (path.last().unwrap(), flood(&path, max_bytes, true, is_map));
            let refused = decode(&if numbers { delimited(last, &vec![0; MIB]) } else { empty });
            let message = refused.expect_err(&format!("{name}.{names} has no limit: add it to `limits`"));
            assert!(message.message().contains(last.name()), "{name}.{names}: {}", message.message());
        }
    }
    assert!(flooded >= 100, "{flooded}");
}

/// Fields of different kinds at once, each below its limit.
#[test]
#[allow(deprecated)]
fn a6_many_repeated_fields_together_are_bounded_as_well() {
    let result = reapi::ActionResult {
        output_files: vec![Default::default(); limits::MAX_ELEMENTS],
        output_directories: vec![Default::default(); limits::MAX_ELEMENTS],
        output_symlinks: vec![Default::default(); limits::MAX_ELEMENTS],
        output_file_symlinks: vec![Default::default(); limits::MAX_ELEMENTS],
        output_directory_symlinks: vec![Default::default(); limits::MAX_ELEMENTS],
        ..Default::default()
    };
    let request = reapi::UpdateActionResultRequest { action_result: Some(result), ..Default::default() };
    let refused = decode::<reapi::UpdateActionResultRequest>(&request.encode_to_vec()).unwrap_err();
    assert!(refused.message().contains("too many elements for its size"), "{}", refused.message());
}

/// The largest requests that clients send.
#[test]
fn ordinary_requests_are_within_the_limits() {
    let digest = reapi::Digest { hash: "a".repeat(64), size_bytes: 1_000_000 };
    let missing =
        reapi::FindMissingBlobsRequest { blob_digests: vec![digest.clone(); 50_000], ..Default::default() };
    assert!(decode::<reapi::FindMissingBlobsRequest>(&missing.encode_to_vec()).is_ok());
    let file = reapi::OutputFile { path: "a/b/c.o".to_owned(), digest: Some(digest), ..Default::default() };
    let result = reapi::ActionResult { output_files: vec![file; 30_000], ..Default::default() };
    let update = reapi::UpdateActionResultRequest { action_result: Some(result), ..Default::default() };
    assert!(decode::<reapi::UpdateActionResultRequest>(&update.encode_to_vec()).is_ok());
    let task =
        worker::SubmitTask { queue: "q".to_owned(), payload: vec![b'1'; 100].into(), ..Default::default() };
    let submit = worker::SubmitTasksRequest { tasks: vec![task; 1_000] };
    assert!(decode::<worker::SubmitTasksRequest>(&submit.encode_to_vec()).is_ok());
}

#[test]
fn what_the_limits_cannot_read_is_refused_or_left_to_the_decoder() {
    let check = limits::check::<worker::SubmitTasksRequest>;
    assert!(check(b"\x0b\x0c").is_err(), "a group could hide elements");
    for broken in [&b"\x0a\xff\x01x"[..], b"\xff", b"\x0a", b"\x00\x00", &[0x80; 20]] {
        assert!(check(broken).is_ok() && worker::SubmitTasksRequest::decode(broken).is_err(), "{broken:?}");
    }
}
