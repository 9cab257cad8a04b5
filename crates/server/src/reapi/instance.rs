//! Whom a call of the Remote Execution API belongs to: the tenant that its metadata names, and its instance, which is a
//! workspace. A call that names no instance is in the workspace of its metadata, like every other call.

use std::sync::Arc;

use authority::Scope;
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::scope::{self, fault_of_scope_name};

/// Longest name of an instance, which is that of a workspace.
pub const MAX_INSTANCE_BYTES: usize = 128;

pub fn scope(metadata: &MetadataMap, instance: &str) -> Result<Scope, Status> {
    let scope = scope::of(metadata.as_ref())?;
    if instance.is_empty() {
        return Ok(scope);
    }
    match fault_of_scope_name(instance) {
        Some(what) => Err(Status::invalid_argument(format!("instance_name: {what}"))),
        None => Ok(Scope { workspace: Arc::from(instance), ..scope }),
    }
}
