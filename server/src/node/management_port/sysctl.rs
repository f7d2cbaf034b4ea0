//! Settings of the interface that are sysctls. They go with the interface.
//!
//! Those of IPv4 are written by netlink: a container's `/proc/sys` can be read but not be written, and netlink asks for CAP_NET_ADMIN alone.
//! Forwarding of IPv6 is no setting of one interface: who wants a host to forward sets it for the whole host.

use std::{fmt, io, path::PathBuf};

use netlink_packet_route::link::{AfSpecInet, AfSpecUnspec, InetDevConf, LinkAttribute};

use super::plan::INTERFACE;

/// A setting and the value that it is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sysctl {
    family: &'static str,
    name: &'static str,
    value: &'static str,
    way: Way,
}

/// How a setting is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Netlink(DevConf),
    /// Netlink does not know it.
    File,
}

/// `IPV4_DEVCONF_*` of `linux/ip.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DevConf {
    Forwarding(i32),
    RpFilter(i32),
}

/// Packets of other interfaces may go on to pods. A packet may come from an address whose way back is another interface: those of
/// pods that reach the host on another address of its own. No pod tells the host where its routers are.
const ALL: [Sysctl; 3] = [
    Sysctl { family: "ipv4", name: "forwarding", value: "1", way: Way::Netlink(DevConf::Forwarding(1)) },
    Sysctl { family: "ipv4", name: "rp_filter", value: "2", way: Way::Netlink(DevConf::RpFilter(2)) },
    Sysctl { family: "ipv6", name: "accept_ra", value: "0", way: Way::File },
];

impl Sysctl {
    fn path(self) -> PathBuf {
        ["/proc/sys/net", self.family, "conf", INTERFACE, self.name].iter().collect()
    }

    /// For a link's message; none where only `/proc/sys` has it.
    pub(super) fn attribute(self) -> Option<LinkAttribute> {
        let Way::Netlink(setting) = self.way else { return None };
        let mut request = InetDevConf::default();
        match setting {
            DevConf::Forwarding(value) => request.forwarding = value,
            DevConf::RpFilter(value) => request.rp_filter = value,
        }
        Some(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet(vec![AfSpecInet::DevConfRequest(request)])]))
    }

    /// By `/proc/sys`.
    pub(super) fn write(self) -> io::Result<()> {
        std::fs::write(self.path(), self.value)
    }
}

/// Those that have another value than they are to have.
pub(super) fn differing() -> Vec<Sysctl> {
    let differs = |sysctl: &Sysctl| std::fs::read_to_string(sysctl.path()).is_ok_and(|value| value.trim() != sysctl.value);
    ALL.into_iter().filter(differs).collect()
}

impl fmt::Display for Sysctl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "net.{}.conf.{INTERFACE}.{}={}", self.family, self.name, self.value)
    }
}
