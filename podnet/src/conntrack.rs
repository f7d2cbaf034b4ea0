//! Tracked connections of addresses that are no longer there. The kernel would keep sending their
//! packets to where the pod was, and the next pod with the same address would inherit them.
//!
//! Likewise those of Services whose endpoint is gone: they are translated to it for as long as the
//! client sends.

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
    conntrack::{ConntrackAttribute, ConntrackMessage, IPTuple, ProtoTuple, Protocol, Tuple},
};
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::{net::if_::if_nametoindex, sys::utsname::uname};

use self::removal::Removal;
use crate::netlink::dump::dump;

mod removal;

// Constants of `linux/netfilter/nfnetlink_conntrack.h`.

const IPCTNL_MSG_CT_GET: u8 = 1;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
/// The parts of the tuples beside it that have to match: for each direction a number with a bit for
/// each part.
const CTA_FILTER: u16 = 25;
const CTA_FILTER_ORIG_FLAGS: u16 = 1;
const CTA_FILTER_REPLY_FLAGS: u16 = 2;
/// The bit of the source address (`net/netfilter/nf_internals.h`).
const CTA_FILTER_F_CTA_IP_SRC: u32 = 1;

/// With more addresses than this, one list of the whole table is cheaper than to have the kernel go
/// through its table twice for each address.
const MOST_FILTERED: usize = 8;

/// So many connections take a second of ovs-vswitchd, which has to read them all, to flush a zone.
const MANY: u64 = 100_000;
/// Linux lists the connections of one zone alone from this release on (`ctnetlink_alloc_filter`).
const LISTS_ZONES: (u32, u32) = (6, 8);
/// The device of the kernel's datapath, in the namespace of its ovs-vswitchd.
const KERNEL_DATAPATH: &str = "ovs-system";

/// Whether the kernel tracks any connection of this namespace. A search for the connections of an
/// address walks a table of some hundred thousand buckets even if it is empty.
pub fn has_connections() -> bool {
    count().is_some_and(|count| count > 0)
}

/// Number of connections that the kernel tracks in this namespace. None if it tracks none at all.
fn count() -> Option<u64> {
    std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count").ok()?.trim().parse().ok()
}

/// Why ovs-vswitchd may stand still for seconds: the zone of each new pod is flushed. None if that
/// cannot be it.
pub fn why_zones_are_slow() -> Option<String> {
    if_nametoindex(KERNEL_DATAPATH).ok()?;
    let kernel = uname().ok()?;
    zones_are_slow(kernel.release().to_str()?, count()?)
}

fn zones_are_slow(release: &str, count: u64) -> Option<String> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit()).map(str::parse);
    let version: (u32, u32) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    (count >= MANY && version < LISTS_ZONES).then(|| {
        format!(
            "the kernel tracks {count} connections, and ovs-vswitchd reads all of them for each new pod before Linux \
             6.8 (this is {release}; see \"When all ADDs of a busy node stand still\" in docs/troubleshooting.md)"
        )
    })
}

/// The direction of a connection in which an address is the source. A pod's address is the source
/// in one of them: an address that is only ever a destination is translated before the packet
/// arrives anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    /// The first packet.
    Original,
    /// The reply to it.
    Reply,
}

impl Sender {
    const ALL: [Self; 2] = [Self::Original, Self::Reply];

    /// The attributes that make the kernel list only connections with this source
    /// (`ctnetlink_alloc_filter` in nf_conntrack_netlink.c, since Linux 5.8). An older kernel
    /// ignores them.
    ///
    /// For IPv4 alone: an IPv6 address makes the kernel list all connections but those with this
    /// source (`ctnetlink_filter_match_tuple` takes the result of a comparison for its opposite;
    /// seen in Linux 6.18).
    fn filter(self, address: Ipv4Addr) -> Vec<DefaultNla> {
        let (tuple, flags) = match self {
            Self::Original => (CTA_TUPLE_ORIG, CTA_FILTER_ORIG_FLAGS),
            Self::Reply => (CTA_TUPLE_REPLY, CTA_FILTER_REPLY_FLAGS),
        };
        // In the byte order of the machine, unlike all other numbers here.
        let bits = DefaultNla::new(flags, CTA_FILTER_F_CTA_IP_SRC.to_ne_bytes().to_vec());
        vec![
            nested(tuple, &Tuple::Ip(vec![IPTuple::SourceAddress(address.into())])),
            nested(CTA_FILTER, &bits),
        ]
    }
}

/// An attribute that contains another one. The library's type for unknown attributes does not set
/// `NLA_F_NESTED`, and the kernel insists on it.
fn nested(kind: u16, inner: &impl Emitable) -> DefaultNla {
    let mut value = vec![0; inner.buffer_len()];
    inner.emit(&mut value);
    DefaultNla::new(kind | NLA_F_NESTED, value)
}

/// UDP connections to a Service that are translated to what it does not have any more, or not
/// translated though they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stale {
    /// The Service's address; `None` for any, as with a NodePort.
    pub address: Option<IpAddr>,
    pub port: u16,
    pub end: StaleEnd,
}

/// Where stale connections lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StaleEnd {
    /// To this endpoint, which is gone.
    Endpoint(SocketAddr),
    /// Anywhere: the Service is gone.
    Any,
    /// To the very address that the client sends to, from before there was the Service.
    Itself,
}

impl StaleEnd {
    fn endpoint(self) -> Option<SocketAddr> {
        match self {
            Self::Endpoint(endpoint) => Some(endpoint),
            Self::Any | Self::Itself => None,
        }
    }
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
        list(family, None, |attributes| found.extend(Translated::of(&attributes))).await?;
    }
    Ok(found)
}

impl Stale {
    /// Whether it means connections of this family.
    fn is_of(&self, family: NetfilterProtoFamily) -> bool {
        let is_v4 = matches!(family, NetfilterProtoFamily::IPv4);
        let address = self.end.endpoint().map(|endpoint| endpoint.ip()).or(self.address);
        address.is_none_or(|address| address.is_ipv4() == is_v4)
    }

    /// Whether it means the connection with these tuples.
    fn means(&self, attributes: &[ConntrackAttribute]) -> bool {
        let [original, reply] = ends(attributes);
        original.is_udp
            && original.port_to == Some(self.port)
            && (self.address.is_none() || original.to == self.address)
            && match self.end {
                StaleEnd::Endpoint(endpoint) => {
                    reply.from == Some(endpoint.ip()) && reply.port_from == Some(endpoint.port())
                }
                StaleEnd::Any => true,
                StaleEnd::Itself => {
                    reply.from == original.to && reply.port_from == original.port_to
                }
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
    let mut removal = Removal::open()?;
    for family in [NetfilterProtoFamily::IPv4, NetfilterProtoFamily::IPv6] {
        let wanted: Vec<Stale> =
            stale.iter().copied().filter(|stale| stale.is_of(family)).collect();
        if wanted.is_empty() {
            continue;
        }
        // The endpoint is where the replies come from.
        let endpoints: Option<BTreeSet<Ipv4Addr>> =
            wanted.iter().map(|stale| of_v4(stale.end.endpoint()?.ip())).collect();
        let questions: Vec<Question> = match endpoints {
            Some(few) if few.len() <= MOST_FILTERED => {
                few.into_iter().map(|endpoint| Some((Sender::Reply, endpoint))).collect()
            }
            Some(_) | None => vec![None],
        };
        remove_listed(&mut removal, family, &questions, |attributes| {
            wanted.iter().any(|stale| stale.means(attributes))
        })
        .await?;
    }
    removal.finish()
}

/// The outcome of a flush.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Number of requests by which the kernel removed all connections with an address, without a
    /// list. It does not say how many there were.
    pub at_once: usize,
    /// Number of connections that were removed one by one.
    pub connections: usize,
    /// Number of connections that the kernel listed for that.
    pub listed: usize,
}

/// How connections with an address are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By the kernel, which looks for them itself.
    AtOnce,
    /// While the kernel lists them. For a kernel that knows no other way, for IPv6, and for many
    /// addresses.
    Listed,
}

/// Removes every tracked connection from or to one of the addresses. Blocks for as long as the
/// kernel looks through its table, up to a tenth of a second for a quarter of a million
/// connections, and a second if it removes that many by itself; where they are listed first (IPv6,
/// or Linux before 6.11), several times as long. Needs a tokio runtime.
///
/// # Errors
/// The kernel does not track connections, or refuses to list them or to remove one.
pub async fn flush(addresses: &[IpAddr]) -> io::Result<Flushed> {
    flush_by(Way::AtOnce, addresses).await
}

async fn flush_by(preferred: Way, addresses: &[IpAddr]) -> io::Result<Flushed> {
    let mut removal = Removal::open()?;
    let mut flushed = Flushed::default();
    for family in [NetfilterProtoFamily::IPv4, NetfilterProtoFamily::IPv6] {
        let is_v4 = matches!(family, NetfilterProtoFamily::IPv4);
        let wanted: Vec<IpAddr> =
            addresses.iter().copied().filter(|address| address.is_ipv4() == is_v4).collect();
        if wanted.is_empty() {
            continue;
        }
        let few: Option<Vec<Ipv4Addr>> = wanted.iter().copied().map(of_v4).collect();
        let (way, questions): (_, Vec<Question>) = match few {
            Some(few) if few.len() <= MOST_FILTERED => (
                preferred,
                few.iter()
                    .flat_map(|address| Sender::ALL.map(|sender| Some((sender, *address))))
                    .collect(),
            ),
            Some(_) | None => (Way::Listed, vec![None]),
        };
        let mut left = questions.as_slice();
        while let (Way::AtOnce, [Some((sender, address)), rest @ ..]) = (way, left)
            && removal.remove_all(family, sender.filter(*address))?
        {
            flushed.at_once += 1;
            left = rest;
        }
        let is_wanted = |attributes: &[ConntrackAttribute]| {
            endpoints(attributes).any(|endpoint| wanted.contains(&endpoint))
        };
        flushed.listed += remove_listed(&mut removal, family, left, is_wanted).await?;
    }
    flushed.connections = removal.finish()?;
    Ok(flushed)
}

/// Which connections of a family the kernel lists: those with this source, or its whole table.
type Question = Option<(Sender, Ipv4Addr)>;

/// Removes those of the listed connections that are wanted. Returns how many were listed.
async fn remove_listed(
    removal: &mut Removal,
    family: NetfilterProtoFamily,
    questions: &[Question],
    is_wanted: impl Fn(&[ConntrackAttribute]) -> bool,
) -> io::Result<usize> {
    let mut listed = 0;
    for question in questions {
        let Listed { count, is_whole } = list(family, *question, |attributes| {
            if is_wanted(&attributes) {
                removal.add(family, attributes);
            }
        })
        .await?;
        listed += count;
        // An older kernel has ignored the filter and listed everything: the other questions are
        // answered.
        if is_whole {
            break;
        }
    }
    Ok(listed)
}

fn of_v4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

/// What the kernel has listed.
#[derive(Debug)]
struct Listed {
    count: usize,
    /// It was the whole table, with or without a filter.
    is_whole: bool,
}

/// Hands over the connections of a family with this source, or all of them, one at a time. A
/// connection may be removed as soon as it is handed over: the kernel remembers the next one to
/// list.
async fn list(
    family: NetfilterProtoFamily,
    question: Question,
    mut each: impl FnMut(Vec<ConntrackAttribute>),
) -> io::Result<Listed> {
    let attributes = question.map(|(sender, address)| sender.filter(address)).unwrap_or_default();
    let asked = ConntrackMessage::Other { message_type: IPCTNL_MSG_CT_GET, attributes };
    let request = NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), asked);
    let mut listed = Listed { count: 0, is_whole: question.is_none() };
    let dumped = dump(NETLINK_NETFILTER, request, |answer| {
        let NetfilterMessageInner::Conntrack(ConntrackMessage::New(attributes)) = answer.inner
        else {
            return;
        };
        listed.count += 1;
        // A connection without the address shows that the kernel has ignored the filter.
        listed.is_whole |= question.is_some_and(|(_, address)| {
            !endpoints(&attributes).any(|endpoint| endpoint == IpAddr::V4(address))
        });
        each(attributes);
    });
    dumped.await?;
    Ok(listed)
}

/// All four addresses of a connection: source and destination of its first packet and of the reply
/// to it, which differ if addresses are translated.
pub fn endpoints(attributes: &[ConntrackAttribute]) -> impl Iterator<Item = IpAddr> {
    attributes
        .iter()
        .filter_map(|attribute| match attribute {
            ConntrackAttribute::CtaTupleOrig(tuple) | ConntrackAttribute::CtaTupleReply(tuple) => {
                Some(tuple)
            }
            _ => None,
        })
        .flatten()
        .filter_map(|part| match part {
            Tuple::Ip(ends) => Some(ends),
            _ => None,
        })
        .flatten()
        .filter_map(|end| match end {
            IPTuple::SourceAddress(address) | IPTuple::DestinationAddress(address) => {
                Some(*address)
            }
            _ => None,
        })
}

#[cfg(test)]
mod tests;
