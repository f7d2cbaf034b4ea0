//! Sysctls of the interface. They end with the interface.
//!
//! Those of IPv4 are written over netlink, which needs CAP_NET_ADMIN only: in a container
//! `/proc/sys` is mounted read-only. IPv6 forwarding is left alone, because it is a setting of the
//! whole host and not of one interface.

use std::{fmt, io, path::PathBuf};

use netlink_packet_route::link::{AfSpecInet, AfSpecUnspec, InetDevConf, LinkAttribute};

use super::plan::INTERFACE;

/// A setting and its desired value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::node) struct Sysctl {
    family: &'static str,
    name: &'static str,
    value: &'static str,
    way: Way,
}

/// How a setting is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Netlink(DevConf),
    /// Under `/proc/sys`: netlink has no attribute for it.
    File,
}

/// `IPV4_DEVCONF_*` of `linux/ip.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DevConf {
    Forwarding(i32),
    RpFilter(i32),
}

/// `forwarding`: packets that arrive on other interfaces are forwarded to pods. `rp_filter` 2
/// (loose): a packet is accepted although its way back is another interface, as with a pod that
/// connects to another address of the host. `accept_ra` 0: a pod must not be able to announce
/// itself to the host as a router.
pub(super) const ALL: [Sysctl; 3] = [
    Sysctl {
        family: "ipv4",
        name: "forwarding",
        value: "1",
        way: Way::Netlink(DevConf::Forwarding(1)),
    },
    Sysctl {
        family: "ipv4",
        name: "rp_filter",
        value: "2",
        way: Way::Netlink(DevConf::RpFilter(2)),
    },
    Sysctl { family: "ipv6", name: "accept_ra", value: "0", way: Way::File },
];

impl Sysctl {
    fn path(self) -> PathBuf {
        ["/proc/sys/net", self.family, "conf", INTERFACE, self.name].iter().collect()
    }

    /// What is in place if it cannot be written.
    pub(super) fn instead(self) -> &'static str {
        match self.way {
            Way::File => "; a rule of nftables drops router advertisements from pods instead",
            Way::Netlink(_) => "",
        }
    }

    /// The attribute of a link message that sets it. `None` if only `/proc/sys` has it.
    pub(super) fn attribute(self) -> Option<LinkAttribute> {
        let Way::Netlink(setting) = self.way else { return None };
        let mut request = InetDevConf::default();
        match setting {
            DevConf::Forwarding(value) => request.forwarding = value,
            DevConf::RpFilter(value) => request.rp_filter = value,
        }
        Some(of_inet(request))
    }

    /// Writes it under `/proc/sys`.
    pub(super) fn write(self) -> io::Result<()> {
        std::fs::write(self.path(), self.value)
    }
}

/// Whether the environment does not allow to write a setting, so that another attempt is pointless:
/// a container's `/proc/sys` is mounted read-only, or the namespace belongs to another user
/// namespace.
pub(super) fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

/// The attribute of a link message that has IPv4 packets forwarded.
pub(super) fn forwarding() -> LinkAttribute {
    let mut request = InetDevConf::default();
    request.forwarding = 1;
    of_inet(request)
}

fn of_inet(request: InetDevConf) -> LinkAttribute {
    LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet(vec![AfSpecInet::DevConfRequest(request)])])
}

/// The settings whose value differs from the desired one. One that cannot be read is left out: a
/// kernel without IPv6 has no `accept_ra`.
pub(super) fn differing() -> Vec<Sysctl> {
    let differs = |sysctl: &Sysctl| {
        // The kernel ends the value with a line break.
        std::fs::read_to_string(sysctl.path()).is_ok_and(|value| value.trim() != sysctl.value)
    };
    ALL.into_iter().filter(differs).collect()
}

impl fmt::Display for Sysctl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "net.{}.conf.{INTERFACE}.{}={}", self.family, self.name, self.value)
    }
}
