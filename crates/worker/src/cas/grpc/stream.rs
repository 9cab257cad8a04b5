//! Transfers large blobs over ByteStream, in pieces. An interrupted transfer starts again from the beginning.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::Duration;

use bazel_remote_apis::google::bytestream::byte_stream_client::ByteStreamClient;
use bazel_remote_apis::google::bytestream::{ReadRequest, WriteRequest};
use blobs::Digest;
use execution::digest::resource_path;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use super::Scoped;
use super::retry::retried;
use crate::cas::CasError;

/// One piece of an upload.
const PIECE_BYTES: usize = 256 * 1024;
/// Pieces that were read and not sent yet.
const PIECES_AHEAD: usize = 4;
/// Longest pause within a stream.
const MAX_PAUSE: Duration = Duration::from_secs(60);

pub(super) async fn read(
    client: impl Fn() -> ByteStreamClient<Scoped>,
    instance: &str,
    digest: &Digest,
    file: File,
    patience: Duration,
) -> Result<bool, CasError> {
    let name = format!("{}blobs/{}", prefix(instance), resource_path(digest));
    let request = ReadRequest { resource_name: name, read_offset: 0, read_limit: 0 };
    let file = Arc::new(file);
    let call = || async {
        let mut pieces = match client().read(request.clone()).await {
            Ok(pieces) => pieces.into_inner(),
            Err(status) if status.code() == Code::NotFound => return Ok(Ok(false)),
            Err(status) => return Err(status),
        };
        if let Err(error) = begin_again(&file) {
            return Ok(Err(error));
        }
        let mut received = 0_u64;
        loop {
            let piece = match timeout(MAX_PAUSE, pieces.message()).await {
                Err(_) => return Err(Status::deadline_exceeded("the content came too slowly")),
                Ok(Err(status)) if status.code() == Code::NotFound => return Ok(Ok(false)),
                Ok(piece) => piece?,
            };
            let Some(piece) = piece else { break };
            received += piece.data.len() as u64;
            if received > digest.size {
                return Err(Status::data_loss("the content is longer than its digest says"));
            }
            let file = file.clone();
            let written = tokio::task::spawn_blocking(move || (&*file).write_all(&piece.data)).await;
            if let Err(error) = written.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
                return Ok(Err(error));
            }
        }
        if received < digest.size {
            return Err(Status::unavailable("the content ended too early"));
        }
        Ok(Ok(true))
    };
    retried(patience, call).await?.map_err(|error| CasError::File(error.to_string()))
}

pub(super) async fn upload(
    client: impl Fn() -> ByteStreamClient<Scoped>,
    instance: &str,
    digest: &Digest,
    file: File,
    patience: Duration,
) -> Result<(), CasError> {
    let call = || async {
        let file = file.try_clone().map_err(|error| Status::aborted(error.to_string()))?;
        let name = format!("{}uploads/{}/blobs/{}", prefix(instance), upload_id(), resource_path(digest));
        let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
        let size = digest.size;
        let reading = tokio::task::spawn_blocking(move || send(&file, &name, size, &sender));
        let answer = client().write(ReceiverStream::new(receiver)).await;
        // The pieces may have been cut short by the server's answer, which then says more than the reader can.
        let sent = reading.await.unwrap_or_else(|panic| Err(io::Error::other(panic)));
        let committed = answer?.into_inner().committed_size;
        // A server that has the blob already may say so before everything is sent, with the full size.
        if u64::try_from(committed) == Ok(size) {
            return Ok(());
        }
        Err(match sent {
            Err(error) => Status::failed_precondition(format!("the output could not be read: {error}")),
            Ok(()) => Status::aborted(format!("{committed} of {size} bytes were taken")),
        })
    };
    retried(patience, call).await
}

/// Reads the file in pieces for as long as somebody takes them. Exactly as many bytes are sent as the digest says,
/// whatever happens to the file meanwhile; that they are the right ones is checked at the other end.
fn send(file: &File, name: &str, size: u64, to: &mpsc::Sender<WriteRequest>) -> io::Result<()> {
    let mut file = file;
    file.seek(SeekFrom::Start(0))?;
    let mut offset = 0_u64;
    loop {
        let length = (size - offset).min(PIECE_BYTES as u64);
        let mut data = vec![0; usize::try_from(length).unwrap_or(PIECE_BYTES)];
        file.read_exact(&mut data)?;
        let finish_write = offset + length == size;
        let piece = WriteRequest {
            resource_name: if offset == 0 { name.to_owned() } else { String::new() },
            write_offset: i64::try_from(offset).unwrap_or(i64::MAX),
            finish_write,
            data,
        };
        if to.blocking_send(piece).is_err() || finish_write {
            return Ok(());
        }
        offset += length;
    }
}

fn begin_again(file: &File) -> io::Result<()> {
    let mut file = file;
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0)).map(|_| ())
}

fn prefix(instance: &str) -> String {
    if instance.is_empty() { String::new() } else { format!("{instance}/") }
}

fn upload_id() -> String {
    let mut random = [0; 16];
    // Without randomness two uploads may share a name, which costs their resumption and nothing else.
    let _ = getrandom::fill(&mut random);
    uuid::Builder::from_random_bytes(random).into_uuid().to_string()
}
