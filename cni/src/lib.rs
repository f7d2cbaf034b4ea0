//! The CNI plugin `ovn-k8s-cni-overlay`: called once per pod event, it gives a pod its network or takes it away.
//!
//! ```text
//! environment + stdin ─▶ Call ─▶ NetConf ─▶ wire::Request ═▶ server ═▶ PodInterface ─▶ Attachment ─▶ link + rows ─▶ CniResult
//! ```
//!
//! Each value can only be made from the one before it. What is where:
//!
//! | module | noun | touches |
//! |---|---|---|
//! | [`invocation`] | [`invocation::Call`]: what the runtime asks for, checked | – |
//! | [`plan`] | [`plan::Attachment`]: one interface of one pod, decided | – |
//! | [`result`] | [`result::CniResult`] in every CNI version | – |
//! | [`error`] | [`error::Failure`]: the one place that chooses an error's code, words and hint | – |
//! | [`timeline`] | [`timeline::Timeline`]: stages of an ADD, their times and deadline | clock |
//! | [`ask`] | the node-local server, as the plugin sees it | unix socket |
//! | [`fence`] | [`fence::Fence`]: one call at a time for each interface | a directory that is root's alone |
//! | [`mark`] | [`mark::Mark`]: whose a link is, as its alias says it | – |
//! | [`mod@netlink`] | [`netlink::Netlink`]: a conversation with the kernel about links, addresses, routes | netlink |
//! | [`netns`] | [`netns::Netns`]: a pod's namespace | namespaces |
//! | [`link`], [`pod_end`] | the veth; addresses, routes and settings of its pod end | netlink, sysctl |
//! | [`rows`], [`bridge`] | a port's rows in Open vSwitch: as transactions (pure), and as a conversation | OVSDB |
//! | [`port`] | an ADD's port, written by the server or by the plugin | the server, OVSDB |
//! | [`installed`] | the wait until the port works | OVSDB |
//! | [`mod@dump`] | what the kernel has many of, one at a time | netlink |
//! | [`conntrack`] | connections of an address that is no longer there | netlink |
//! | [`add`], [`detach`], [`del`], [`check`], [`status`], [`gc`] | one verb each; `detach` is DEL's work and ADD's rollback | all of them |
//! | [`boot`] | which boot of the machine this is | files, clock |
//! | [`stamp`] | when a server could last answer ADDs, for a STATUS that finds none | files |
//! | [`mod@stdin`] | the bytes of the configuration, within limits of time and size | standard input |
//!
//! Nothing here starts another program.

pub mod add;
pub mod ask;
pub mod boot;
pub mod bridge;
pub mod check;
pub mod conntrack;
pub mod del;
pub mod detach;
pub mod dump;
pub mod error;
pub mod failpoint;
pub mod fence;
pub mod gc;
pub mod installed;
pub mod invocation;
pub mod link;
pub mod mark;
pub mod netlink;
pub mod netns;
pub mod offload;
pub mod plan;
pub mod pod_end;
pub mod port;
pub mod result;
pub mod rows;
pub mod run;
pub mod settings;
pub mod stamp;
pub mod status;
pub mod stdin;
pub mod timeline;
