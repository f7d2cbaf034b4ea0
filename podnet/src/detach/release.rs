//! The wait until Open vSwitch has let go of links whose ports are gone from the database.
//!
//! In the kernel's datapath a port is an upper device of its link (`IFLA_MASTER`). A link that is
//! deleted first takes the port along, and ovs-vswitchd, which still means to remove it, logs
//! `port_del failed (No such device)`. In the userspace datapath links have no upper device, and
//! nothing waits.
//!
//! Must not know whose links these are.

use std::{collections::BTreeMap, io, time::Duration};

use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::libc::RTNLGRP_LINK;
use tokio::time::timeout;

use crate::{
    link::{self, Link},
    netlink::{
        Netlink,
        dump::messages,
        listen::{Heard, Listener},
    },
};

/// ovs-vswitchd takes some milliseconds, and a tenth of a second with hundreds of ports. If it
/// hangs or is not there, a removal does not wait for it: all that the wait saves is a line in its
/// log.
const PATIENCE: Duration = Duration::from_millis(500);

/// Waits until none of these links is a port of a datapath any more, or for [`PATIENCE`].
pub(super) async fn released<'l>(host: &Netlink, links: impl IntoIterator<Item = &'l Link>) {
    let is_port = |link: &&Link| link.controller.is_some();
    let mut held: BTreeMap<u32, &str> =
        links.into_iter().filter(is_port).map(|link| (link.index, link.name.as_str())).collect();
    if held.is_empty() {
        return;
    }
    match timeout(PATIENCE, wait(host, &mut held)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(%error, "cannot wait until Open vSwitch has removed ports")
        }
        Err(_) => tracing::debug!(
            links = ?held.values().collect::<Vec<_>>(),
            "links are deleted with the ports that Open vSwitch has not removed yet"
        ),
    }
}

async fn wait(host: &Netlink, held: &mut BTreeMap<u32, &str>) -> io::Result<()> {
    let events = Listener::open(NETLINK_ROUTE, &[RTNLGRP_LINK])?;
    // Looked at once more: what happened before the socket listened is no event.
    held.retain(|index, name| is_held(host, *index, name));
    while !held.is_empty() {
        match events.next().await? {
            Heard::Datagram(datagram) => {
                let named = indexes(&datagram);
                held.retain(|index, name| !named.contains(index) || is_held(host, *index, name));
            }
            Heard::Overflow => held.retain(|index, name| is_held(host, *index, name)),
        }
    }
    Ok(())
}

/// The links that a datagram tells of. An unreadable message tells of none: an event of ours is
/// readable.
fn indexes(datagram: &[u8]) -> Vec<u32> {
    messages(datagram)
        .filter_map(|message| match message.ok()?.payload {
            NetlinkPayload::InnerMessage(
                RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link),
            ) => Some(link.header.index),
            _ => None,
        })
        .collect()
}

/// Whether the link is there and a port. A kernel that does not answer is not waited for.
fn is_held(host: &Netlink, index: u32, name: &str) -> bool {
    let found = link::find(host, name).ok().flatten();
    found.is_some_and(|link| link.index == index && link.controller.is_some())
}
