//! Transfers large blobs over ByteStream, in pieces. An interrupted transfer starts again from the beginning.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::sync::Arc;
use std::time::Duration;

use blobs::Digest;
use execution::digest::resource_path;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};
use wire::bytestream::{ReadRequest, WriteRequest};

use crate::retry::retried;
use crate::{CasError, Client};

/// One piece of an upload.
const PIECE_BYTES: usize = 256 * 1024;
/// Pieces that were read and not sent yet.
pub(crate) const PIECES_AHEAD: usize = 4;
/// Longest pause within a stream.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(60);

pub(crate) async fn read(
    client: &Client,
    instance: &str,
    digest: &Digest,
    file: File,
) -> Result<bool, CasError> {
    let resource_name = format!("{}blobs/{}", prefix(instance), resource_path(digest));
    let request = ReadRequest { resource_name, read_offset: 0, read_limit: 0 };
    let file = Arc::new(file);
    let call = || async {
        let mut pieces = match client.byte_stream().read(request.clone()).await {
            Err(status) if status.code() == Code::NotFound => return Ok(false),
            pieces => pieces?.into_inner(),
        };
        file.set_len(0)?;
        (&*file).rewind()?;
        let mut received = 0_u64;
        loop {
            let piece = match timeout(MAX_PAUSE, pieces.message()).await {
                Err(_) => return Err(Status::deadline_exceeded("the content came too slowly").into()),
                Ok(Err(status)) if status.code() == Code::NotFound => return Ok(false),
                Ok(piece) => piece?,
            };
            let Some(piece) = piece else { break };
            received += piece.data.len() as u64;
            if received > digest.size {
                return Err(Status::data_loss("the content is longer than its digest says").into());
            }
            let file = file.clone();
            let written = spawn_blocking(move || (&*file).write_all(&piece.data)).await;
            written.unwrap_or_else(|panic| Err(io::Error::other(panic)))?;
        }
        if received < digest.size {
            return Err(Status::unavailable("the content ended too early").into());
        }
        Ok(true)
    };
    retried(client.patience, call).await
}

pub(crate) async fn upload(
    client: &Client,
    instance: &str,
    digest: &Digest,
    file: File,
) -> Result<(), CasError> {
    let call = || async {
        let file = file.try_clone().map_err(|error| Status::aborted(error.to_string()))?;
        let name = format!("{}uploads/{}/blobs/{}", prefix(instance), upload_id(), resource_path(digest));
        let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
        let size = digest.size;
        let reading = spawn_blocking(move || send(&file, name, size, &sender));
        let answer = client.byte_stream().write(ReceiverStream::new(receiver)).await;
        // The server's answer may have ended the reading, and then it says more than the reader's error.
        let sent = reading.await.unwrap_or_else(|panic| Err(io::Error::other(panic)));
        let committed = answer?.into_inner().committed_size;
        // A server that has the blob already may answer with the full size before everything is sent.
        if u64::try_from(committed) == Ok(size) {
            return Ok(());
        }
        Err(match sent {
            Err(error) => Status::failed_precondition(format!("the output could not be read: {error}")),
            Ok(()) => Status::aborted(format!("{committed} of {size} bytes were taken")),
        }
        .into())
    };
    retried(client.patience, call).await
}

/// Reads the file in pieces until the receiver is gone. Exactly as many bytes are sent as the digest says, whatever
/// happens to the file meanwhile; the server checks that they are the right ones.
fn send(mut file: &File, mut name: String, size: u64, to: &mpsc::Sender<WriteRequest>) -> io::Result<()> {
    file.rewind()?;
    let mut offset = 0_u64;
    loop {
        let length = (size - offset).min(PIECE_BYTES as u64);
        let mut data = vec![0; usize::try_from(length).unwrap_or(PIECE_BYTES)];
        file.read_exact(&mut data)?;
        let finish_write = offset + length == size;
        let piece = WriteRequest {
            resource_name: std::mem::take(&mut name),
            write_offset: i64::try_from(offset).unwrap_or(i64::MAX),
            finish_write,
            data: data.into(),
        };
        if to.blocking_send(piece).is_err() || finish_write {
            return Ok(());
        }
        offset += length;
    }
}

fn prefix(instance: &str) -> String {
    if instance.is_empty() { String::new() } else { format!("{instance}/") }
}

pub(crate) fn upload_id() -> String {
    let mut random = [0; 16];
    // Without randomness two uploads may share a name, which only costs their resumption.
    let _ = getrandom::fill(&mut random);
    uuid::Builder::from_random_bytes(random).into_uuid().to_string()
}
