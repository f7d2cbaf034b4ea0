//! The fault matrix: the faults that are injected, and what has to hold during them and afterwards.
//!
//! | part | what it is |
//! |---|---|
//! | [`matrix`] | the rows: the fault, what is expected, and why a row has no test yet |
//! | [`row`], [`Case`] | a row's test: a lab, the fault, and the checks that every row makes |
//! | [`Site`] | where the fault happens: node, bystanders, pods, and the vocabulary of the tests |
//! | [`process`] | what a process holds: memory, descriptors, threads |
//! | [`testkit::proxy`] | a proxy for a unix socket: delays, loses, cuts, corrupts or replaces answers |
//! | [`failpoint`] | the points of an ADD at which the plugin can be made to fail, die or hang |
//! | [`memory`] | a memory limit for a process from its start |
//! | `disk`, [`limits`] | full and read-only disks of a node; limits of a daemon |
//! | [`Kubernetes`] | a real API server for the lab's first node, behind the proxy of [`crate::api_proxy`] |
//! | [`shim`] | a kernel that is short of something, simulated for one process |
//! | [`report`] | runs the tests and prints a line for each row |
//!
//! Checks of every row, after its own test:
//! - nothing is left: links, namespaces and rows of Open vSwitch are as before; the server has no
//!   more descriptors than before, at most 8 more threads, and at most 1 MB more allocated,
//! - a new pod is attached, has its network and is detached, each at the first attempt once STATUS
//!   succeeds,
//! - two bystanders that exchange packets all the time lose none, unless the row says that traffic
//!   may stop; then it has to recover,
//! - the CNI specification allows every answer of the plugin, with a fitting exit status, and none
//!   comes long after its deadline,
//! - the row took no longer than its limit.
//!
//! Must not know: what a row's test does.

mod case;
mod disk;
pub mod failpoint;
mod kubernetes;
pub mod limits;
pub mod matrix;
pub mod memory;
pub mod process;
pub mod report;
pub mod shim;
mod site;

pub use case::{Case, row};
pub use kubernetes::Kubernetes;
pub use site::{AT_ONCE, SHORTLY, Site, at_once, failed_with, promptly};

/// Environment variable that selects the long form of rows that have one; its value does not
/// matter.
pub const LONG: &str = "OVN_FAULTS_LONG";

/// Whether rows run at full size.
pub fn long_forms() -> bool {
    std::env::var_os(LONG).is_some()
}
