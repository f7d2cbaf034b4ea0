//! Rows and columns of upstream that the controller neither writes nor removes, with the feature that they
//! belong to. A row that is missing here is one that the controller has forgotten.

/// The beginning of a line of [`Comparison::others`](crate::compare::Comparison::others), and what the line
/// is about.
pub(crate) const KNOWN: [(&str, &str); 10] = [
    ("NB_Global ", "the database itself"),
    ("Address_Set default_network_controller_Namespace_ovn_host_network", "the addresses of hosts"),
    ("Port_Group default_network_controller_Namespace_", "pods of namespaces without an EgressFirewall"),
    ("Address_Set.addresses", "a name, until the DNS has answered"),
    ("Logical_Router_Static_Route ip_prefix_10_244_", "zones: ways to nodes' subnets"),
    ("Logical_Router_Static_Route ip_prefix_100_64_", "zones: ways to gateway routers"),
    ("Logical_Router_Port.options:gateway_mtu", "gateways: what is too large is answered; since 2026"),
    ("Logical_Switch transit_switch", "zones"),
    ("Logical_Router_Port rtots_", "zones: to the transit switch"),
    ("Logical_Switch_Port tstor_", "zones: nodes on the transit switch"),
];

pub(crate) fn known(other: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(beginning, _)| other.starts_with(beginning)).map(|(beginning, _)| *beginning)
}
