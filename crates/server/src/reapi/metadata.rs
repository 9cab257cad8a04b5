//! Reads the request metadata that a client sends with a call (R55).

use bazel_remote_apis::build::bazel::remote::execution::v2::RequestMetadata;
use execution::Origin;
use prost::Message;
use tonic::metadata::MetadataMap;

const HEADER: &str = "build.bazel.remote.execution.v2.requestmetadata-bin";

/// An empty origin when the metadata is missing or malformed.
pub(super) fn origin(metadata: &MetadataMap) -> Origin {
    let bytes = metadata.get_bin(HEADER).and_then(|value| value.to_bytes().ok());
    let decoded = bytes.and_then(|bytes| RequestMetadata::decode(bytes).ok());
    decoded.as_ref().map(Origin::from_proto).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tonic::metadata::MetadataValue;

    use super::*;

    #[test]
    fn r55_the_origin_is_decoded_and_malformed_metadata_is_ignored() {
        let mut map = MetadataMap::new();
        assert!(origin(&map).is_empty());
        let sent = RequestMetadata { target_id: "//a:b".into(), ..RequestMetadata::default() };
        map.insert_bin(HEADER, MetadataValue::from_bytes(&sent.encode_to_vec()));
        assert_eq!(origin(&map).target, "//a:b");
        map.insert_bin(HEADER, MetadataValue::from_bytes(&[0xff; 9]));
        assert!(origin(&map).is_empty());
    }
}
