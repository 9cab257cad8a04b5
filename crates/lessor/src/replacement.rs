//! Replaces a running node by another process on the same machine without losing a connection: the old process passes its
//! listening socket on, and leaves once the new one serves.
//!
//! Both processes accept from one queue of the kernel, so no connection is reset or refused when the old one stops to
//! accept. With two sockets on one port (`SO_REUSEPORT`) each would have its own queue, and what waits in the queue of a
//! socket that is closed is reset.
//!
//! The old process listens on a socket in its data directory, which only its own user can reach. A new process that
//! fails before it serves changes nothing.

use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use tokio::io::AsyncReadExt;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::data_dir;

/// The socket in the data directory.
const SOCKET: &str = "replace.sock";
/// What the new process says when it serves.
const READY: u8 = b'r';
/// Goes with the socket, since something has to.
const GREETING: u8 = b'l';
/// Longest wait for the other process, which answers at once.
const MAX_ANSWER: Duration = Duration::from_secs(10);
/// Longest time from the passing of the socket until the new process serves: it may have a long history to read.
const MAX_START: Duration = Duration::from_secs(30 * 60);

/// Lets another process replace this one, until this is dropped.
pub(crate) struct Replaceable {
    path: PathBuf,
    replaced: watch::Receiver<bool>,
    _serving: JoinSet<()>,
}

impl Replaceable {
    /// Passes `listener` on to a process that asks for it.
    pub(crate) fn start(data: &Path, listener: &impl AsFd) -> io::Result<Replaceable> {
        let path = data.join(SOCKET);
        let passed = listener.as_fd().try_clone_to_owned()?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = UnixListener::bind(&path)?;
        let (sender, replaced) = watch::channel(false);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            // One at a time: the second of two processes waits until the first has failed or this one has left.
            loop {
                match pass_on(&socket, &passed).await {
                    Ok(true) => {
                        sender.send_replace(true);
                        return;
                    }
                    Ok(false) => {
                        tracing::warn!("a process that was to replace this one ended before it served")
                    }
                    Err(error) => tracing::warn!(%error, "the listening socket could not be passed on"),
                }
            }
        });
        Ok(Replaceable { path, replaced, _serving: serving })
    }

    /// Resolves once another process serves instead of this one.
    pub(crate) async fn replaced(&self) {
        if self.replaced.clone().wait_for(|replaced| *replaced).await.is_err() {
            std::future::pending().await
        }
    }
}

impl Drop for Replaceable {
    fn drop(&mut self) {
        // A stale socket refuses connections, and the next start removes it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Passes the socket to the next process that connects. Says whether that process serves.
async fn pass_on(socket: &UnixListener, passed: &OwnedFd) -> io::Result<bool> {
    let (mut stream, _) = socket.accept().await?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [passed.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    stream.writable().await?;
    rustix::net::sendmsg(&stream, &[IoSlice::new(&[GREETING])], &mut control, SendFlags::empty())?;
    let mut said = [0];
    let read = tokio::time::timeout(MAX_START, stream.read(&mut said)).await?;
    Ok(matches!(read, Ok(1)) && said[0] == READY)
}

/// The process that this one replaces.
pub(crate) struct Predecessor {
    stream: UnixStream,
    listener: TcpListener,
}

impl Predecessor {
    /// The process that runs with this data directory, or with the one that its own successor had; none when none runs.
    pub(crate) fn find(data: &Path) -> Result<Option<Predecessor>> {
        for slot in data_dir::slots(data) {
            let path = slot.join(SOCKET);
            match UnixStream::connect(&path) {
                Ok(stream) => {
                    let listener = receive(&stream)
                        .with_context(|| format!("{}: the other process gave no socket", path.display()))?;
                    return Ok(Some(Predecessor { stream, listener }));
                }
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                }
                Err(error) => return Err(error).with_context(|| format!("cannot use {}", path.display())),
            }
        }
        Ok(None)
    }

    /// The listening socket of the other process.
    pub(crate) fn listener(&self) -> io::Result<TcpListener> {
        self.listener.try_clone()
    }

    /// Tells the other process that this one serves. It accepts no more connections from then on, and leaves.
    pub(crate) fn relieve(mut self) -> io::Result<()> {
        self.stream.write_all(&[READY])
    }
}

fn receive(stream: &UnixStream) -> io::Result<TcpListener> {
    stream.set_read_timeout(Some(MAX_ANSWER))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut greeting = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut greeting)], &mut control, flags)?;
    let passed = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    passed.map(TcpListener::from).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_that_ends_before_it_serves_replaces_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let old = Replaceable::start(dir.path(), &listener).unwrap();
        let path = dir.path().to_owned();
        let find = move || Predecessor::find(&path).unwrap().unwrap();
        let failed = tokio::task::spawn_blocking(find.clone()).await.unwrap();
        assert_eq!(failed.listener().unwrap().local_addr().unwrap(), address);
        drop(failed);
        let successor = tokio::task::spawn_blocking(find).await.unwrap();
        assert!(!*old.replaced.borrow());
        successor.relieve().unwrap();
        old.replaced().await;
        drop(old);
        assert!(Predecessor::find(dir.path()).unwrap().is_none());
    }
}
