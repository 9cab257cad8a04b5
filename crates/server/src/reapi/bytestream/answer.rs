//! Serves the Read call over HTTP.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue, Request as HttpRequest, Response as HttpResponse, header};
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Frame;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

use super::read::{Pieces, read};
use crate::reapi::Reapi;
use crate::reapi::messages::bytestream::ReadRequest;

pub(crate) const PATH: &str = "/google.bytestream.ByteStream/Read";
/// A message comes after one byte that says whether it is compressed, and four of its length.
const PREFIX_BYTES: usize = 5;
/// Largest request: names of resources are short.
const MAX_REQUEST_BYTES: usize = 64 * 1_024;
/// The number of the one field of an answer.
const DATA_FIELD: u32 = 10;
/// The prefix, the field's key, and its length.
const MAX_HEAD_BYTES: usize = PREFIX_BYTES + 1 + 5;

/// Serves one call.
pub(crate) async fn serve(reapi: Reapi, request: HttpRequest<Body>) -> HttpResponse<Body> {
    let (parts, body) = request.into_parts();
    let answer = async {
        let message = message(body).await?;
        read(
            &reapi,
            &Request::from_parts(MetadataMap::from_headers(parts.headers), parts.extensions, message),
        )
        .await
    };
    match answer.await {
        Ok(pieces) => {
            let mut response = HttpResponse::new(Body::new(Answer { pieces: Some(pieces), piece: None }));
            let grpc = HeaderValue::from_static("application/grpc");
            response.headers_mut().insert(header::CONTENT_TYPE, grpc);
            response
        }
        Err(status) => status.into_http(),
    }
}

/// The one message of a request.
async fn message(body: Body) -> Result<ReadRequest, Status> {
    let bad = |why: String| Status::invalid_argument(format!("the message could not be read: {why}"));
    let too_large = || Status::out_of_range(format!("the message is larger than {MAX_REQUEST_BYTES} bytes"));
    let body = Limited::new(body, MAX_REQUEST_BYTES).collect().await.map_err(|error| {
        // An error that interrupts a request has a status of its own.
        match error.downcast::<axum::Error>().map(|error| error.into_inner()) {
            Ok(error) => {
                error.downcast::<Status>().map_or_else(|error| bad(error.to_string()), |status| *status)
            }
            Err(error) if error.is::<LengthLimitError>() => too_large(),
            Err(error) => bad(error.to_string()),
        }
    })?;
    let body = body.to_bytes();
    let (prefix, message) = body.split_at_checked(PREFIX_BYTES).ok_or_else(|| bad("it is cut off".into()))?;
    if prefix[0] != 0 {
        return Err(Status::unimplemented("compressed messages are not supported"));
    }
    let announced = prefix[1..].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    if announced > MAX_REQUEST_BYTES {
        return Err(too_large());
    }
    if announced != message.len() {
        return Err(bad("its length is wrong".into()));
    }
    ReadRequest::decode(message).map_err(|error| bad(error.to_string()))
}

/// The body of an answer: a message for each piece, and how it ended.
struct Answer {
    /// None after the end.
    pieces: Option<Pieces>,
    /// A piece whose head is sent.
    piece: Option<Bytes>,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(piece) = self.piece.take() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let Some(pieces) = &mut self.pieces else { return Poll::Ready(None) };
        let frame = match ready!(pieces.as_mut().poll_next(context)) {
            Some(Ok(piece)) => {
                let head = head(&piece);
                self.piece = Some(piece);
                Frame::data(head)
            }
            Some(Err(status)) => self.end(&status),
            None => self.end(&Status::ok("")),
        };
        Poll::Ready(Some(Ok(frame)))
    }
}

impl Answer {
    fn end(&mut self, status: &Status) -> Frame<Bytes> {
        self.pieces = None;
        let mut trailers = HeaderMap::new();
        // A status whose message cannot be a header is sent without it.
        if status.add_header(&mut trailers).is_err() {
            trailers.insert(Status::GRPC_STATUS, HeaderValue::from(status.code() as i32));
        }
        Frame::trailers(trailers)
    }
}

/// The encoded bytes before the piece of a message.
fn head(piece: &Bytes) -> Bytes {
    let mut field = BytesMut::with_capacity(MAX_HEAD_BYTES);
    encode_key(DATA_FIELD, WireType::LengthDelimited, &mut field);
    encode_varint(piece.len() as u64, &mut field);
    let mut head = BytesMut::with_capacity(MAX_HEAD_BYTES);
    head.put_u8(0);
    head.put_u32((field.len() + piece.len()) as u32);
    head.put(field);
    head.freeze()
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use wire::bytestream::ReadResponse;

    use super::*;

    #[tokio::test]
    async fn an_answer_is_framed_as_the_protocol_has_it() {
        let contents = [Bytes::from_static(b"a"), Bytes::from(vec![7; 300]), Bytes::from(vec![8; 256 << 10])];
        let pieces = futures_util::stream::iter(contents.clone().map(Ok)).boxed();
        let body = Answer { pieces: Some(pieces), piece: None }.collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()[Status::GRPC_STATUS], "0");
        let mut bytes = body.to_bytes();
        for content in contents {
            let prefix = bytes.split_to(PREFIX_BYTES);
            let length = u32::from_be_bytes(prefix[1..].try_into().unwrap());
            let message = ReadResponse::decode(bytes.split_to(length as usize)).unwrap();
            assert_eq!((prefix[0], message.data), (0, content));
        }
        assert!(bytes.is_empty());
    }

    #[tokio::test]
    async fn a_failure_on_the_way_ends_the_answer_with_its_status() {
        let pieces = [Ok(Bytes::from_static(b"a")), Err(Status::data_loss("gone"))];
        let pieces = futures_util::stream::iter(pieces).boxed();
        let body = Answer { pieces: Some(pieces), piece: None }.collect().await.unwrap();
        let trailers = body.trailers().unwrap();
        assert_eq!(trailers[Status::GRPC_STATUS], "15");
        assert_eq!(trailers["grpc-message"], "gone");
    }

    #[tokio::test]
    async fn a_request_that_is_no_message_is_refused() {
        let asked = ReadRequest { resource_name: "blobs/x/1".to_owned(), ..ReadRequest::default() };
        let mut good = vec![0, 0, 0, 0, asked.encoded_len() as u8];
        good.extend(asked.encode_to_vec());
        assert_eq!(message(Body::from(good.clone())).await.unwrap(), asked);
        let (mut compressed, mut long) = (good.clone(), good.clone());
        compressed[0] = 1;
        long.push(0);
        for (bad, code) in [
            (compressed, tonic::Code::Unimplemented),
            (long, tonic::Code::InvalidArgument),
            (good[..3].to_vec(), tonic::Code::InvalidArgument),
            (vec![0; 2 * MAX_REQUEST_BYTES], tonic::Code::OutOfRange),
            (vec![0, 0, 0, 0, 1, 0xff], tonic::Code::InvalidArgument),
        ] {
            assert_eq!(message(Body::from(bad)).await.unwrap_err().code(), code);
        }
    }
}
