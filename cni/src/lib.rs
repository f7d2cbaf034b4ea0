//! The CNI plugin `ovn-k8s-cni-overlay`. The container runtime calls it once per pod event, to
//! attach a pod to its network or to detach it.
//!
//! ```text
//! environment + stdin ─▶ Call ─▶ NetConf ─▶ wire::Request ═▶ server
//!     ═▶ PodInterface ─▶ Attachment ─▶ link + rows ─▶ CniResult
//! ```
//!
//! Each value can only be made from the one before it. [`podnet`] does the work on links and rows.
//!
//! # An ADD, step by step
//!
//! 1. *Environment and standard input.* [`mod@run`] reads `CNI_COMMAND` and its fellows into an
//!    [`invocation::Call`], and the configuration, limited in time and size, with [`mod@stdin`]:
//!    [`contract::net_conf::NetConf`]. The log is `/var/log/openvswitch/ovn-k8s-cni-overlay.log`.
//! 2. *The pod's annotation.* [`add::Add::run`] asks the node's server ([`ask::Server::ask`]),
//!    which answers when the pod has `k8s.ovn.org/pod-networks`: addresses, MAC, gateways, routes
//!    ([`contract::wire::PodInterface`]).
//! 3. *The veth.* [`podnet::link::create`]: one end in the pod's namespace, the host's end named by
//!    the sandbox's id.
//! 4. *The port.* [`port::Port::write`] adds the host's end to `br-int`
//!    ([`podnet::bridge::Bridge::plug`]). The Interface row has `external_ids:iface-id`, by which
//!    ovn-controller finds the logical port ([`podnet::rows`]). In a burst the server writes the
//!    ports of all.
//! 5. *The pod's end.* [`podnet::pod_end::configure`]: MAC, addresses, routes, MTU.
//! 6. *Flows.* [`port::Port::reach`] waits until ovn-controller reports `ovn-installed`.
//! 7. *The result.* [`result::CniResult`] goes to standard output in the configuration's CNI
//!    version. A failure is an [`error::Failure`], after everything that was made has been removed
//!    again.
//!
//! # Modules
//!
//!
//! | module | noun | reads | writes |
//! |---|---|---|---|
//! | [`mod@run`] | one call, from the environment to the exit status | all of these | standard output, log |
//! | [`invocation`] | [`invocation::Call`]: the runtime's request, checked | environment | – |
//! | [`mod@stdin`] | the bytes of the configuration, limited in time and size | standard input | – |
//! | [`ask`] | [`ask::Server`]: the node-local server, as the plugin sees it | unix socket | unix socket |
//! | [`add`], [`del`], [`check`], [`status`], [`gc`] | one verb each | server, [`podnet`] | [`podnet`] |
//! | [`port`] | [`port::Port`]: an ADD's port, written by server or plugin | server, OVSDB | the same |
//! | [`result`] | [`result::CniResult`] in every CNI version | – | – |
//! | [`error`] | [`error::Failure`]: chooses an error's code, message and hint | – | – |
//! | [`timeline`] | [`timeline::Timeline`]: stages of an ADD, their times and deadline | clock | – |
//! | [`netns_link`] | [`netns_link::NetnsLinks`]: names of pods' namespaces for `ip netns` | – | links |
//! | [`failpoint`] | for tests: where the plugin fails, dies or hangs | environment | – |
//!
//! Only [`error`], [`add`] and [`mod@run`] know [`error::Cause`]; every other module has its own
//! error type. Nothing here starts another program.

pub mod add;
pub mod ask;
pub mod check;
pub mod del;
pub mod error;
pub mod failpoint;
pub mod gc;
pub mod invocation;
pub mod netns_link;
pub mod port;
pub mod result;
pub mod run;
pub mod status;
pub mod stdin;
pub mod timeline;
