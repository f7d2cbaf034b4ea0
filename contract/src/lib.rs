//! The contracts between separate programs: the plugin, the node-local server, the control plane,
//! and the Go programs that this project replaces one node at a time. No I/O, no clock, no policy.
//!
//! | module | noun | agreed between |
//! |---|---|---|
//! | [`annotation`] | [`annotation::PodNetwork`]: a pod's addresses | control plane → server |
//! | [`node_annotation`] | a node's subnets, addresses and numbers | cluster manager, controller, node |
//! | [`node_identity`] | the user of a node's server at the API server | server, cluster manager, manifests |
//! | [`namespace_annotation`] | [`namespace_annotation::AclLogging`], [`namespace_annotation::Multicast`] of a namespace | user → controller |
//! | [`policy_annotation`] | [`policy_annotation::Tracking`]: how a policy is carried out | user → controller |
//! | [`switch`] | [`switch::NotASwitch`]: a value of an annotation that is neither true nor false | user → controller |
//! | [`applied_annotation`] | the request to say when an object is in force | user → controller |
//! | [`annotations`] | all of them, as a table for the documentation | code → documentation |
//! | [`ovn`] | names and ids of OVN objects, addresses in a subnet | control plane, node, tools |
//! | [`bandwidth`] | [`bandwidth::Bandwidth`]: a pod's rate limits, from its annotations | user → server |
//! | [`cni_args`] | [`cni_args::PodArgs`]: the pod that a runtime names | runtime → plugin → server |
//! | [`wire`] | the protocol of the server's socket | plugin ↔ server |
//! | [`net_conf`] | [`net_conf::NetConf`]: the CNI configuration on stdin | runtime → plugin → server |
//! | [`spec_version`] | [`spec_version::SpecVersion`]: versions of CNI | runtime ↔ plugin |
//! | [`error`] | [`error::CniError`], [`error::Code`]: every failure | server → plugin → runtime |
//! | [`limits`] | [`limits::Limit`]: what an object, or a namespace, may cost | controller, node → user, documentation |
//! | [`remainder`] | what is left of a network without others: the size of what both make of it | controller, node |
//! | [`definition`] | [`definition::Definition`]: kinds that an administrator defines | API server, control plane, tools |
//! | [`names`] | names of sandboxes, interfaces, pods and ports, and their rules | all programs |
//! | [`mac`], [`mtu`] | [`mac::Mac`], [`mtu::Mtu`] | all programs |
//! | [`stage`] | [`stage::Stage`]: the steps of one ADD | plugin → server → logs, metrics |
//! | [`external_ids`] | keys that mark our rows of Open vSwitch | plugin, server, ovn-controller |
//! | [`mod@fnv1a`] | [`fnv1a::fnv1a`]: short names for long ones | control plane, plugin |
//! | [`mod@backoff`] | [`backoff::Backoff`]: the pauses between attempts | server, control plane |
//! | [`paths`] | paths of sockets, logs and configurations | all programs |

pub mod annotation;
pub mod annotations;
pub mod applied_annotation;
pub mod backoff;
pub mod bandwidth;
pub mod cni_args;
pub mod definition;
pub mod error;
pub mod external_ids;
pub mod fnv1a;
pub mod limits;
pub mod mac;
pub mod mtu;
pub mod names;
pub mod namespace_annotation;
pub mod net_conf;
pub mod node_annotation;
pub mod node_identity;
pub mod ovn;
pub mod paths;
pub mod policy_annotation;
pub mod remainder;
pub mod spec_version;
pub mod stage;
pub mod switch;
pub mod wire;
