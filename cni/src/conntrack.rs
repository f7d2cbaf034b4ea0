//! Connections of addresses that are no longer there: the kernel would keep sending their packets where the pod was, and the next
//! pod of the same address would inherit them.

use std::{io, net::IpAddr};

use futures_util::StreamExt;
use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
    conntrack::{ConntrackAttribute, ConntrackMessage, IPTuple, Tuple},
};
use netlink_proto::ConnectionHandle;
use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::dump::dump;

/// `CTA_ZONE` of `linux/netfilter/nfnetlink_conntrack.h`: part of what identifies a connection.
const CTA_ZONE: u16 = 18;

/// Whether the kernel tracks any connection of this namespace. Looking for those of an address walks a table of some hundred thousand
/// buckets even if it is empty.
pub fn has_connections() -> bool {
    let count = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count");
    count.is_ok_and(|count| count.trim() != "0")
}

/// Removes every tracked connection from or to one of the addresses, and says how many there were.
pub async fn flush(addresses: &[IpAddr]) -> io::Result<usize> {
    let families = [(NetfilterProtoFamily::IPv4, true), (NetfilterProtoFamily::IPv6, false)];
    let families = families.into_iter().filter(|(_, is_v4)| addresses.iter().any(|address| address.is_ipv4() == *is_v4));
    let (connection, mut netlink, _) = netlink_proto::new_connection(NETLINK_NETFILTER)?;
    tokio::spawn(connection);

    let mut flushed = 0;
    for (family, _) in families {
        for tracked in of_addresses(family, addresses).await? {
            let identity = tracked.into_iter().filter(|attribute| match attribute {
                ConntrackAttribute::CtaTupleOrig(_) => true,
                ConntrackAttribute::Other(other) => netlink_packet_core::Nla::kind(other) == CTA_ZONE,
                _ => false,
            });
            match delete(&mut netlink, family, identity.collect()).await {
                // It ended by itself in the meantime.
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOENT) => {}
                other => flushed += other.map(|_| 1)?,
            }
        }
    }
    Ok(flushed)
}

/// The tracked connections of a family from or to one of the addresses.
async fn of_addresses(family: NetfilterProtoFamily, addresses: &[IpAddr]) -> io::Result<Vec<Vec<ConntrackAttribute>>> {
    let all = NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), ConntrackMessage::Get(Vec::new()));
    let mut found = Vec::new();
    let dumped = dump(NETLINK_NETFILTER, all, |answer| {
        if let NetfilterMessageInner::Conntrack(ConntrackMessage::New(attributes)) = answer.inner
            && endpoints(&attributes).any(|endpoint| addresses.contains(&endpoint))
        {
            found.push(attributes);
        }
    });
    dumped.await?;
    Ok(found)
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
