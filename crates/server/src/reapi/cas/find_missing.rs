//! FindMissingBlobs: finds the blobs that are missing (R14). Asking for a blob counts as using it.

use execution::digest;
use tonic::{Request, Status};

use crate::reapi::messages::{FindMissingBlobsRequest, FindMissingBlobsResponse};
use crate::reapi::{Reapi, instance};

pub(super) async fn find_missing(
    reapi: &Reapi,
    request: &Request<FindMissingBlobsRequest>,
) -> Result<FindMissingBlobsResponse, Status> {
    let asked = request.get_ref();
    let scope = instance::scope(request.metadata(), &asked.instance_name)?;
    let function = digest::function_from_proto(asked.digest_function)?;
    let digests =
        asked.blob_digests.iter().map(|asked| digest::from_proto(Some(asked), function, "blob_digests"));
    let digests = digests.collect::<Result<Vec<_>, _>>()?;
    let missing = reapi.store_for(request.extensions(), &scope)?.missing(&digests).await?;
    Ok(FindMissingBlobsResponse { missing_blob_digests: missing.iter().map(digest::to_proto).collect() })
}
