//! Requests to the kernel to remove connections: all that match a filter with one request, or one
//! by one, many with one system call.
//!
//! The kernel carries out a request while it is being sent (`nfnetlink_rcv` in nfnetlink.c). An
//! answer for each connection, awaited before the next is sent, would take four times as long as
//! the removal itself.
//!
//! Must not know which connections are removed, and why.

use std::io;

use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, Nla as _,
};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterProtoFamily,
    conntrack::{ConntrackAttribute, ConntrackMessage},
};
use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};
use nix::libc::{EINVAL, ENOENT, EOPNOTSUPP, MSG_DONTWAIT};

use crate::netlink::dump::messages;

/// `linux/netfilter/nfnetlink_conntrack.h`.
const IPCTNL_MSG_CT_DELETE: u8 = 2;
/// The zone, a part of a connection's identity.
const CTA_ZONE: u16 = 18;
/// Requests that are sent together. The kernel answers those that it cannot carry out: this many
/// answers fit into the socket's buffer of 208 kB, at up to 1.3 kB each.
const TOGETHER: usize = 64;
/// Size of the receive buffer in bytes: an answer quotes the request, which has some 150 bytes.
const ANSWER: usize = 8 * 1024;

/// Connections that are being removed.
#[derive(Debug)]
pub(super) struct Removal {
    socket: Socket,
    /// The requests that are not sent yet.
    requests: Vec<u8>,
    count: usize,
    removed: usize,
    /// The first refusal. Nothing more is requested after it.
    refused: Option<io::Error>,
    answer: Vec<u8>,
}

impl Removal {
    /// Opens a socket of the namespace that this thread is in.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self {
            socket: Socket::new(NETLINK_NETFILTER)?,
            requests: Vec::new(),
            count: 0,
            removed: 0,
            refused: None,
            answer: Vec::with_capacity(ANSWER),
        })
    }

    /// Removes all connections of a family that match the filter. Returns whether the kernel could
    /// (`ctnetlink_del_conntrack` in nf_conntrack_netlink.c, since Linux 6.11). An older one
    /// expects the identity of one connection, finds a part of it missing, and removes nothing.
    ///
    /// # Errors
    /// The kernel refuses for another reason.
    pub(super) fn remove_all(
        &mut self,
        family: NetfilterProtoFamily,
        filter: Vec<DefaultNla>,
    ) -> io::Result<bool> {
        let message =
            ConntrackMessage::Other { message_type: IPCTNL_MSG_CT_DELETE, attributes: filter };
        append(&mut self.requests, family, message, NLM_F_ACK);
        let mut outcome = None;
        self.exchange(|answer| outcome = Some(answer))?;
        match outcome {
            Some(Ok(())) => Ok(true),
            Some(Err(error)) if matches!(error.raw_os_error(), Some(EINVAL | EOPNOTSUPP)) => {
                Ok(false)
            }
            Some(Err(error)) => Err(error),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Removes the connection with these attributes, now or with the next ones.
    pub(super) fn add(
        &mut self,
        family: NetfilterProtoFamily,
        attributes: Vec<ConntrackAttribute>,
    ) {
        if self.refused.is_some() {
            return;
        }
        let identity = attributes.into_iter().filter(|attribute| match attribute {
            ConntrackAttribute::CtaTupleOrig(_) => true,
            ConntrackAttribute::Other(other) => other.kind() == CTA_ZONE,
            _ => false,
        });
        append(&mut self.requests, family, ConntrackMessage::Delete(identity.collect()), 0);
        self.count += 1;
        if self.count == TOGETHER {
            self.send();
        }
    }

    /// Removes those that are left. Returns how many were removed one by one.
    ///
    /// # Errors
    /// The kernel has refused to remove one.
    pub(super) fn finish(mut self) -> io::Result<usize> {
        self.send();
        self.refused.map_or(Ok(self.removed), Err)
    }

    fn send(&mut self) {
        let count = std::mem::take(&mut self.count);
        if count == 0 {
            return;
        }
        let (mut not_removed, mut refused) = (0, None);
        let sent = self.exchange(|answer| {
            let Err(error) = answer else { return };
            not_removed += 1;
            // The connection ended by itself meanwhile.
            if error.raw_os_error() != Some(ENOENT) {
                refused.get_or_insert(error);
            }
        });
        self.removed += count.saturating_sub(not_removed);
        self.refused = sent.err().or(refused);
    }

    /// Sends the requests, and hands over the answers, which are there then: the refusals, and the
    /// acknowledgements of requests that ask for one.
    fn exchange(&mut self, mut each: impl FnMut(io::Result<()>)) -> io::Result<()> {
        let sent = self.socket.send(&self.requests, 0);
        self.requests.clear();
        sent?;
        loop {
            self.answer.clear();
            match self.socket.recv(&mut self.answer, MSG_DONTWAIT) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            for message in messages::<NetfilterMessage>(&self.answer) {
                if let NetlinkPayload::Error(error) = message?.payload {
                    // An error without a code is an acknowledgement (netlink(7)).
                    each(if error.code.is_some() { Err(error.to_io()) } else { Ok(()) });
                }
            }
        }
    }
}

fn append(
    requests: &mut Vec<u8>,
    family: NetfilterProtoFamily,
    message: ConntrackMessage,
    more_flags: u16,
) {
    let mut message =
        NetlinkMessage::from(NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), message));
    message.header.flags = NLM_F_REQUEST | more_flags;
    message.finalize();
    let begin = requests.len();
    // Each begins at a multiple of four bytes (netlink(7)).
    requests.resize(begin + message.buffer_len().next_multiple_of(4), 0);
    message.serialize(&mut requests[begin..begin + message.buffer_len()]);
}
