//! The lab: real Open vSwitch and real OVN in private namespaces, for tests with packets, the demo
//! and the benchmark.
//!
//! Must not know: how the plugin or the server work inside. It starts their executables the way a
//! node does.
//!
//! | file | what it is |
//! |---|---|
//! | [`mod@inside`] | runs a test (or the command) in its own namespaces; all that it starts dies with them |
//! | [`prerequisites`] | root, programs, kernel features; says what to do when one is missing |
//! | [`mounts`] | directories that are private to the lab or to a node, under their usual paths |
//! | [`lab`] | [`Lab`] and its [`Blueprint`]: central, fabric and nodes, started together |
//! | [`subnet`] | which addresses nodes and pods get |
//! | [`central`] | northbound and southbound databases, ovn-northd, the logical router and switches |
//! | [`datapath`] | [`Datapath`]: Open vSwitch's userspace datapath or the kernel's |
//! | [`fabric`] | the wire between the nodes |
//! | [`world`] | [`World`]: a router and machines outside of the cluster |
//! | [`node`] | [`Node`]: mount and network namespace with default paths, its daemons, commands in it |
//! | `holder` | the process that holds a node's namespaces open |
//! | `netns` | network namespaces of a node's pods |
//! | `cgroups` | control groups, which outlive namespaces |
//! | `heap` | how much a daemon has allocated, counted by a library |
//! | [`daemon`] | [`Daemon`]: one long-running program: start, stop, kill, pause |
//! | [`program`] | [`Program`]: which daemon of a node |
//! | [`mod@process`] | memory, processor time and threads of any process |
//! | [`threads`] | work on several threads at once, and their first error |
//! | [`systemd`] | a real systemd as the first process of a node |
//! | [`pod`] | [`Pod`]: identity, addresses, manifest; ports and namespaces of many pods at once |
//! | [`by_hand`] | attaches a pod with `ip` and `ovs-vsctl`: the floor that needs no code of this project |
//! | [`runtime`] | [`Runtime`]: calls the plugin as a container runtime does, or `cnitool` |
//! | [`outcome`] | [`Outcome`]: how a call of the plugin ended |
//! | [`answer`] | checks that the CNI specification allows every answer of the plugin |
//! | [`versions`] | [`Versions`]: which Open vSwitch and OVN run |
//! | [`census`] | [`Census`]: snapshot of a node as text, to compare before and after |
//! | [`traffic`] | ping, TCP and UDP between pods |
//! | [`mod@frame`] | Ethernet frames, whatever a raw socket may send |
//! | [`peer`] | the two ends of such traffic, run in the pods' namespaces |
//! | `multicast` | [`Member`]s of multicast groups, and which of them hear what a pod sends |
//! | [`connections`] | short TCP connections, many a second, and which server answered each |
//! | [`cluster`] | [`Cluster`]: a whole Kubernetes on a lab's nodes |
//! | [`api_proxy`] | [`api_proxy::ApiProxy`]: a proxy in front of the API server that injects faults |
//! | [`churn`] | pods come and go: while everything is killed; by the thousand, and nothing may grow |
//! | [`mod@matrix`] | what both matrices have in common: how their tests run, and findings |
//! | [`tenants`] | the matrix of tenants: its rows, the report, the table of SECURITY.md |
//! | [`faults`] | the fault matrix: its rows, the checks of every row, the fault injectors, the report |
//! | [`eventually`], [`let_pass`] | wait for a state, and say what was seen last; wait for so long |
//! | [`command`], [`executable`], [`mod@http`] | of `testkit`: programs that run to their end; where executables are; HTTP on a unix socket |
//!
//! A test is an ordinary function:
//!
//! ```no_run
//! use integration::Lab;
//!
//! // with #[test]
//! fn pods_of_two_nodes_reach_each_other() {
//!     Lab::of_nodes(2).test(|lab| {
//!         let here = lab.new_pod(&lab.nodes[0])?;
//!         let there = lab.new_pod(&lab.nodes[1])?;
//!         lab.nodes[0].start_server()?;
//!         lab.nodes[1].start_server()?;
//!         lab.nodes[0].runtime().add(&here)?.success()?;
//!         lab.nodes[1].runtime().add(&there)?.success()?;
//!         lab.ping(&here, there.address())?;
//!         lab.tcp(&here, &there, 1 << 20)
//!     });
//! }
//! ```

pub mod answer;
pub mod api_proxy;
pub mod by_hand;
pub mod census;
pub mod central;
mod cgroups;
pub mod churn;
pub mod cluster;
pub mod connections;
pub mod daemon;
pub mod datapath;
pub mod fabric;
pub mod faults;
pub mod frame;
mod heap;
mod holder;
pub mod inside;
pub mod lab;
pub mod matrix;
pub mod mounts;
mod multicast;
mod netns;
pub mod node;
pub mod outcome;
pub mod peer;
pub mod pod;
pub mod prerequisites;
pub mod process;
pub mod program;
pub mod runtime;
pub mod subnet;
pub mod systemd;
pub mod tenants;
pub mod threads;
pub mod traffic;
pub mod versions;
pub mod world;

pub use census::Census;
pub use cluster::Cluster;
pub use daemon::Daemon;
pub use datapath::Datapath;
pub use holder::hold;
pub use inside::inside;
pub use lab::{Blueprint, Lab};
pub use multicast::Member;
pub use node::Node;
pub use outcome::{CniError, Outcome};
pub use pod::Pod;
pub use process::process;
pub use program::Program;
pub use runtime::{Invocation, Runtime};
pub use subnet::Families;
// The body of a lab's test returns its failure.
pub use testkit::{command, executable, http, let_pass, until as eventually};
pub use versions::Versions;
pub use world::World;
