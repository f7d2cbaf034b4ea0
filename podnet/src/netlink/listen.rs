//! Events that the kernel sends to netlink groups, and their loss.
//!
//! Must not know what an event is about.

use std::{fmt, io};

use netlink_packet_core::NetlinkBuffer;
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};
use nix::libc::ENOBUFS;

/// A socket that is a member of netlink groups.
pub struct Listener(TokioSocket);

impl fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Listener").finish_non_exhaustive()
    }
}

/// What arrives.
#[derive(Debug)]
pub enum Heard {
    /// One or several messages.
    Datagram(Vec<u8>),
    /// The socket's buffer was full and events were lost (ENOBUFS): anything may have happened.
    Overflow,
}

impl Listener {
    /// Listens from now on, in the namespace that this thread is in. Needs a tokio runtime.
    ///
    /// # Errors
    /// The kernel has no such family or group, or does not let this process join it.
    pub fn open(family: isize, groups: &[u32]) -> io::Result<Self> {
        let mut socket = TokioSocket::new(family)?;
        socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
        for group in groups {
            socket.socket_mut().add_membership(*group)?;
        }
        Ok(Self(socket))
    }

    /// Waits for the next event. Cancellation-safe.
    ///
    /// # Errors
    /// The socket fails, other than by an overflow.
    pub async fn next(&self) -> io::Result<Heard> {
        match self.0.recv_from_full().await {
            Ok((datagram, _)) => Ok(Heard::Datagram(datagram)),
            Err(error) if error.raw_os_error() == Some(ENOBUFS) => Ok(Heard::Overflow),
            Err(error) => Err(error),
        }
    }
}

/// Type and body of each message of a datagram, not parsed.
pub fn bodies(mut datagram: &[u8]) -> Vec<(u16, &[u8])> {
    let mut all = Vec::new();
    while let Ok(message) = NetlinkBuffer::new_checked(datagram) {
        all.push((message.message_type(), message.payload()));
        // Each begins at a multiple of four bytes (netlink(7)).
        let length = usize::try_from(message.length()).unwrap_or(usize::MAX).next_multiple_of(4);
        datagram = datagram.get(length..).unwrap_or_default();
    }
    all
}
