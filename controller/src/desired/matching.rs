//! Words of OVN's expression language, ovn-sb(5) "Logical_Flow TABLE".

use kubeapi::services::{Family, Protocol};

/// `(a || b)`, or the only one.
pub(in crate::desired) fn either(matches: Vec<String>) -> String {
    match &matches[..] {
        [one] => one.clone(),
        all => format!("({})", all.join(" || ")),
    }
}

pub(in crate::desired) fn ip(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip4",
        Family::V6 => "ip6",
    }
}

pub(in crate::desired) fn spelled(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}
