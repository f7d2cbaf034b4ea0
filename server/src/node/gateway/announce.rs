//! The settings with which the kernel tells a link's neighbours of a new MAC address (gratuitous ARP,
//! unsolicited neighbour advertisements). Without, routers send to the old one until their entries are too
//! old, half a minute later. Like forwarding, they are not taken back: another program may rely on them by
//! then.

use std::{fs, path::PathBuf};

const SETTINGS: [(&str, &str); 2] = [("ipv4", "arp_notify"), ("ipv6", "ndisc_notify")];

/// Has the kernel do so for this link.
pub(super) fn on_change(link: &str) {
    for (family, name) in SETTINGS {
        let path: PathBuf = ["/proc/sys/net", family, "conf", link, name].iter().collect();
        // A kernel without IPv6 has no such file. A host whose `/proc/sys` is read-only keeps what it has:
        // the setting only shortens a change.
        let is_off = fs::read_to_string(&path).is_ok_and(|value| value.trim() == "0");
        if is_off && let Err(error) = fs::write(&path, "1") {
            let path = path.display();
            tracing::debug!(%path, %error, "neighbours will not be told of a new MAC address");
        }
    }
}
