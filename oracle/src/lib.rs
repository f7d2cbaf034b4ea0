//! What Kubernetes' API reference says about Services and NetworkPolicies, as models that tests
//! compare the product with.
//!
//! It shares no code with the control plane, knows nothing of OVN, and is written to be read beside
//! the reference. The model of policies is the package `verdict`. Tests take a [`World`], give its
//! [`manifests`](World::manifests) to the product, and compare what the product does with
//! [`answer()`], for each client and address of [`probes`].
//!
//! | module | noun | what it is |
//! |---|---|---|
//! | [`world`] | [`World`]: nodes, pods, Services, `EndpointSlice`s | the fields that matter to a client |
//! | [`manifest`] | the same as API objects | JSON |
//! | [`answer`](mod@answer) | [`Answer`]: who may answer a client at an address | the model |
//! | [`probe`] | [`Probe`]: a client, a protocol, an address and a port | every question worth asking |
//! | [`random`] | worlds for property tests | strategies that shrink |
//! | [`egress_firewall`] | [`egress_firewall::World`]: these and EgressFirewalls | what leaves the cluster |
//! | [`policies`] | [`policies::World`]: namespaces, pods, policies | the same for NetworkPolicies |

pub mod answer;
pub mod egress_firewall;
pub mod manifest;
pub mod policies;
pub mod probe;
pub mod random;
pub mod world;

pub use answer::{Answer, answer};
pub use probe::{Client, Probe, probes};
pub use world::World;
