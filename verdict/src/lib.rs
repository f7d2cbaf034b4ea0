//! What Kubernetes' API reference says about NetworkPolicies and policies of the whole cluster: who
//! may connect to whom, and which rule decides.
//!
//! It shares no code with the control plane, knows nothing of OVN, and is written to be read beside
//! the reference. Tests compare the control plane's rows with it (package `oracle`), and `ovnkube
//! policy explain` shows what it says (docs/decisions/one-model-of-policies.md). Everything is
//! borrowed from the caller's objects.
//!
//! | module | noun | what it is |
//! |---|---|---|
//! | [`connection`] | [`End`], [`Place`]: who connects to whom, and where | – |
//! | [`selector`] | [`Selector`]: of objects, by their labels | `LabelSelector` |
//! | [`network_policy`] | [`NetworkPolicy`] | `networking.k8s.io/v1` |
//! | [`cluster_policy`] | [`ClusterPolicy`] | `policy.networking.k8s.io`, v1alpha1 and v1alpha2 |
//! | [`egress_firewall`] | [`EgressFirewall`]: what leaves the cluster | `k8s.ovn.org/v1` |
//! | [`side`] | [`Side`]: what one end's policies say of a connection | [`Policies::side`] |

use std::net::IpAddr;

pub mod cluster_policy;
pub mod connection;
pub mod egress_firewall;
pub mod network_policy;
pub mod selector;
pub mod side;

pub use cluster_policy::ClusterPolicy;
pub use connection::{Cidr, ContainerPort, Direction, End, Place, Pod, Protocol};
pub use egress_firewall::EgressFirewall;
pub use network_policy::NetworkPolicy;
pub use selector::{Labels, Selector};
pub use side::{Policies, Side};

/// A node, as a peer of egress rules.
#[derive(Debug, Clone, PartialEq)]
pub struct Node<'a> {
    pub labels: Labels<'a>,
    pub addresses: Vec<IpAddr>,
}

/// A name of the DNS, with its addresses outside of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Name<'a> {
    pub name: &'a str,
    pub addresses: Vec<IpAddr>,
}

/// A namespace, by which selectors find its pods.
#[derive(Debug, Clone, PartialEq)]
pub struct Namespace<'a> {
    pub name: &'a str,
    pub labels: Labels<'a>,
}
