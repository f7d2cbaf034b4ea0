//! Messages of the kernel, as far as this project reads them: all addresses of a tracked connection
//! and nothing else, after a round trip through the netlink library; and the attributes of a link.
//!
//! The library's parsing of bytes is not fuzzed: it expects well-formed attributes, which only the
//! kernel sends.

use std::net::IpAddr;

use arbitrary::{Result, Unstructured};
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
    conntrack::{ConntrackAttribute, ConntrackMessage, IPTuple, Tuple},
};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use podnet::{conntrack, link::Link};

use crate::draw;

/// `data` is the source of a drawn connection and a drawn link.
pub fn check(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let _ = check_connection(&mut u).and_then(|()| check_link(&mut u));
}

/// The only error is the end of the bytes to draw from.
fn check_connection(u: &mut Unstructured<'_>) -> Result<()> {
    let first = draw::net(u)?;
    let ends =
        [first.addr(), draw::ip_of(u, first)?, draw::ip_of(u, first)?, draw::ip_of(u, first)?];
    let tuple = |source: IpAddr, destination: IpAddr| {
        vec![Tuple::Ip(vec![
            IPTuple::SourceAddress(source),
            IPTuple::DestinationAddress(destination),
        ])]
    };
    let mut attributes = vec![ConntrackAttribute::CtaTupleOrig(tuple(ends[0], ends[1]))];
    if u.arbitrary()? {
        attributes.push(ConntrackAttribute::CtaTupleReply(tuple(ends[2], ends[3])));
    }
    let family = if first.addr().is_ipv4() {
        NetfilterProtoFamily::IPv4
    } else {
        NetfilterProtoFamily::IPv6
    };
    let expected = &ends[..2 * attributes.len()];
    let inner = NetfilterMessage::new(
        NetfilterHeader::new(family, 0, 0),
        ConntrackMessage::New(attributes),
    );
    let mut message = NetlinkMessage::from(inner);
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    let read =
        NetlinkMessage::<NetfilterMessage>::deserialize(&bytes).expect("it was just written");
    let NetlinkPayload::InnerMessage(NetfilterMessage {
        inner: NetfilterMessageInner::Conntrack(ConntrackMessage::New(found)),
        ..
    }) = read.payload
    else {
        panic!("another message comes back: {read:?}");
    };
    assert_eq!(conntrack::endpoints(&found).collect::<Vec<_>>(), expected);
    Ok(())
}

fn check_link(u: &mut Unstructured<'_>) -> Result<()> {
    let (index, mtu, address, is_veth): (u32, u32, Vec<u8>, bool) = u.arbitrary()?;
    let (name, alias): (String, String) = u.arbitrary()?;
    let kind = if is_veth { InfoKind::Veth } else { InfoKind::Bridge };
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = vec![
        LinkAttribute::IfName(name.clone()),
        LinkAttribute::Mtu(mtu),
        LinkAttribute::Address(address.clone()),
        LinkAttribute::IfAlias(alias.clone()),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]),
    ];
    let link = Link::from(&message);
    assert_eq!((link.index, link.mtu, link.is_veth), (index, mtu, is_veth));
    assert_eq!((&link.name, &link.alias), (&name, &alias));
    let unicast =
        address.len() == 6 && address[0] & 1 == 0 && address.iter().any(|octet| *octet != 0);
    assert_eq!(link.mac.map(|mac| mac.octets().to_vec()), Some(address).filter(|_| unicast));
    Ok(())
}
