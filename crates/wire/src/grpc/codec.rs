//! The protobuf codec of all services. It differs from tonic's codec in one point: bytes that are not a message are
//! the sender's fault, so the answer is INVALID_ARGUMENT instead of INTERNAL. A client
//! finds the decode error as the source of such a status.

use std::marker::PhantomData;
use std::sync::Arc;

use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

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

impl<In: Message + Default> Decoder for Reader<In> {
    type Item = In;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<In>, Status> {
        In::decode(bytes).map(Some).map_err(|error| {
            let mut status = Status::invalid_argument(format!("the message could not be read: {error}"));
            status.set_source(Arc::new(error));
            status
        })
    }
}
