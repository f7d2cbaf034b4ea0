//! Which routers answer on a link, as the kernel's table of neighbours tells.
//!
//! Must not know why that matters.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
    time::Duration,
};

use futures_util::TryStreamExt;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use podnet::{link::into_io, netns::host_netlink};
use tokio::time::sleep;

use crate::{BridgeError, NotMoved, nic::Nic};

/// The port of the discard protocol (RFC 863): nobody has to listen.
const DISCARD: u16 = 9;
/// How long a router has to answer a question for its MAC address. On a wire it takes less than a
/// millisecond.
const ANSWER: Duration = Duration::from_millis(500);

/// Those of `routers` that answer on the link at this moment. Takes half a second. Needs a tokio
/// runtime.
///
/// # Errors
/// There is no such link, or the kernel refuses.
pub async fn answering(link: &str, routers: &[IpAddr]) -> Result<Vec<IpAddr>, NotMoved> {
    let answering = async {
        let failed =
            |error| BridgeError::Kernel { what: format!("the neighbours of {link}"), error };
        let netlink = host_netlink().map_err(failed)?;
        let index = Nic::existing(&netlink, link).await?.index;
        for router in routers {
            ask(*router, index);
        }
        sleep(ANSWER).await;
        let all: Vec<NeighbourMessage> = netlink
            .neighbours()
            .get()
            .execute()
            .try_collect()
            .await
            .map_err(into_io)
            .map_err(failed)?;
        let known: Vec<IpAddr> =
            all.iter().filter_map(|neighbour| answered(neighbour, index)).collect();
        Ok(routers.iter().copied().filter(|router| known.contains(router)).collect())
    };
    answering.await.map_err(NotMoved)
}

/// Has the kernel look for the router. A failure shows as a router that does not answer.
fn ask(router: IpAddr, link: u32) {
    let (own, to): (SocketAddr, SocketAddr) = match router {
        IpAddr::V4(_) => (([0, 0, 0, 0], 0).into(), (router, DISCARD).into()),
        IpAddr::V6(v6) => {
            ((Ipv6Addr::UNSPECIFIED, 0).into(), SocketAddrV6::new(v6, DISCARD, 0, link).into())
        }
    };
    // Without a route, for one: the router is not known then.
    let _ = UdpSocket::bind(own).and_then(|socket| socket.send_to(&[0], to));
}

/// The address of a neighbour on the link whose MAC address the kernel knows.
fn answered(neighbour: &NeighbourMessage, link: u32) -> Option<IpAddr> {
    let is_known = match neighbour.header.state {
        NeighbourState::Reachable
        | NeighbourState::Stale
        | NeighbourState::Delay
        | NeighbourState::Probe
        | NeighbourState::Permanent => true,
        // The last question got no answer, or the first one has none yet.
        _ => false,
    };
    if neighbour.header.ifindex != link || !is_known {
        return None;
    }
    neighbour.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some((*address).into()),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => {
            Some((*address).into())
        }
        _ => None,
    })
}
