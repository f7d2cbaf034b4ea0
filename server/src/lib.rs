//! The node-local server: it tells the CNI plugin which network a pod has as soon as the pod's
//! annotation says so. The process `ovnkube --init-node NODE`, with its options, log, signals and
//! HTTP pages, is the package `ovnkube`; nothing here depends on it.
//!
//! ```text
//! API server ─list, watch─▶ ApiPods ─▶ Pods ─watch─▶ add ─▶ wire::Response ═ unix socket ═▶ plugin
//! pod manifests ─inotify─▶ Manifests ─▲               └─ late, refused ─▶ Events ─▶ API server
//! ```
//!
//! | module | noun | reads | writes |
//! |---|---|---|---|
//! | [`node`] | [`node::NodeConfig`], life cycle, management port | OVSDB, own Node, netlink | see below |
//! | [`pods`] | [`pods::PodSource`]: this node's pods and their changes | API server, or manifests | – |
//! | `attachments` | writes and restores ports of pods, removes stale ones | OVSDB, links | OVSDB, links |
//! | [`events`] | [`events::Events`]: Kubernetes events | – | events on pods and on the node |
//! | [`socket`] | [`socket::Socket`]: where the plugin connects | directory's owner, mode | socket file |
//! | `stamp` | when this server could last answer ADDs | [`pods`] | stamp beside the socket |
//! | `http` | connections: peers, limits, deadlines | socket | socket |
//! | [`requests`] | ADD, CHECK, DEL, STATUS; watch; port; metrics | [`pods`] | – |
//! | [`daemons`] | [`daemons::Daemons`]: health of the daemons that ADD needs | their sockets | – |
//! | [`ports`] | [`ports::Ports`]: queue of ports that plugins ask for | – | – |
//! | [`conditions`] | [`conditions::Conditions`]: conditions of readiness | – | – |
//! | `dry_runs` | counts packets that policies would drop that are dry runs | flows of `br-int` | – |
//! | [`release`] | warns of a release of Open vSwitch that ends by itself | OVSDB, ovs-vswitchd | log, event on the node |
//! | [`metrics`] | [`metrics::Metrics`]: counters, gauges, histograms | – | a registry |
//! | [`api_error`] | [`api_error::ApiError`]: each failure of a request: code, status, hint | – | – |
//! | [`cni_conf`] | [`cni_conf::CniConf`]: the CNI configuration file | – | `/etc/cni/net.d` |
//! | `services` | what a node does for Services beside OVN | API server | connections, ports of health checks |
//! | `own_addresses` | the addresses of this host | rtnetlink | – |
//! | `kernel_thread` | the thread for rtnetlink requests, which may block | – | – |
//! | `runtime` | a runtime that has all its threads from the start | – | – |
//! | [`unverified`] | warns that the API server is not verified | – | log, [`conditions`] |
//! | `atomic_file` | atomic replacement of a file | – | the caller's path |
//!
//! [`node`] writes `external_ids` of Open vSwitch's database, the interface `ovn-k8s-mp0`,
//! annotations of its Node object, and the plugin's executable in `/opt/cni/bin`.
//!
//! The plugin does the plumbing of pods, and DEL works without the server; the server only repairs.
//! The node's own port into the network is the server's work, for which it needs CAP_NET_ADMIN in
//! the host's network namespace.

pub mod api_error;
mod atomic_file;
mod attachments;
pub mod cni_conf;
pub mod conditions;
pub mod daemons;
mod dry_runs;
pub mod events;
mod http;
mod kernel_thread;
pub mod metrics;
pub mod node;
mod own_addresses;
pub mod pods;
pub mod ports;
pub mod release;
pub mod requests;
mod runtime;
#[cfg(test)]
mod scripted;
mod services;
pub mod socket;
mod stamp;
pub mod unverified;

pub(crate) use contract::error::chain;
