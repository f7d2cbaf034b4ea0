//! The fault matrix: what is broken on purpose, and what has to hold while it is broken and afterwards.
//!
//! | part | what it is |
//! |---|---|
//! | [`matrix`] | the rows: the fault, what is expected, and why a row cannot be there yet |
//! | [`row`], [`Case`] | a row's test: a lab, the fault, and around it what every row asks |
//! | [`Site`] | where the fault happens: node, bystanders, pods, and the words in which a test is written |
//! | [`process`], `heap` | what a process holds: memory, descriptors, threads |
//! | [`proxy`] | in front of a unix socket: delays, loses, cuts, corrupts, talks nonsense |
//! | [`failpoint`] | the places in an ADD at which the plugin can be made to die or to hang |
//! | [`memory`] | a limit on the memory of what is started |
//! | `disk`, [`limits`] | full and read-only disks of a node; limits of a daemon |
//! | [`Kubernetes`] | a real API server for the lab's first node, behind the proxy of [`crate::api_proxy`] |
//! | [`shim`] | answers of a kernel that is short of something, for one process |
//! | [`report`] | runs the tests and prints a line for each row |
//!
//! Asked of every row, after its own test:
//! - nothing is left: links, namespaces and rows of Open vSwitch are those of before; so are the server's descriptors and threads, and its
//!   what it has allocated is back within 1 MB,
//! - a new pod comes, has its network and goes, at the first attempt once STATUS succeeds,
//! - two bystanders that talk all the time lose no packet, unless the row says that traffic may stop; then it has to come back,
//! - every answer of the plugin is one that the CNI specification allows, with a fitting exit status, and not long after its deadline,
//! - the row took no longer than it may.
//!
//! Must not know: what a row's test does.

mod case;
mod disk;
pub mod failpoint;
pub(crate) mod heap;
mod kubernetes;
pub mod limits;
pub mod matrix;
pub mod memory;
mod preload;
pub mod process;
pub mod proxy;
pub mod report;
pub mod shim;
mod site;

pub use case::{Case, row};
pub use kubernetes::Kubernetes;
pub use site::{AT_ONCE, Site, at_once, failed_with};

/// Set for the long forms of rows that have one; the value does not matter.
pub const LONG: &str = "OVN_FAULTS_LONG";

/// Whether rows shall take the time that they take at full size.
pub fn long_forms() -> bool {
    std::env::var_os(LONG).is_some()
}
