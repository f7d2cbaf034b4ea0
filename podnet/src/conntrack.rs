//! Tracked connections of addresses that are no longer there. The kernel would keep sending their packets to
//! where the pod was, and the next pod with the same address would inherit them.
//!
//! Likewise those of Services whose endpoint is gone: they are translated to it for as long as the client
//! sends.

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, SocketAddr},
};

use futures_util::StreamExt;
use netlink_packet_core::{
    DefaultNla, Emitable, NLA_F_NESTED, NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
    conntrack::{ConntrackAttribute, ConntrackMessage, IPTuple, ProtoTuple, Protocol, Tuple},
};
use netlink_proto::ConnectionHandle;
use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::netlink::dump::dump;

// Constants of `linux/netfilter/nfnetlink_conntrack.h`.

const IPCTNL_MSG_CT_GET: u8 = 1;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
/// The zone, a part of a connection's identity.
const CTA_ZONE: u16 = 18;
/// The parts of the tuples beside it that have to match: for each direction a number with a bit for each
/// part.
const CTA_FILTER: u16 = 25;
const CTA_FILTER_ORIG_FLAGS: u16 = 1;
const CTA_FILTER_REPLY_FLAGS: u16 = 2;
/// The bit of the source address (`net/netfilter/nf_internals.h`).
const CTA_FILTER_F_CTA_IP_SRC: u32 = 1;

/// With more addresses than this, one list of the whole table is cheaper than to have the kernel go through
/// its table twice for each address.
const MOST_FILTERED: usize = 8;

/// Whether the kernel tracks any connection of this namespace. A search for the connections of an address
/// walks a table of some hundred thousand buckets even if it is empty.
pub fn has_connections() -> bool {
    let count = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count");
    count.is_ok_and(|count| count.trim() != "0")
}

/// The direction of a connection in which an address is the source. A pod's address is the source in one of
/// them: an address that is only ever a destination is translated before the packet arrives anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    /// The first packet.
    Original,
    /// The reply to it.
    Reply,
}

impl Sender {
    const ALL: [Self; 2] = [Self::Original, Self::Reply];

    /// The attributes that make the kernel list only connections with this source (`ctnetlink_alloc_filter`
    /// in nf_conntrack_netlink.c, since Linux 5.8). An older kernel ignores them.
    fn filter(self, address: IpAddr) -> Vec<DefaultNla> {
        let (tuple, flags) = match self {
            Self::Original => (CTA_TUPLE_ORIG, CTA_FILTER_ORIG_FLAGS),
            Self::Reply => (CTA_TUPLE_REPLY, CTA_FILTER_REPLY_FLAGS),
        };
        // In the byte order of the machine, unlike all other numbers here.
        let bits = DefaultNla::new(flags, CTA_FILTER_F_CTA_IP_SRC.to_ne_bytes().to_vec());
        vec![nested(tuple, &Tuple::Ip(vec![IPTuple::SourceAddress(address)])), nested(CTA_FILTER, &bits)]
    }
}

/// An attribute that contains another one. The library's type for unknown attributes does not set
/// `NLA_F_NESTED`, and the kernel insists on it.
fn nested(kind: u16, inner: &impl Emitable) -> DefaultNla {
    let mut value = vec![0; inner.buffer_len()];
    inner.emit(&mut value);
    DefaultNla::new(kind | NLA_F_NESTED, value)
}

/// UDP connections to a Service that are translated to what it does not have any more. Without an address
/// and without an endpoint: those that are not translated, from before there was the NodePort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stale {
    /// The Service's address; `None` for any, as with a NodePort.
    pub address: Option<IpAddr>,
    pub port: u16,
    /// The endpoint that is gone; `None` for any, as with a Service that is gone.
    pub endpoint: Option<SocketAddr>,
}

/// A UDP connection whose first packet went to `to`, and was translated to `by`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Translated {
    pub to: SocketAddr,
    /// Where the replies come from.
    pub by: SocketAddr,
}

impl Translated {
    fn of(attributes: &[ConntrackAttribute]) -> Option<Self> {
        let [original, reply] = ends(attributes);
        let to = SocketAddr::new(original.to?, original.port_to?);
        let by = SocketAddr::new(reply.from?, reply.port_from?);
        (original.is_udp && to != by).then_some(Self { to, by })
    }
}

/// The UDP connections with a translated destination, each pair once. Needs a tokio runtime.
///
/// # Errors
/// The kernel does not track connections, or refuses to list them.
pub async fn translated() -> io::Result<BTreeSet<Translated>> {
    let mut found = BTreeSet::new();
    for family in [NetfilterProtoFamily::IPv4, NetfilterProtoFamily::IPv6] {
        let collect = |attributes: &[ConntrackAttribute]| {
            found.extend(Translated::of(attributes));
            false
        };
        list(family, None, collect).await?;
    }
    Ok(found)
}

impl Stale {
    /// Whether it means connections of this family.
    fn is_of(&self, family: NetfilterProtoFamily) -> bool {
        let is_v4 = matches!(family, NetfilterProtoFamily::IPv4);
        let address = self.endpoint.map(|endpoint| endpoint.ip()).or(self.address);
        address.is_none_or(|address| address.is_ipv4() == is_v4)
    }

    /// Whether it means the connection with these tuples.
    fn means(&self, attributes: &[ConntrackAttribute]) -> bool {
        let [original, reply] = ends(attributes);
        original.is_udp
            && original.port_to == Some(self.port)
            && (self.address.is_none() || original.to == self.address)
            && match self.endpoint {
                Some(endpoint) => {
                    reply.from == Some(endpoint.ip()) && reply.port_from == Some(endpoint.port())
                }
                None if self.address.is_none() => {
                    reply.from == original.to && reply.port_from == original.port_to
                }
                None => true,
            }
    }
}

/// A connection in the direction of its first packet, and in that of the reply.
fn ends(attributes: &[ConntrackAttribute]) -> [End; 2] {
    let (mut original, mut reply) = (End::default(), End::default());
    for attribute in attributes {
        match attribute {
            ConntrackAttribute::CtaTupleOrig(tuple) => original = End::of(tuple),
            ConntrackAttribute::CtaTupleReply(tuple) => reply = End::of(tuple),
            _ => {}
        }
    }
    [original, reply]
}

/// What identifies a connection in one direction.
#[derive(Debug, Default)]
struct End {
    is_udp: bool,
    from: Option<IpAddr>,
    to: Option<IpAddr>,
    port_from: Option<u16>,
    port_to: Option<u16>,
}

impl End {
    fn of(tuple: &[Tuple]) -> Self {
        let mut end = Self::default();
        for part in tuple {
            match part {
                Tuple::Ip(parts) => parts.iter().for_each(|part| match part {
                    IPTuple::SourceAddress(address) => end.from = Some(*address),
                    IPTuple::DestinationAddress(address) => end.to = Some(*address),
                    _ => {}
                }),
                Tuple::Proto(parts) => parts.iter().for_each(|part| match part {
                    ProtoTuple::Protocol(protocol) => end.is_udp = *protocol == Protocol::Udp,
                    ProtoTuple::SourcePort(port) => end.port_from = Some(*port),
                    ProtoTuple::DestinationPort(port) => end.port_to = Some(*port),
                    _ => {}
                }),
                _ => {}
            }
        }
        end
    }
}

/// Removes the stale connections. Returns how many there were. Needs a tokio runtime.
///
/// # Errors
/// As for [`flush`].
pub async fn flush_stale(stale: &[Stale]) -> io::Result<usize> {
    let (connection, mut netlink, _) = netlink_proto::new_connection(NETLINK_NETFILTER)?;
    tokio::spawn(connection);
    let mut flushed = 0;
    for family in [NetfilterProtoFamily::IPv4, NetfilterProtoFamily::IPv6] {
        let wanted: Vec<Stale> = stale.iter().copied().filter(|stale| stale.is_of(family)).collect();
        if wanted.is_empty() {
            continue;
        }
        let mut endpoints: Option<Vec<IpAddr>> =
            wanted.iter().map(|stale| stale.endpoint.map(|endpoint| endpoint.ip())).collect();
        if let Some(endpoints) = &mut endpoints {
            endpoints.sort_unstable();
            endpoints.dedup();
        }
        let questions: Vec<Option<(Sender, IpAddr)>> = match endpoints {
            // The endpoint is where the replies come from.
            Some(few) if few.len() <= MOST_FILTERED => {
                few.into_iter().map(|endpoint| Some((Sender::Reply, endpoint))).collect()
            }
            Some(_) | None => vec![None],
        };
        for question in questions {
            let matches =
                |attributes: &[ConntrackAttribute]| wanted.iter().any(|stale| stale.means(attributes));
            let List { found, is_whole, .. } = list(family, question, matches).await?;
            for identity in found {
                match delete(&mut netlink, family, identity).await {
                    Err(error) if error.raw_os_error() == Some(nix::libc::ENOENT) => {}
                    other => flushed += other.map(|()| 1)?,
                }
            }
            if is_whole {
                break;
            }
        }
    }
    Ok(flushed)
}

/// The outcome of a flush.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Number of connections that were removed.
    pub connections: usize,
    /// Number of connections that the kernel listed for it.
    pub listed: usize,
}

/// Removes every tracked connection from or to one of the addresses. Needs a tokio runtime.
///
/// # Errors
/// The kernel does not track connections, or refuses to list them or to remove one.
pub async fn flush(addresses: &[IpAddr]) -> io::Result<Flushed> {
    let (connection, mut netlink, _) = netlink_proto::new_connection(NETLINK_NETFILTER)?;
    tokio::spawn(connection);
    let mut flushed = Flushed::default();
    for family in [NetfilterProtoFamily::IPv4, NetfilterProtoFamily::IPv6] {
        let is_v4 = matches!(family, NetfilterProtoFamily::IPv4);
        let wanted: Vec<IpAddr> =
            addresses.iter().copied().filter(|address| address.is_ipv4() == is_v4).collect();
        let questions: Vec<Option<(Sender, IpAddr)>> = match wanted.as_slice() {
            [] => continue,
            few if few.len() <= MOST_FILTERED => {
                few.iter().flat_map(|address| Sender::ALL.map(|sender| Some((sender, *address)))).collect()
            }
            // `None` lists the whole table of the family.
            _ => vec![None],
        };
        for question in questions {
            let matches = |attributes: &[ConntrackAttribute]| {
                endpoints(attributes).any(|endpoint| wanted.contains(&endpoint))
            };
            let List { found, count, is_whole } = list(family, question, matches).await?;
            flushed.listed += count;
            for identity in found {
                match delete(&mut netlink, family, identity).await {
                    // The connection ended by itself meanwhile.
                    Err(error) if error.raw_os_error() == Some(nix::libc::ENOENT) => {}
                    other => flushed.connections += other.map(|()| 1)?,
                }
            }
            // An older kernel has ignored the filter and listed everything: the other questions are answered.
            if is_whole {
                break;
            }
        }
    }
    Ok(flushed)
}

/// The connections that the kernel has listed.
struct List {
    /// The identity of each connection that is looked for.
    found: Vec<Vec<ConntrackAttribute>>,
    count: usize,
    /// The kernel has listed its whole table, with or without a filter.
    is_whole: bool,
}

/// Lists the connections of a family with this source, or all of them.
async fn list(
    family: NetfilterProtoFamily,
    question: Option<(Sender, IpAddr)>,
    mut matches: impl FnMut(&[ConntrackAttribute]) -> bool,
) -> io::Result<List> {
    let attributes = question.map(|(sender, address)| sender.filter(address)).unwrap_or_default();
    let asked = ConntrackMessage::Other { message_type: IPCTNL_MSG_CT_GET, attributes };
    let request = NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), asked);
    let mut list = List { found: Vec::new(), count: 0, is_whole: question.is_none() };
    let dumped = dump(NETLINK_NETFILTER, request, |answer| {
        let NetfilterMessageInner::Conntrack(ConntrackMessage::New(attributes)) = answer.inner else {
            return;
        };
        list.count += 1;
        // A connection without the address shows that the kernel has ignored the filter.
        list.is_whole |=
            question.is_some_and(|(_, address)| !endpoints(&attributes).any(|endpoint| endpoint == address));
        if matches(&attributes) {
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

/// All four addresses of a connection: source and destination of its first packet and of the reply to it,
/// which differ if addresses are translated.
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
    let mut answers =
        netlink.request(message, netlink_sys::SocketAddr::new(0, 0)).map_err(io::Error::other)?;
    while let Some(answer) = answers.next().await {
        match answer.payload {
            NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
            _ => {}
        }
    }
    Ok(())
}
