//! Rows and columns of upstream that the controller neither writes nor removes, with the feature
//! that they belong to. A row that is missing here is one that the controller has forgotten.

/// The beginning of a line of [`Comparison::others`](crate::compare::Comparison::others), and what
/// the line is about.
pub(crate) const KNOWN: [(&str, &str); 5] = [
    ("NB_Global ", "the database itself"),
    ("Address_Set default_network_controller_Namespace_ovn_host_network", "the addresses of hosts"),
    (
        "Port_Group default_network_controller_Namespace_",
        "pods of namespaces without an EgressFirewall",
    ),
    ("Address_Set.addresses", "a name, until the DNS has answered"),
    (
        "Logical_Router_Port.options:gateway_mtu",
        "gateways: what is too large is answered; since 2026",
    ),
];

pub(crate) fn known(other: &str) -> Option<&'static str> {
    KNOWN
        .iter()
        .find(|(beginning, _)| other.starts_with(beginning))
        .map(|(beginning, _)| *beginning)
}
