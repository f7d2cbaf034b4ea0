//! Messages that are sent together, for families that carry out all of them or none (nfnetlink).
//!
//! Must not know what the messages are about.

use std::{io, thread, time::Duration};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NetlinkBuffer, NetlinkDeserializable, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};
use tokio::time::timeout;

use super::{dump::receive, request::NetlinkError};

/// How long the kernel may take to answer. It answers while the messages are being sent, so only a
/// lost answer takes this long, and it must not hold up the caller. Much shorter, and a busy
/// machine looks like a lost answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// Sends messages together, on a socket of their own, and gathers what `pick` makes of the answers.
/// The answers end with the first error, an acknowledgement, the end of a dump, or, for a single
/// message that asks for neither, with its answer. Needs a tokio runtime.
///
/// # Errors
/// The kernel refuses a message; or [`NetlinkError::Lost`], if the answer cannot be received, or
/// not within five seconds.
pub async fn exchange<M, T>(
    family: isize,
    messages: Vec<NetlinkMessage<M>>,
    pick: impl FnMut(M) -> Option<T>,
) -> io::Result<Vec<T>>
where
    M: NetlinkSerializable + NetlinkDeserializable,
{
    // Nothing marks the end of the answer to such a message.
    let is_single =
        matches!(&messages[..], [only] if only.header.flags & (NLM_F_DUMP | NLM_F_ACK) == 0);
    let mut bytes = Vec::new();
    for (number, mut message) in messages.into_iter().enumerate() {
        message.header.sequence_number = u32::try_from(number).unwrap_or_default();
        message.finalize();
        let begin = bytes.len();
        bytes.resize(begin + message.buffer_len(), 0);
        message.serialize(&mut bytes[begin..]);
    }
    let mut socket = TokioSocket::new(family)?;
    socket.socket_mut().bind_auto()?;
    socket.socket_mut().connect(&SocketAddr::new(0, 0))?;
    socket.send(&bytes).await?;
    let answered = timeout(DEADLINE, answers(&socket, is_single, pick)).await;
    // The kernel lets nobody close a socket of nftables before what was deleted is freed, by
    // whichever program: that takes an RCU grace period, 12 ms and more (`nft_rcv_nl_event`).
    // Without a thread for it, it is closed here: an error drops the closure.
    let _ = thread::Builder::new().spawn(move || drop(socket));
    answered.unwrap_or_else(|_| Err(NetlinkError::Lost(io::ErrorKind::TimedOut.into()).into()))
}

async fn answers<M: NetlinkDeserializable, T>(
    socket: &TokioSocket,
    is_single: bool,
    mut pick: impl FnMut(M) -> Option<T>,
) -> io::Result<Vec<T>> {
    let (mut all, mut datagram) = (Vec::new(), Vec::new());
    loop {
        receive(socket, &mut datagram).await.map_err(NetlinkError::Lost)?;
        let mut rest = &datagram[..];
        while let Ok(buffer) = NetlinkBuffer::new_checked(rest) {
            // Each begins at a multiple of four bytes (netlink(7)).
            let length = usize::try_from(buffer.length()).unwrap_or(usize::MAX).next_multiple_of(4);
            let message = NetlinkMessage::<M>::deserialize(rest).map_err(io::Error::other)?;
            match message.payload {
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                // An error without a code is an acknowledgement (netlink(7)).
                NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(all),
                NetlinkPayload::InnerMessage(inner) => all.extend(pick(inner)),
                _ => {}
            }
            rest = rest.get(length..).unwrap_or_default();
        }
        if is_single && !all.is_empty() {
            return Ok(all);
        }
    }
}
