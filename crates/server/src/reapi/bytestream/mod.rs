//! ByteStream: reads and writes one blob of any size, in pieces (R20 to R25).

pub(super) mod answer;
mod read;
mod write;

use futures_util::stream::{BoxStream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::messages::bytestream::byte_stream_server::ByteStream;
use super::messages::bytestream::{
    QueryWriteStatusRequest, QueryWriteStatusResponse, ReadRequest, ReadResponse, WriteRequest, WriteResponse,
};
use super::{Reapi, instance, resource_name};

#[tonic::async_trait]
impl ByteStream for Reapi {
    type ReadStream = BoxStream<'static, Result<ReadResponse, Status>>;

    /// The call of the service. Over HTTP, [`answer::serve`] serves it.
    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let pieces = read::read(self, &request).await?;
        Ok(Response::new(pieces.map(|piece| piece.map(|data| ReadResponse { data })).boxed()))
    }

    async fn write(
        &self,
        request: Request<Streaming<WriteRequest>>,
    ) -> Result<Response<WriteResponse>, Status> {
        write::write(self, request).await.map(Response::new)
    }

    async fn query_write_status(
        &self,
        request: Request<QueryWriteStatusRequest>,
    ) -> Result<Response<QueryWriteStatusResponse>, Status> {
        resource_name::check_header(request.metadata(), &request.get_ref().resource_name)?;
        let name = resource_name::parse_write(&request.get_ref().resource_name)?;
        let store =
            self.store_for(request.extensions(), &instance::scope(request.metadata(), &name.instance)?)?;
        let status = store.blobs.write_status(&store.tenant, &name.upload, name.digest).await;
        Ok(Response::new(QueryWriteStatusResponse {
            committed_size: i64::try_from(status.committed).unwrap_or(i64::MAX),
            complete: status.complete,
        }))
    }
}
