//! Finds the scope of a call: the tenant from the metadata, and the instance name as the workspace. A call without an
//! instance name uses the workspace from its metadata, like every other call.

use std::sync::Arc;

use authority::Scope;
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::convert::scope::{self, fault_of_scope_name};

/// The keywords of resource names, which cannot be part of an instance name (R9, I20).
pub(super) const RESERVED: [&str; 7] =
    ["blobs", "uploads", "actions", "actionResults", "operations", "capabilities", "compressed-blobs"];
pub(super) const MAX_INSTANCE_BYTES: usize = 128;

pub(super) fn scope(metadata: &MetadataMap, instance: &str) -> Result<Scope, Status> {
    let scope = scope::of(metadata.as_ref())?;
    if instance.is_empty() {
        return Ok(scope);
    }
    let fault = fault_of_scope_name(instance).or_else(|| fault_of_segments(instance));
    match fault {
        Some(what) => Err(Status::invalid_argument(format!("instance_name: {what}"))),
        None => Ok(Scope { workspace: Arc::from(instance), ..scope }),
    }
}

fn fault_of_segments(instance: &str) -> Option<String> {
    let fault = |segment: &str| match segment {
        "" => Some("has an empty part".to_owned()),
        "." | ".." => Some(format!("cannot have {segment} as a part")),
        word if RESERVED.contains(&word) => Some(format!("cannot have the reserved word {word} as a part")),
        _ => None,
    };
    instance.split('/').find_map(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i20_names_that_could_be_taken_for_others_are_refused() {
        let read = |instance: &str| scope(&MetadataMap::new(), instance);
        for fine in ["", "main", "a/b/c", "blobs2"] {
            assert!(read(fine).is_ok(), "{fine}");
        }
        for bad in ["a//b", "/a", "a/", "..", "a/../b", "blobs", "a/uploads", "operations/x", "a\nb"] {
            assert_eq!(read(bad).unwrap_err().code(), tonic::Code::InvalidArgument, "{bad}");
        }
        assert!(read(&"x".repeat(MAX_INSTANCE_BYTES + 1)).is_err());
    }
}
