//! What the kernel says: messages of links and of tracked connections are read without a panic, also cut off or damaged; of a connection no
//! more ends are found than it has.

use cni::{conntrack, link::Link};
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_netfilter::{NetfilterMessage, NetfilterMessageInner, conntrack::ConntrackMessage};
use netlink_packet_route::{RouteNetlinkMessage, link::LinkMessage};

/// `data` is one message, of either family.
pub fn check(data: &[u8]) {
    if let Ok(message) = NetlinkMessage::<NetfilterMessage>::deserialize(data)
        && let NetlinkPayload::InnerMessage(NetfilterMessage { inner: NetfilterMessageInner::Conntrack(found), .. }) = message.payload
        && let ConntrackMessage::New(attributes) = found
    {
        // Two ends of each tuple, and attributes are no shorter than their headers.
        assert!(conntrack::endpoints(&attributes).count() <= data.len() / 4);
    }
    if let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(data)
        && let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(found)) = message.payload
    {
        check_link(&found);
    }
}

fn check_link(message: &LinkMessage) {
    let link = Link::from(message);
    assert_eq!(link.index, message.header.index);
    if let Some(mac) = link.mac {
        assert_eq!(mac.octets()[0] & 1, 0, "a link's own address is unicast");
    }
}
