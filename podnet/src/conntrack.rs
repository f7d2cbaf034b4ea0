//! Connections of addresses that are no longer there: the kernel would keep sending their packets where the pod was, and the next
//! pod of the same address would inherit them.

use std::{io, net::IpAddr};

use futures_util::StreamExt;
use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED, NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
    conntrack::{ConntrackAttribute, ConntrackMessage, IPTuple, Tuple},
};
use netlink_proto::ConnectionHandle;
use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::netlink::dump::dump;

// Of `linux/netfilter/nfnetlink_conntrack.h`.

const IPCTNL_MSG_CT_GET: u8 = 1;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
/// Part of what identifies a connection.
const CTA_ZONE: u16 = 18;
/// Which parts of the tuples beside it a connection has to have: for each direction a number with a bit for each part.
const CTA_FILTER: u16 = 25;
const CTA_FILTER_ORIG_FLAGS: u16 = 1;
const CTA_FILTER_REPLY_FLAGS: u16 = 2;
/// The bit of the source address (`net/netfilter/nf_internals.h`).
const CTA_FILTER_F_CTA_IP_SRC: u32 = 1;

/// With more addresses than this it is cheaper to have everything listed once than to have the kernel go through its table twice for each.
const MOST_FILTERED: usize = 8;

/// Whether the kernel tracks any connection of this namespace. Looking for those of an address walks a table of some hundred thousand
/// buckets even if it is empty.
pub fn has_connections() -> bool {
    let count = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count");
    count.is_ok_and(|count| count.trim() != "0")
}

/// Who sends in one direction of a connection: a pod does in one of them. An address that is only ever a destination is translated to another
/// before it reaches anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    /// Of the first packet.
    Original,
    /// Of the reply to it.
    Reply,
}

impl Sender {
    const ALL: [Self; 2] = [Self::Original, Self::Reply];

    /// What makes the kernel list only connections with this sender (`ctnetlink_alloc_filter` in nf_conntrack_netlink.c, since Linux 5.8). An
    /// older kernel ignores it.
    fn filter(self, address: IpAddr) -> Vec<DefaultNla> {
        let (tuple, flags) = match self {
            Self::Original => (CTA_TUPLE_ORIG, CTA_FILTER_ORIG_FLAGS),
            Self::Reply => (CTA_TUPLE_REPLY, CTA_FILTER_REPLY_FLAGS),
        };
        // In the byte order of the machine, as nothing else here is.
        let bits = DefaultNla::new(flags, CTA_FILTER_F_CTA_IP_SRC.to_ne_bytes().to_vec());
        vec![nested(tuple, &Tuple::Ip(vec![IPTuple::SourceAddress(address)])), nested(CTA_FILTER, &bits)]
    }
}

/// An attribute that holds another. The library's own type for attributes that it does not know forgets to mark them as such, which the
/// kernel insists on.
fn nested(kind: u16, inner: &impl Emitable) -> DefaultNla {
    let mut value = vec![0; inner.buffer_len()];
    inner.emit(&mut value);
    DefaultNla::new(kind | NLA_F_NESTED, value)
}

/// What a flush did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Connections that were removed.
    pub connections: usize,
    /// Those that the kernel listed for it.
    pub listed: usize,
}

/// Removes every tracked connection from or to one of the addresses.
pub async fn flush(addresses: &[IpAddr]) -> io::Result<Flushed> {
    let (connection, mut netlink, _) = netlink_proto::new_connection(NETLINK_NETFILTER)?;
    tokio::spawn(connection);
    let mut flushed = Flushed::default();
    for family in [NetfilterProtoFamily::IPv4, NetfilterProtoFamily::IPv6] {
        let is_v4 = matches!(family, NetfilterProtoFamily::IPv4);
        let wanted: Vec<IpAddr> = addresses.iter().copied().filter(|address| address.is_ipv4() == is_v4).collect();
        let questions: Vec<Option<(Sender, IpAddr)>> = match wanted.as_slice() {
            [] => continue,
            few if few.len() <= MOST_FILTERED => {
                few.iter().flat_map(|address| Sender::ALL.map(|sender| Some((sender, *address)))).collect()
            }
            _ => vec![None],
        };
        for question in questions {
            let List { found, count, is_whole } = list(family, &wanted, question).await?;
            flushed.listed += count;
            for identity in found {
                match delete(&mut netlink, family, identity).await {
                    // It ended by itself in the meantime.
                    Err(error) if error.raw_os_error() == Some(nix::libc::ENOENT) => {}
                    other => flushed.connections += other.map(|()| 1)?,
                }
            }
            if is_whole {
                break;
            }
        }
    }
    Ok(flushed)
}

/// What the kernel has listed.
struct List {
    /// What identifies each connection from or to one of the addresses.
    found: Vec<Vec<ConntrackAttribute>>,
    count: usize,
    /// The kernel has listed all that it tracks, whatever it was asked for.
    is_whole: bool,
}

/// Lists the connections of a family with this sender, or all of them.
async fn list(family: NetfilterProtoFamily, addresses: &[IpAddr], question: Option<(Sender, IpAddr)>) -> io::Result<List> {
    let attributes = question.map(|(sender, address)| sender.filter(address)).unwrap_or_default();
    let asked = ConntrackMessage::Other { message_type: IPCTNL_MSG_CT_GET, attributes };
    let request = NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), asked);
    let mut list = List { found: Vec::new(), count: 0, is_whole: question.is_none() };
    let dumped = dump(NETLINK_NETFILTER, request, |answer| {
        let NetfilterMessageInner::Conntrack(ConntrackMessage::New(attributes)) = answer.inner else { return };
        list.count += 1;
        list.is_whole |= question.is_some_and(|(_, address)| !endpoints(&attributes).any(|endpoint| endpoint == address));
        if endpoints(&attributes).any(|endpoint| addresses.contains(&endpoint)) {
            let identity = attributes.into_iter().filter(|attribute| match attribute {
                ConntrackAttribute::CtaTupleOrig(_) => true,
                ConntrackAttribute::Other(other) => netlink_packet_core::Nla::kind(other) == CTA_ZONE,
                _ => false,
            });
            list.found.push(identity.collect());
        }
    });
    dumped.await?;
    Ok(list)
}

/// All four ends of a connection: of its first packet and of the reply to it, which differ where addresses are translated.
pub fn endpoints(attributes: &[ConntrackAttribute]) -> impl Iterator<Item = IpAddr> {
    attributes
        .iter()
        .filter_map(|attribute| match attribute {
            ConntrackAttribute::CtaTupleOrig(tuple) | ConntrackAttribute::CtaTupleReply(tuple) => Some(tuple),
            _ => None,
        })
        .flatten()
        .filter_map(|part| match part {
            Tuple::Ip(ends) => Some(ends),
            _ => None,
        })
        .flatten()
        .filter_map(|end| match end {
            IPTuple::SourceAddress(address) | IPTuple::DestinationAddress(address) => Some(*address),
            _ => None,
        })
}

/// Removes one connection.
async fn delete(
    netlink: &mut ConnectionHandle<NetfilterMessage>,
    family: NetfilterProtoFamily,
    identity: Vec<ConntrackAttribute>,
) -> io::Result<()> {
    let inner = ConntrackMessage::Delete(identity);
    let mut message = NetlinkMessage::from(NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), inner));
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    let mut answers = netlink.request(message, netlink_sys::SocketAddr::new(0, 0)).map_err(io::Error::other)?;
    while let Some(answer) = answers.next().await {
        match answer.payload {
            NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
            _ => {}
        }
    }
    Ok(())
}
