//! The kernel tells a link's neighbours of a new MAC address (gratuitous ARP, unsolicited neighbour
//! advertisements). Without, routers send to the old one until their entries are too old, half a
//! minute later. Like forwarding, the settings are not taken back: another program may rely on them
//! by then.

use std::{fs, io, path::PathBuf};

use contract::mac::Mac;
use nix::net::if_::if_nametoindex;

use crate::node::management_port::{kernel::Kernel, link::Step};

const SETTINGS: [(&str, &str); 2] = [("ipv4", "arp_notify"), ("ipv6", "ndisc_notify")];

/// Has the kernel do so for this link.
pub(super) fn on_change(link: &str) {
    for (family, name) in SETTINGS {
        let path: PathBuf = ["/proc/sys/net", family, "conf", link, name].iter().collect();
        // A kernel without IPv6 has no such file. A host whose `/proc/sys` is read-only keeps what
        // it has: the setting only shortens a change.
        let is_off = fs::read_to_string(&path).is_ok_and(|value| value.trim() == "0");
        if is_off && let Err(error) = fs::write(&path, "1") {
            let path = path.display();
            tracing::debug!(%path, %error, "neighbours will not be told of a new MAC address");
        }
    }
}

/// Has the kernel tell the neighbours of the link's addresses now. What it tells by itself when a
/// bridge gets another MAC address is lost on the userspace datapath: ovs-vswitchd is changing the
/// bridge's link then.
///
/// The same MAC address once more is a change to the kernel (`NETDEV_CHANGEADDR`). It forgets the
/// link's neighbours for that, permanent ones included.
pub(super) async fn now(link: &str, mac: Mac) {
    if let Err(error) = set_mac(link, mac).await {
        tracing::warn!(link, %error, "neighbours may send to the former MAC address for half a minute");
    }
}

async fn set_mac(link: &str, mac: Mac) -> io::Result<()> {
    let kernel = Kernel::open_for(link.parse().map_err(io::Error::other)?)?;
    kernel.take(if_nametoindex(link)?, &Step::SetMac(mac)).await.map_err(io::Error::other)
}
