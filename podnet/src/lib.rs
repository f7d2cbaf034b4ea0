//! A pod's plumbing, for the plugin that makes it and for the server that repairs it: the veth with
//! its addresses and routes, the port in Open vSwitch, and the removal of both.
//!
//! ```text
//! PodInterface ─▶ Attachment ─┬▶ link ─▶ pod_end      the kernel
//!                             └▶ rows ─▶ bridge       Open vSwitch
//! Identity ─▶ detach                                  both, backwards
//! ```
//!
//! | module | noun | reads | writes |
//! |---|---|---|---|
//! | [`plan`] | [`plan::Attachment`]: the plan of an interface; [`plan::Identity`]: which one it is | – | – |
//! | [`ownership_tag`] | [`ownership_tag::OwnershipTag`]: the owner of a link, as its alias names it | – | – |
//! | [`mod@reach`] | whether addresses answer, asked from a namespace | packets | packets |
//! | [`rows`] | a port's rows as transactions; pure | – | – |
//! | [`settings`] | [`settings::Settings`]: paths, endpoints and timeouts | – | – |
//! | [`mod@netlink`] | the four ways to use netlink: request, dump, listen, batch | netlink | netlink |
//! | [`netns`] | [`netns::Netns`]: a pod's namespace, and what is opened inside it | namespaces | – |
//! | [`link`] | the veth | links | links |
//! | [`pod_end`] | addresses, routes and settings of the pod's end | – | addresses, routes, sysctl |
//! | [`pod_look`] | [`pod_look::PodLook`]: the pod's end as it is now | its namespace | – |
//! | [`offload`] | transmit checksum offload of an interface | ethtool | ethtool |
//! | [`conntrack`] | tracked connections of an address that is gone | connections | connections |
//! | [`nftables`] | [`nftables::Chain`]: rules; [`nftables::Set`]: what they look up | both | both |
//! | [`bridge`] | [`bridge::Bridge`]: the session with OVSDB: monitor, plug, unplug | OVSDB | OVSDB |
//! | [`installed`] | the wait until a port works | OVSDB | – |
//! | [`detach`] | [`detach::Detacher`]: the work of DEL and of ADD's rollback | OVSDB, links | the same |
//! | [`interface_lock`] | [`interface_lock::InterfaceLock`]: the lock on an interface | a directory of root's | the same |
//! | [`control_socket`] | [`control_socket::ControlSocket`]: commands to a daemon of OVS or OVN | its socket | – |
//! | [`openflow`] | [`openflow::Connection`] with a bridge; questions about its flows | its OpenFlow socket | – |
//! | [`daemon`] | [`daemon::Daemon`]: whether OVS and ovn-controller answer | OVSDB, control sockets | – |
//! | [`boot`], [`stamp`] | the machine's boot; when a server could last answer ADDs | files, clock | – |
//!
//! Must not know the command line, the protocol of CNI, its error codes, nor which program asks.
//! Starts no other program.

pub mod boot;
pub mod bridge;
pub mod conntrack;
pub mod control_socket;
pub mod daemon;
pub mod detach;
pub mod installed;
pub mod interface_lock;
pub mod link;
pub mod netlink;
pub mod netns;
pub mod nftables;
pub mod offload;
pub mod openflow;
pub mod ownership_tag;
pub mod plan;
pub mod pod_end;
pub mod pod_look;
pub mod reach;
pub mod rows;
pub mod settings;
pub mod stamp;
