//! Streaming netlink dumps: each message is handled before the next is read. A parsed message takes
//! fifty times the memory of what the callers keep of it, and netlink-proto queues the whole dump
//! before its first message is read: ten megabytes for the links of 500 pods, hundreds for a table
//! of connections.
//!
//! Must not know what is dumped.

use std::io;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, TokioSocket};

/// Size of a receive buffer in bytes: the kernel puts no more into one datagram, and into those of
/// a dump as much as the largest buffer takes that the socket was read with (`netlink_recvmsg` in
/// af_netlink.c). A small one costs: the kernel goes through a set of nftables from its beginning
/// for each datagram.
pub(super) const DATAGRAM: usize = 32 * 1024;

/// Reads the next datagram into the buffer, in place of what is there.
pub(super) async fn receive(socket: &TokioSocket, datagram: &mut Vec<u8>) -> io::Result<()> {
    datagram.clear();
    datagram.reserve(DATAGRAM);
    socket.recv(datagram).await
}

/// How often a list is requested that changes while the kernel makes it. Five attempts outlast a
/// few changes; a storm of changes is not waited for.
pub const MOST_TRIES: usize = 5;

/// Whether a list has to be requested again: it changed while the kernel made it, so that entries
/// may be missing or be there twice (`NLM_F_DUMP_INTR`, netlink(7)).
pub fn is_torn(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

/// The error of such a list.
pub(crate) fn torn() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the list changed while the kernel made it")
}

/// Sends `request` to a netlink family (`NETLINK_ROUTE`, …) of the namespace that this thread is
/// in, and passes each answer to `take` before the next is read. Needs a tokio runtime.
///
/// # Errors
/// The kernel refuses; or the list [`is_torn`], after all its answers were passed on.
pub async fn dump<M: NetlinkSerializable + NetlinkDeserializable>(
    family: isize,
    request: M,
    mut take: impl FnMut(M),
) -> io::Result<()> {
    let mut request =
        NetlinkMessage::new(Default::default(), NetlinkPayload::InnerMessage(request));
    request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    // A socket of its own: no other answers come in between, and dropping this future ends the
    // dump.
    let mut socket = TokioSocket::new(family)?;
    socket.socket_mut().bind_auto()?;
    socket.send(&bytes).await?;
    let (mut interrupted, mut datagram) = (false, Vec::new());
    loop {
        receive(&socket, &mut datagram).await?;
        for message in messages(&datagram) {
            let NetlinkMessage { header, payload, .. } = message?;
            // Any message of the dump may have the flag.
            interrupted |= header.flags & NLM_F_DUMP_INTR != 0;
            match payload {
                NetlinkPayload::InnerMessage(answer) => take(answer),
                NetlinkPayload::Done(done) if done.code < 0 => {
                    return Err(io::Error::from_raw_os_error(-done.code));
                }
                NetlinkPayload::Done(_) if interrupted => return Err(torn()),
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => {}
            }
        }
    }
}

/// The messages of one datagram, up to the first that cannot be parsed.
///
/// # Errors
/// Of one message: its length or its content is not that of such a message. It is the last one.
pub fn messages<M: NetlinkDeserializable>(
    mut datagram: &[u8],
) -> impl Iterator<Item = io::Result<NetlinkMessage<M>>> {
    std::iter::from_fn(move || {
        if datagram.is_empty() {
            return None;
        }
        let message = NetlinkMessage::<M>::deserialize(datagram).map_err(io::Error::other);
        // Each begins at a multiple of four bytes (netlink(7)).
        let length =
            message.as_ref().map_or(datagram.len(), |message| message.header.length as usize);
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

#[cfg(test)]
mod torn;

#[cfg(test)]
mod tests {
    use netlink_packet_route::{
        RouteNetlinkMessage,
        link::{LinkAttribute, LinkMessage},
    };

    use super::*;

    fn link(name: &str) -> Vec<u8> {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let mut message = NetlinkMessage::from(RouteNetlinkMessage::NewLink(link));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    fn names(datagram: &[u8]) -> Vec<String> {
        let name = |message: NetlinkMessage<RouteNetlinkMessage>| match message.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                format!("{:?}", link.attributes)
            }
            other => format!("{other:?}"),
        };
        messages(datagram)
            .map(|message| message.map_or_else(|_| "nonsense".to_owned(), name))
            .collect()
    }

    #[test]
    fn a_datagram_has_any_number_of_messages() {
        assert_eq!(names(&[]), [""; 0]);
        assert_eq!(
            names(&[link("a"), link("four")].concat()),
            [r#"[IfName("a")]"#, r#"[IfName("four")]"#]
        );
    }

    #[test]
    fn what_makes_no_sense_ends_it() {
        let cut = link("b");
        assert_eq!(
            names(&[link("a"), cut[..cut.len() - 1].to_vec()].concat()),
            [r#"[IfName("a")]"#, "nonsense"]
        );
        assert_eq!(names(&[0; 64]), ["nonsense"]);
    }

    #[tokio::test]
    async fn every_namespace_has_a_loopback_and_a_refusal_is_an_error() {
        let links = crate::link::list().await.unwrap();
        let lo = links.iter().find(|link| link.name == "lo").unwrap();
        assert!(lo.index > 0 && !lo.is_veth, "{lo:?}");
        let error = dump(
            netlink_sys::protocols::NETLINK_ROUTE,
            RouteNetlinkMessage::NewLink(LinkMessage::default()),
            |_| {},
        )
        .await;
        assert!(error.is_err(), "a dump of something that cannot be dumped");
    }
}
