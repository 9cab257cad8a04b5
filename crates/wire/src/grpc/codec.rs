//! The protobuf codec of all services. It differs from tonic's codec in two points: the elements of a request are counted
//! before it is decoded, and bytes that are not a message are the sender's fault, so the answer is INVALID_ARGUMENT
//! instead of INTERNAL. A client finds the decode error as the source of such a status.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Buf;
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use super::limits;

/// Memory that requests are decoded into.
pub trait MemoryBudget: Send + Sync {
    /// Takes memory for one request, or says why there is none.
    fn charge(&self, bytes: usize) -> Result<(), Status>;
}

tokio::task_local! {
    static BUDGET: Arc<dyn MemoryBudget>;
}

/// Charges this budget for the requests that the call decodes.
pub fn within<Call: Future>(budget: Arc<dyn MemoryBudget>, call: Call) -> impl Future<Output = Call::Output> {
    BUDGET.scope(budget, call)
}

pub struct Messages<Out, In>(PhantomData<(Out, In)>);

impl<Out, In> Default for Messages<Out, In> {
    fn default() -> Self {
        Messages(PhantomData)
    }
}

impl<Out, In> Codec for Messages<Out, In>
where
    Out: Message + Send + 'static,
    In: Message + Default + Send + 'static,
{
    type Encode = Out;
    type Decode = In;
    type Encoder = ProstEncoder<Out>;
    type Decoder = Reader<In>;

    fn encoder(&mut self) -> ProstEncoder<Out> {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Reader<In> {
        Reader(PhantomData)
    }
}

pub struct Reader<In>(PhantomData<In>);

impl<In: Message + Default + 'static> Decoder for Reader<In> {
    type Item = In;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<In>, Status> {
        // The message is in one piece.
        let message = bytes.chunk();
        let decoded_bytes = limits::check::<In>(message)?;
        if decoded_bytes > message.len() {
            // Without a budget this is a client, which trusts its server.
            BUDGET.try_with(|budget| budget.charge(decoded_bytes)).unwrap_or(Ok(()))?;
        }
        In::decode(bytes).map(Some).map_err(|error| {
            let mut status = Status::invalid_argument(format!("the message could not be read: {error}"));
            status.set_source(Arc::new(error));
            status
        })
    }
}
