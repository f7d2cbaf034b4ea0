//! A pod's plumbing, for the plugin that makes it and for the server that repairs it: the veth with its addresses and routes, the port in Open
//! vSwitch, and how both go away again.
//!
//! ```text
//! PodInterface ─▶ Attachment ─┬▶ link ─▶ pod_end      the kernel
//!                             └▶ rows ─▶ bridge       Open vSwitch
//! Identity ─▶ detach                                  both, backwards
//! ```
//!
//! | module | noun | reads | writes |
//! |---|---|---|---|
//! | [`plan`] | [`plan::Attachment`]: one interface of one pod, decided; [`plan::Identity`]: which one it is | – | – |
//! | [`mark`] | [`mark::Mark`]: whose a link is, as its alias says it | – | – |
//! | [`rows`] | a port's rows as transactions; pure | – | – |
//! | [`settings`] | [`settings::Settings`]: where the partners are, and how long an ADD may take | – | – |
//! | [`mod@netlink`] | the four ways to speak with the kernel: request, dump, listen, batch | netlink | netlink |
//! | [`netns`] | [`netns::Netns`]: a pod's namespace, and what is opened inside it | namespaces | – |
//! | [`link`] | the veth | links | links |
//! | [`pod_end`] | addresses, routes and settings of the veth's pod end | – | addresses, routes, sysctl |
//! | [`offload`] | transmit checksum offload of an interface | ethtool | ethtool |
//! | [`conntrack`] | connections of an address that is no longer there | tracked connections | the same |
//! | [`nftables`] | [`nftables::Chain`]: a chain of rules, replaced in one transaction | rules | rules |
//! | [`bridge`] | [`bridge::Bridge`]: the session with Open vSwitch's database: look out, plug, unplug | OVSDB | OVSDB |
//! | [`installed`] | the wait until a port works | OVSDB | – |
//! | [`detach`] | [`detach::Detacher`]: DEL's work, and ADD's rollback | OVSDB, links | OVSDB, links, tracked connections |
//! | [`fence`] | [`fence::Fence`]: one call at a time for each interface | a directory that is root's alone | the same |
//! | [`partner`] | [`partner::Partner`]: whether Open vSwitch and ovn-controller answer | OVSDB, control sockets | – |
//! | [`boot`], [`stamp`] | which boot of the machine this is; when a server could last answer ADDs | files, clock | – |
//! | [`mod@chain`] | [`chain::chain`]: an error with its causes, as one line, without repetitions | – | – |
//!
//! Must not know the command line, the protocol of CNI, its error codes, nor which program asks. Starts no other program.

pub mod boot;
pub mod bridge;
pub mod chain;
pub mod conntrack;
pub mod detach;
pub mod fence;
pub mod installed;
pub mod link;
pub mod mark;
pub mod netlink;
pub mod netns;
pub mod nftables;
pub mod offload;
pub mod partner;
pub mod plan;
pub mod pod_end;
pub mod rows;
pub mod settings;
pub mod stamp;
