//! ContentAddressableStorage: reads and writes many blobs at a time (R14 to R17).

mod batch_read;
mod batch_update;
mod find_missing;
mod get_tree;

use tonic::{Request, Response, Status};
use wire::reapi::content_addressable_storage_server::ContentAddressableStorage;

use super::Reapi;
use super::messages::{
    BatchReadBlobsRequest, BatchReadBlobsResponse, BatchUpdateBlobsRequest, BatchUpdateBlobsResponse,
    FindMissingBlobsRequest, FindMissingBlobsResponse, GetTreeRequest,
};

#[tonic::async_trait]
impl ContentAddressableStorage for Reapi {
    async fn find_missing_blobs(
        &self,
        request: Request<FindMissingBlobsRequest>,
    ) -> Result<Response<FindMissingBlobsResponse>, Status> {
        find_missing::find_missing(self, &request).await.map(Response::new)
    }

    async fn batch_update_blobs(
        &self,
        request: Request<BatchUpdateBlobsRequest>,
    ) -> Result<Response<BatchUpdateBlobsResponse>, Status> {
        batch_update::batch_update(self, request).await.map(Response::new)
    }

    async fn batch_read_blobs(
        &self,
        request: Request<BatchReadBlobsRequest>,
    ) -> Result<Response<BatchReadBlobsResponse>, Status> {
        batch_read::batch_read(self, &request).await.map(Response::new)
    }

    type GetTreeStream = get_tree::TreeStream;

    async fn get_tree(
        &self,
        request: Request<GetTreeRequest>,
    ) -> Result<Response<Self::GetTreeStream>, Status> {
        get_tree::get_tree(self, &request).await.map(Response::new)
    }
}
