//! Decodes the request metadata that a client of remote execution sends with a call (R55).

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bazel_remote_apis::build::bazel::remote::execution::v2::RequestMetadata;
use prost::Message;
use tonic::metadata::MetadataMap;

pub(crate) const HEADER: &str = "build.bazel.remote.execution.v2.requestmetadata-bin";

/// None when the metadata is missing or malformed.
pub(crate) fn decode(metadata: &MetadataMap) -> Option<RequestMetadata> {
    let bytes = metadata.get_bin(HEADER).and_then(|value| value.to_bytes().ok())?;
    RequestMetadata::decode(bytes).ok()
}

/// The same of the header alone.
pub(crate) fn decode_header(value: &HeaderValue) -> Option<RequestMetadata> {
    let header = (HeaderName::from_static(HEADER), value.clone());
    decode(&MetadataMap::from_headers(HeaderMap::from_iter([header])))
}

#[cfg(test)]
mod tests {
    use tonic::metadata::MetadataValue;

    use super::*;

    #[test]
    fn r55_metadata_is_decoded_and_malformed_metadata_is_ignored() {
        let mut map = MetadataMap::new();
        assert_eq!(decode(&map), None);
        let sent = RequestMetadata { target_id: "//a:b".into(), ..RequestMetadata::default() };
        map.insert_bin(HEADER, MetadataValue::from_bytes(&sent.encode_to_vec()));
        assert_eq!(decode(&map), Some(sent.clone()));
        let header = map.clone().into_headers().remove(HEADER).unwrap();
        assert_eq!(decode_header(&header), Some(sent));
        map.insert_bin(HEADER, MetadataValue::from_bytes(&[0xff; 9]));
        assert_eq!(decode(&map), None);
        assert_eq!(decode_header(&HeaderValue::from_static("~")), None);
    }
}
