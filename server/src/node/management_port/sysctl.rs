//! Settings of the interface under `/proc/sys`. They go with the interface.
//!
//! Forwarding of IPv6 is no setting of one interface: who wants a host to forward sets it for the whole host.

use std::{fmt, io, path::PathBuf};

use super::plan::INTERFACE;

/// A setting and the value that it is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sysctl {
    name: &'static str,
    value: &'static str,
}

/// Packets of other interfaces may go on to pods. A packet may come from an address whose way back is another interface: those of
/// pods that reach the host on another address of its own.
const ALL: [Sysctl; 2] = [Sysctl { name: "forwarding", value: "1" }, Sysctl { name: "rp_filter", value: "2" }];

impl Sysctl {
    fn path(self) -> PathBuf {
        ["/proc/sys/net/ipv4/conf", INTERFACE, self.name].iter().collect()
    }

    pub(super) fn set(self) -> io::Result<()> {
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
        write!(f, "net.ipv4.conf.{INTERFACE}.{}={}", self.name, self.value)
    }
}
