//! The node-local server, `ovnkube --init-node NODE`: tells the CNI plugin what network a pod has, as soon as that is known.
//!
//! ```text
//! API server ─list, watch─▶ ApiPods ─▶ Pods ─watch─▶ add ─▶ wire::Response ═ unix socket ═▶ plugin
//! pod manifests ─inotify─▶ Manifests ─▲               └─ late, refused ─▶ Events ─▶ API server
//! ```
//!
//! | module | noun | reads | writes |
//! |---|---|---|---|
//! | [`options`] | [`options::Options`]: the command line | arguments | – |
//! | [`node`] | the server's life, from the options to the last answer; the node's management port and annotations | signals, Open vSwitch's database, its node's object, netlink | `external_ids`, `ovn-k8s-mp0`, annotations of its node, `/opt/cni/bin`, pidfile, systemd |
//! | [`control_plane`] | the control plane's roles: what they are told, and their life | API server, OVN's databases | OVN's northbound database, annotations |
//! | [`pods`] | [`pods::PodSource`]: what is known of this node's pods, and every change of it | API server, or pod manifests | – |
//! | `attachments` | pods' ports that vanished, put back; what is left of pods that are gone, removed | Open vSwitch's rows, links, [`pods`] | the same |
//! | [`events`] | [`events::Events`]: what the owner of a pod is told | – | events on pods |
//! | [`socket`] | [`socket::Socket`]: the place where the plugin finds the server | directory's owner and mode | the socket's file |
//! | `stamp` | the stamp beside the socket: this server could answer a moment ago | [`pods`] | the stamp's file |
//! | [`http`] | connections: who may, how many, how slowly | socket | socket |
//! | [`requests`] | one verb each: ADD, DEL, STATUS; watch; metrics | [`pods`] | – |
//! | [`partners`] | [`partners::Partners`]: whether those whom an ADD needs answer at all, for STATUS | control sockets, Open vSwitch's database | – |
//! | [`ports`] | [`ports::Ports`]: writes ports for the plugins, those of a moment together | Open vSwitch's database | – |
//! | [`metrics`] | [`metrics::Metrics`]: what is counted and timed | `/proc`, sizes of logs | – |
//! | [`endpoints`] | `/metrics`, `/healthz`, `/readyz` over TCP | [`metrics`], [`conditions`] | TCP |
//! | [`refusal`] | [`refusal::Refusal`]: every failure of a request, its code, status and hint | – | – |
//! | [`cni_conf`] | [`cni_conf::CniConf`]: the file that makes runtimes use the plugin | – | `/etc/cni/net.d` |
//! | `process` | what every life of this program has | signals | pidfile, log, systemd |
//! | `kernel_thread` | the thread for questions that the kernel may answer late | – | – |
//! | `unverified` | the warning that the API server's certificate is not verified | – | log, [`conditions`] |
//! | `atomic_file` | a file that is replaced in one step | – | what its callers say |
//!
//! The plugin does the plumbing of pods, and DEL works without the server, which only repairs what others broke. The node's own port into the network is the server's, for which it
//! needs CAP_NET_ADMIN in the host's network namespace.

mod atomic_file;
mod attachments;
pub mod cni_conf;
pub mod conditions;
pub mod control_plane;
pub mod endpoints;
pub mod events;
pub mod http;
mod kernel_thread;
pub mod metrics;
pub mod node;
pub mod options;
pub mod partners;
pub mod pods;
pub mod ports;
pub mod process;
pub mod refusal;
pub mod requests;
#[cfg(test)]
mod scripted;
pub mod socket;
mod stamp;
mod unverified;

pub(crate) use contract::error::chain;
