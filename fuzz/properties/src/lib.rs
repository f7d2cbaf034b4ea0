//! What must hold for any input from outside, as functions from bytes that panic where it does not.
//!
//! The fuzzer calls them (`fuzz/fuzz_targets`, one file for each), and the tests of this package call them with the seeds
//! (`fuzz/corpus-seeds`), so that a property that a seed breaks is noticed without a fuzzer. Nothing here does
//! I/O, except that measurements of this process are read, and the system's certificate authorities once.
//!
//! | target | input | comes from |
//! |---|---|---|
//! | [`net_conf`] | the configuration on standard input | runtime |
//! | [`call`] | `CNI_*` variables, `CNI_ARGS` | runtime |
//! | [`attachments`] | the list that GC must keep | runtime |
//! | [`names`] | ids and names that become paths, interfaces, ports | runtime, API server |
//! | [`wire`] | bodies on the server's socket | the other program |
//! | [`requests`] | requests to the server, and what the plugin reports | plugin |
//! | [`pod_network`] | a pod's annotations | API server |
//! | [`node_annotations`] | a node's annotations | API server |
//! | [`result`] | results to be converted or handed back | upstream's server, runtime |
//! | [`log_line`] | values in log lines | anybody |
//! | [`allocation`] | subnets and what follows from them, and who is given what | API server, options |
//! | [`watch`] | lists, watches and lookups of pods | API server |
//! | [`kubeconfig`] | kubeconfigs, tokens, certificates | files |
//! | [`conf_file`] | `ovn_k8s.conf` | file |
//! | [`manifests`] | manifests of pods | files |
//! | [`ovsdb_stream`] | the stream of a database server | ovsdb-server |
//! | [`ovsdb_updates`] | reports of a monitor | ovsdb-server |
//! | [`ovsdb_texts`] | values, schemas, outcomes, endpoints | ovsdb-server, options |
//! | [`netlink`] | messages of the kernel | kernel |

mod addresses;
pub mod allocation;
pub mod attachments;
pub mod call;
pub mod conf_file;
mod draw;
pub mod kubeconfig;
pub mod log_line;
pub mod manifests;
pub mod names;
pub mod net_conf;
pub mod netlink;
pub mod node_annotations;
pub mod ovsdb_stream;
pub mod ovsdb_texts;
pub mod ovsdb_updates;
pub mod pod_network;
pub mod requests;
pub mod result;
pub mod watch;
pub mod wire;

/// A target's name, and its property.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: &[Target] = &[
    ("allocation", allocation::check),
    ("attachments", attachments::check),
    ("call", call::check),
    ("conf_file", conf_file::check),
    ("kubeconfig", kubeconfig::check),
    ("log_line", log_line::check),
    ("manifests", manifests::check),
    ("names", names::check),
    ("net_conf", net_conf::check),
    ("netlink", netlink::check),
    ("node_annotations", node_annotations::check),
    ("ovsdb_stream", ovsdb_stream::check),
    ("ovsdb_texts", ovsdb_texts::check),
    ("ovsdb_updates", ovsdb_updates::check),
    ("pod_network", pod_network::check),
    ("requests", requests::check),
    ("result", result::check),
    ("watch", watch::check),
    ("wire", wire::check),
];

/// A quoted part of refused input is cut; the sentence around it is short.
const LONGEST_ERROR: usize = 2048;
