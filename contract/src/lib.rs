//! What separate programs agree on: the plugin, the node-local server, the control plane, and the Go programs that this project
//! replaces one node at a time. No I/O, no clock, no opinion of what to do.
//!
//! | module | noun | agreed between |
//! |---|---|---|
//! | [`annotation`] | [`annotation::PodNetwork`]: a pod's addresses, as its annotation says | control plane → server |
//! | [`node_annotation`] | [`node_annotation::NodeAnnotations`]: a node's subnets, addresses and numbers | cluster manager, controller, node |
//! | [`annotations`] | both, as a table for the documentation | code → documentation |
//! | [`ovn`] | names of OVN objects, ids of those without names, addresses that follow from a subnet | control plane, node, tools |
//! | [`bandwidth`] | [`bandwidth::Bandwidth`]: a pod's rate limits, as its annotations say | user → server |
//! | [`cni_args`] | [`cni_args::PodArgs`]: the pod that a runtime means | runtime → plugin → server |
//! | [`wire`] | what travels over the server's socket | plugin ↔ server |
//! | [`net_conf`] | [`net_conf::NetConf`]: the CNI configuration on the plugin's standard input | runtime → plugin → server |
//! | [`spec_version`] | [`spec_version::SpecVersion`]: the CNI specification versions | runtime ↔ plugin |
//! | [`error`] | [`error::CniError`] and its [`error::Code`]: what every failure becomes | server → plugin → runtime |
//! | [`names`] | sandbox, interface, pod and port names, and the rules they follow | everybody |
//! | [`mac`], [`mtu`] | [`mac::Mac`], [`mtu::Mtu`] | everybody |
//! | [`stage`] | [`stage::Stage`]: the steps of one ADD | plugin → server → logs, metrics |
//! | [`external_ids`] | keys that mark rows of Open vSwitch as ours | plugin, server, ovn-controller |
//! | [`mod@fnv1a`] | [`fnv1a::fnv1a`]: short names for long ones | control plane, plugin |
//! | [`mod@backoff`] | [`backoff::Backoff`]: when to try again | server, control plane |
//! | [`paths`] | where sockets, logs and configurations are | everybody |

pub mod annotation;
pub mod annotations;
pub mod backoff;
pub mod bandwidth;
pub mod cni_args;
pub mod error;
pub mod external_ids;
pub mod fnv1a;
pub mod mac;
pub mod mtu;
pub mod names;
pub mod net_conf;
pub mod node_annotation;
pub mod ovn;
pub mod paths;
pub mod spec_version;
pub mod stage;
pub mod wire;
