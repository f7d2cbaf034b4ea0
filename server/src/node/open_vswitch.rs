//! The settings in Open vSwitch's database that ovn-controller needs.
//!
//! | module | what it does |
//! |---|---|
//! | [`settings`] | the desired settings, and the transactions that write and remove them; pure |
//! | [`switch`] | the connection: waits for the database, writes, and puts back what disappears |
//! | [`tunnel_address`] | the local address of tunnels, if none is configured |
//! | [`default_route`] | the address of the interface with the default route |

use std::{net::IpAddr, path::PathBuf, time::Duration};

use ovsdb::Endpoint;

pub(super) mod default_route;
pub(super) mod settings;
pub(super) mod switch;
pub(super) mod tunnel_address;

/// This node's settings in Open vSwitch's database.
#[derive(Debug, Clone)]
pub struct OpenVSwitch {
    /// The endpoint of the database.
    pub endpoint: Endpoint,
    /// The directory with ovn-controller's pidfile and control socket.
    pub ovn_run_dir: PathBuf,
    pub chassis: Chassis,
}

/// The desired `external_ids` of the `Open_vSwitch` table (ovn-controller(8)). Without an option, a
/// value is the one that the administrator wrote there, or else the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chassis {
    /// `ovn-remote`: endpoints of the southbound database, separated by commas.
    pub southbound: String,
    /// The files for `ssl:`. `None`: those of `ovs-vsctl set-ssl` stay.
    pub tls: Option<SouthboundTls>,
    /// `ovn-encap-type`
    pub encap_type: String,
    /// `ovn-encap-ip`. `None`: the node's `InternalIP`, or else the address of the interface with
    /// the default route; followed when it changes.
    pub encap_ip: Option<String>,
    /// Whether pods of other zones are reached: writes `ovn-is-interconn`, without which
    /// ovn-controller has no tunnels to remote chassis.
    pub interconnect: bool,
    /// `ovn-remote-probe-interval`, written in milliseconds.
    pub inactivity_probe: Duration,
    /// `ovn-openflow-probe-interval`, written in seconds.
    pub openflow_probe: Duration,
    /// `ovn-ofctrl-wait-before-clear`, written in milliseconds. `None`: not written.
    pub ofctrl_wait_before_clear: Option<Duration>,
    /// `ovn-monitor-all`
    pub monitor_all: bool,
    /// `ovn-enable-lflow-cache`
    pub lflow_cache: bool,
    /// `ovn-limit-lflow-cache`, in entries. `None`: no limit.
    pub lflow_cache_limit: Option<u64>,
    /// `ovn-memlimit-lflow-cache-kb`, in KB. `None`: no limit.
    pub lflow_cache_limit_kb: Option<u64>,
}

/// The chassis as of Open vSwitch's database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Identity {
    /// `external_ids:system-id`, the name of the chassis.
    pub(super) system_id: Option<String>,
    /// The first address of `external_ids:ovn-encap-ip`, which may have several, separated by
    /// commas.
    pub(super) encap_ip: Option<IpAddr>,
    /// All of them, for other zones; empty unless the chassis has tunnels to these.
    pub(super) encap_ips: Vec<IpAddr>,
    /// `external_ids:ovn-remote`
    pub(super) remote: Option<String>,
}

/// A southbound database that ovn-controller follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Southbound {
    /// `ovn-remote`
    pub(super) remote: String,
    pub(super) tls: Option<SouthboundTls>,
}

/// PEM files of ovn-controller for the southbound database, as in Open vSwitch's `SSL` row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SouthboundTls {
    pub private_key: PathBuf,
    pub certificate: PathBuf,
    pub authority: PathBuf,
}
