//! Capabilities: announces what this server supports, and nothing else (R1 to R5).

use bazel_remote_apis::build::bazel::remote::execution::v2::{
    ActionCacheUpdateCapabilities, CacheCapabilities, ExecutionCapabilities, GetCapabilitiesRequest,
    PriorityCapabilities, ServerCapabilities, compressor, priority_capabilities::PriorityRange,
    symlink_absolute_path_strategy,
};
use bazel_remote_apis::build::bazel::semver::SemVer;
use execution::command::NODE_PROPERTIES;
use execution::digest;
use tonic::{Request, Status};

use super::{MAX_BATCH_BYTES, Reapi, instance};

/// The priorities of executions; a lower number runs sooner.
pub(super) const PRIORITIES: std::ops::RangeInclusive<i32> = -1_000_000..=1_000_000;

pub(super) fn get(
    reapi: &Reapi,
    request: &Request<GetCapabilitiesRequest>,
) -> Result<ServerCapabilities, Status> {
    instance::scope(request.metadata(), &request.get_ref().instance_name)?;
    let functions: Vec<i32> = digest::FUNCTIONS.iter().map(|function| *function as i32).collect();
    let zstd = vec![compressor::Value::Zstd as i32];
    let cache = CacheCapabilities {
        digest_functions: functions.clone(),
        action_cache_update_capabilities: Some(ActionCacheUpdateCapabilities {
            update_enabled: reapi.content.settings.allow_uploads,
        }),
        max_cas_blob_size_bytes: i64::try_from(reapi.content.blobs.max_blob_bytes()).unwrap_or(i64::MAX),
        max_batch_total_size_bytes: MAX_BATCH_BYTES as i64,
        symlink_absolute_path_strategy: symlink_absolute_path_strategy::Value::Allowed as i32,
        supported_compressors: zstd.clone(),
        supported_batch_update_compressors: zstd,
        ..CacheCapabilities::default()
    };
    let execution = ExecutionCapabilities {
        digest_function: functions[0],
        exec_enabled: reapi.content.settings.exec_enabled,
        execution_priority_capabilities: Some(PriorityCapabilities {
            priorities: vec![PriorityRange {
                min_priority: *PRIORITIES.start(),
                max_priority: *PRIORITIES.end(),
            }],
        }),
        digest_functions: functions,
        supported_node_properties: NODE_PROPERTIES.map(str::to_owned).to_vec(),
    };
    let version = |minor| Some(SemVer { major: 2, minor, ..SemVer::default() });
    Ok(ServerCapabilities {
        cache_capabilities: Some(cache),
        execution_capabilities: Some(execution),
        deprecated_api_version: None,
        low_api_version: version(0),
        high_api_version: version(3),
    })
}
