//! Parses ByteStream resource names (R9): an optional instance, the id of an upload, the compression on the wire, and
//! the digest.

use blobs::{Digest, DigestFunction};
use tonic::Status;
use tonic::metadata::MetadataMap;

use super::instance::{MAX_INSTANCE_BYTES, RESERVED};

/// Longest id of an upload; clients send a UUID.
const MAX_UPLOAD_ID_BYTES: usize = 128;
/// Longest name: an instance, an upload's id, a digest and what a client appends for its own use.
const MAX_NAME_BYTES: usize = MAX_INSTANCE_BYTES + 4_096;

/// The metadata that repeats the resource name, for routing.
const HEADER: &str = "build.bazel.remote.execution.v2.resource-name";

/// Compression on the wire. Stored content is never compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Zstd,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadName {
    pub instance: String,
    pub compression: Compression,
    pub digest: Digest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WriteName {
    pub instance: String,
    pub upload: String,
    pub compression: Compression,
    pub digest: Digest,
}

/// `{instance/}(blobs|compressed-blobs/{compressor})/{function/}{hash}/{size}`
pub(crate) fn parse_read(name: &str) -> Result<ReadName, Status> {
    let segments = segments(name)?;
    let blobs = segments
        .iter()
        .position(|segment| matches!(*segment, "blobs" | "compressed-blobs"))
        .ok_or_else(|| not_a_name(name))?;
    let (compression, digest, rest) = blob(name, &segments[blobs..])?;
    if rest.is_empty() {
        Ok(ReadName { instance: instance(name, &segments[..blobs])?, compression, digest })
    } else {
        Err(not_a_name(name))
    }
}

/// `{instance/}uploads/{id}/(blobs|compressed-blobs/{compressor})/{function/}{hash}/{size}{/anything}`
pub(crate) fn parse_write(name: &str) -> Result<WriteName, Status> {
    let segments = segments(name)?;
    let uploads =
        segments.iter().position(|segment| *segment == "uploads").ok_or_else(|| not_a_name(name))?;
    let [upload, rest @ ..] = &segments[uploads + 1..] else { return Err(not_a_name(name)) };
    if upload.is_empty() || upload.len() > MAX_UPLOAD_ID_BYTES {
        return Err(Status::invalid_argument(format!(
            "{name:?}: the id of an upload has between 1 and {MAX_UPLOAD_ID_BYTES} bytes"
        )));
    }
    let (compression, digest, _for_the_client) = blob(name, rest)?;
    let instance = instance(name, &segments[..uploads])?;
    Ok(WriteName { instance, upload: (*upload).to_owned(), compression, digest })
}

/// Checks that a resource name in the metadata is that of the message (R11), because the call may have been routed by it.
pub(super) fn check_header(metadata: &MetadataMap, name: &str) -> Result<(), Status> {
    match metadata.get(HEADER) {
        Some(sent) if sent.as_encoded_bytes() != name.as_bytes() => Err(Status::invalid_argument(format!(
            "the metadata {HEADER} must be the resource name of the message, {name:?}"
        ))),
        _ => Ok(()),
    }
}

fn segments(name: &str) -> Result<Vec<&str>, Status> {
    if name.len() > MAX_NAME_BYTES {
        Err(Status::invalid_argument(format!("a resource name has at most {MAX_NAME_BYTES} bytes")))
    } else {
        Ok(name.split('/').collect())
    }
}

/// Parses the segments from `blobs` or `compressed-blobs` on. The last part is what follows the digest.
fn blob<'a>(name: &str, segments: &'a [&'a str]) -> Result<(Compression, Digest, &'a [&'a str]), Status> {
    let (compression, rest) = match segments {
        ["blobs", rest @ ..] => (Compression::None, rest),
        ["compressed-blobs", "zstd", rest @ ..] => (Compression::Zstd, rest),
        ["compressed-blobs", "identity", rest @ ..] => (Compression::None, rest),
        ["compressed-blobs", other, ..] => {
            return Err(Status::invalid_argument(format!(
                "{name:?}: the compressor {other} is not supported; zstd is"
            )));
        }
        _ => return Err(not_a_name(name)),
    };
    let (function, rest) = match rest {
        [function, ..] => match DigestFunction::from_name(function) {
            Some(function) => (function, &rest[1..]),
            None => (DigestFunction::Sha256, rest),
        },
        [] => return Err(not_a_name(name)),
    };
    let [hash, size, rest @ ..] = rest else { return Err(not_a_name(name)) };
    let digest = Digest::parse(function, &format!("{hash}/{size}"))
        .map_err(|fault| Status::invalid_argument(format!("{name:?}: {fault}")))?;
    Ok((compression, digest, rest))
}

fn instance(name: &str, segments: &[&str]) -> Result<String, Status> {
    match segments.iter().find(|segment| RESERVED.contains(segment)) {
        Some(word) => {
            Err(Status::invalid_argument(format!("{name:?}: {word} cannot be part of an instance")))
        }
        None => Ok(segments.join("/")),
    }
}

fn not_a_name(name: &str) -> Status {
    Status::invalid_argument(format!(
        "{name:?} names no blob: it should be {{instance}}/blobs/{{hash}}/{{size}}, or \
         {{instance}}/uploads/{{uuid}}/blobs/{{hash}}/{{size}} to write one"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    #[test]
    fn r9_names_with_every_instance_and_compression_are_read() {
        for (name, instance, compression) in [
            (format!("blobs/{HASH}/5"), "", Compression::None),
            (format!("main/blobs/{HASH}/5"), "main", Compression::None),
            (format!("a/b/c/compressed-blobs/zstd/{HASH}/5"), "a/b/c", Compression::Zstd),
            (format!("compressed-blobs/identity/{HASH}/5"), "", Compression::None),
        ] {
            let read = parse_read(&name).unwrap();
            assert_eq!((read.instance.as_str(), read.compression), (instance, compression), "{name}");
            assert_eq!((read.digest.hash.to_string(), read.digest.size), (HASH.to_owned(), 5));
        }
    }

    #[test]
    fn r7_a_function_in_the_name_is_honoured() {
        let plain = parse_read(&format!("blobs/{HASH}/5")).unwrap().digest;
        let blake = parse_read(&format!("blobs/blake3/{HASH}/5")).unwrap().digest;
        assert_eq!(plain.function, blobs::DigestFunction::Sha256);
        assert_eq!(blake.function, blobs::DigestFunction::Blake3);
    }

    #[test]
    fn r9_uploads_carry_an_id_and_ignore_what_the_client_appends() {
        let name = parse_write(&format!("main/uploads/u-1/blobs/{HASH}/5/some/file.txt")).unwrap();
        assert_eq!((name.instance.as_str(), name.upload.as_str()), ("main", "u-1"));
        assert!(parse_read(&format!("blobs/{HASH}/5/extra")).is_err());
    }

    #[test]
    fn r6_bad_names_are_refused() {
        let upper = HASH.to_uppercase();
        for bad in [
            String::new(),
            "blobs".to_owned(),
            format!("blobs/{HASH}"),
            format!("blobs/{upper}/5"),
            format!("blobs/{HASH}/-5"),
            format!("blobs/{HASH}/+5"),
            format!("blobs/{HASH}/99999999999999999999"),
            format!("blobs/{}/5", &HASH[1..]),
            format!("compressed-blobs/brotli/{HASH}/5"),
            format!("uploads/x/blobs/{HASH}/5"),
            format!("operations/blobs/{HASH}/5"),
        ] {
            assert_eq!(parse_read(&bad).unwrap_err().code(), tonic::Code::InvalidArgument, "{bad}");
        }
        assert!(parse_write(&format!("blobs/{HASH}/5")).is_err());
        assert!(parse_write(&format!("uploads//blobs/{HASH}/5")).is_err());
    }

    #[test]
    fn r11_a_name_in_the_metadata_is_that_of_the_message() {
        let mut metadata = MetadataMap::new();
        assert!(check_header(&metadata, "blobs/x/1").is_ok());
        metadata.insert(HEADER, "blobs/x/1".parse().unwrap());
        assert!(check_header(&metadata, "blobs/x/1").is_ok());
        assert_eq!(check_header(&metadata, "blobs/y/1").unwrap_err().code(), tonic::Code::InvalidArgument);
    }

    proptest! {
        #[test]
        fn no_name_makes_it_panic(name in "(blobs|uploads|compressed-blobs|zstd|[a-f0-9/]{0,70}|/){0,8}") {
            let _ = (parse_read(&name), parse_write(&name));
        }
    }
}
