//! One call at a time for each interface of each sandbox, and a way for DEL to tell an ADD in flight to give up.
//!
//! A runtime that loses patience with an ADD calls DEL, sometimes before the ADD has noticed. Without a fence the ADD could plug the
//! pod after DEL has said that nothing is left. The fence is an abstract unix socket: the kernel gives a name to one process only,
//! and takes it back when that process ends, however it ends. No file is left and nothing has to be cleaned up.
//!
//! Any process of the host's network namespace can take such a name, so only root's holders count.

use std::{
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener as StdListener, UnixStream as StdStream},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    time::{Instant, timeout, timeout_at},
};

use crate::plan::Identity;

/// How long DEL waits for an ADD to undo what it did.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often a fence is tried that was just let go.
const MOST_TRIES: usize = 16;
/// What DEL says to the holder of a fence.
const GIVE_UP: u8 = b'D';

/// The right to work on one interface of one sandbox, until it is dropped.
#[derive(Debug)]
pub struct Fence {
    /// None where the name could not be had and the work goes on without.
    listener: Option<UnixListener>,
}

/// Another call is at work on the same interface.
#[derive(Debug, thiserror::Error)]
#[error("another call for this interface of this sandbox is under way")]
pub struct Busy;

impl Fence {
    /// Takes the fence, or says that somebody else has it.
    pub async fn take(identity: &Identity) -> Result<Self, Busy> {
        for _ in 0..MOST_TRIES {
            let error = match bind(identity) {
                Ok(listener) => return Ok(Self { listener: Some(listener) }),
                Err(error) => error,
            };
            match (error.kind(), holder(identity)) {
                (io::ErrorKind::AddrInUse, Holder::Root(_)) => return Err(Busy),
                // It was let go in between.
                (io::ErrorKind::AddrInUse, Holder::Nobody) => {}
                (_, Holder::Root(_) | Holder::Stranger | Holder::Nobody) => {
                    tracing::debug!(%error, "no fence");
                    break;
                }
            }
        }
        Ok(Self { listener: None })
    }

    /// Whether nobody else can have it: not where its name could not be had (too many open files, a stranger who took it).
    pub fn is_held(&self) -> bool {
        self.listener.is_some()
    }

    /// Takes the fence after telling its holder to give up, and waiting until it has.
    pub async fn take_over(identity: &Identity) -> Self {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Self::take(identity).await {
                Ok(fence) => return fence,
                Err(Busy) if Instant::now() >= deadline => {
                    tracing::warn!("the call that is under way does not give up; going on without it");
                    return Self { listener: None };
                }
                Err(Busy) => {
                    if let Holder::Root(mut stream) = holder(identity) {
                        // The connection ends when the holder does; what it says, and how the connection ends, is all the same.
                        let gone = async {
                            let _ = stream.write_all(&[GIVE_UP]).await;
                            let _ = stream.read(&mut [0]).await;
                        };
                        let _ = timeout_at(deadline, gone).await;
                    }
                }
            }
        }
    }

    /// Returns when a DEL wants the work to stop. The connections of those who ask stay open until the fence is dropped.
    pub async fn challenged(&self) -> Vec<UnixStream> {
        let mut asked = Vec::new();
        let Some(listener) = &self.listener else { return std::future::pending().await };
        loop {
            let Ok((mut stream, _)) = listener.accept().await else { return std::future::pending().await };
            let mut word = [0];
            // Somebody who only looks who holds the fence says nothing and leaves.
            let said = timeout(Duration::from_secs(1), stream.read_exact(&mut word)).await;
            if matches!(said, Ok(Ok(_))) && word == [GIVE_UP] && is_roots(&stream) {
                asked.push(stream);
                return asked;
            }
        }
    }
}

/// Who holds a fence.
enum Holder {
    /// A call like this one, with a connection to it.
    Root(UnixStream),
    /// Somebody who has no say.
    Stranger,
    Nobody,
}

fn holder(identity: &Identity) -> Holder {
    let connect = || {
        let stream = StdStream::connect_addr(&name(identity))?;
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream)
    };
    match connect() {
        Ok(stream) if is_roots(&stream) => Holder::Root(stream),
        Ok(_) => Holder::Stranger,
        Err(_) => Holder::Nobody,
    }
}

fn is_roots(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0)
}

fn bind(identity: &Identity) -> io::Result<UnixListener> {
    let listener = StdListener::bind_addr(&name(identity))?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// A name has room for 107 bytes, a container id may have 255; the temporary link name stands for both in 15.
fn name(identity: &Identity) -> SocketAddr {
    let text = format!("ovn-k8s-cni/{}", identity.temporary_host_name());
    SocketAddr::from_abstract_name(text).expect("27 bytes are a name")
}
