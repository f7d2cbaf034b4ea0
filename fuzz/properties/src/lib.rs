//! Properties that must hold for any input from outside, as functions of bytes that panic if the
//! property is violated.
//!
//! The fuzzer calls them (`fuzz/fuzz_targets`, one file per target), and the tests of this package
//! call them with the seeds (`fuzz/corpus-seeds`), so that a seed that breaks a property is noticed
//! without a fuzzer. There is no I/O here, except for metrics of this process, and for the system's
//! certificate authorities, which are read once.
//!
//! | target | input | comes from |
//! |---|---|---|
//! | [`net_conf`] | the configuration on standard input | runtime |
//! | [`call`] | `CNI_*` variables, `CNI_ARGS` | runtime |
//! | [`attachments`] | the list that GC must keep | runtime |
//! | [`names`] | ids and names that become paths, interfaces, ports | runtime, API server |
//! | [`wire`] | bodies on the server's socket | the other program |
//! | [`requests`] | requests to the server, and reports of the plugin | plugin |
//! | [`pod_network`] | a pod's annotations | API server |
//! | [`node_annotations`] | a node's annotations | API server |
//! | [`result`] | results to be converted or passed back | upstream's server, runtime |
//! | [`log_line`] | values in log lines | any source |
//! | [`allocation`] | subnets, addresses in them, and their allocation | API server, options |
//! | [`watch`] | lists, watches and lookups of pods | API server |
//! | [`services`] | Services and EndpointSlices, and their load balancers | API server |
//! | [`kubeconfig`] | kubeconfigs, tokens, certificates | files |
//! | [`conf_file`] | `ovn_k8s.conf` | file |
//! | [`manifests`] | manifests of pods | files |
//! | [`ovsdb_stream`] | the stream of a database server | ovsdb-server |
//! | [`ovsdb_updates`] | updates of a monitor | ovsdb-server |
//! | [`ovsdb_texts`] | values, schemas, outcomes, endpoints | ovsdb-server, options |
//! | [`netlink`] | messages of the kernel | kernel |
//! | [`flows`] | flows of a bridge | ovs-vswitchd |

mod addresses;
pub mod allocation;
pub mod attachments;
pub mod call;
pub mod conf_file;
mod draw;
pub mod flows;
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
pub mod services;
pub mod watch;
pub mod wire;

/// The name of a target, and its property.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: &[Target] = &[
    ("allocation", allocation::check),
    ("attachments", attachments::check),
    ("call", call::check),
    ("conf_file", conf_file::check),
    ("flows", flows::check),
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
    ("services", services::check),
    ("watch", watch::check),
    ("wire", wire::check),
];

/// Limit for an error text in bytes: quotations of refused input are cut, and the sentence around
/// them is short.
const LONGEST_ERROR: usize = 2048;
