//! What ovn-controller needs to find in Open vSwitch's database.
//!
//! | module | what it does |
//! |---|---|
//! | [`settings`] | what the database is to hold, what of it differs or is missing, and the transaction that writes it; pure |
//! | [`switch`] | the connection: waits for the database, writes, and puts back what disappears |
//! | [`tunnel_address`] | the address that tunnels end at, where nobody gave one |
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
    /// Where the database is.
    pub endpoint: Endpoint,
    /// Directory of ovn-controller's process id.
    pub ovn_run_dir: PathBuf,
    pub chassis: Chassis,
}

/// `external_ids` of the `Open_vSwitch` table (ovn-controller(8)). A value that nobody configured is the one that is there already, or
/// else the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chassis {
    /// `ovn-remote`: endpoints of the southbound database, separated by commas.
    pub southbound: String,
    /// For `ssl:`; none: whatever the administrator gave to `ovs-vsctl set-ssl` stays.
    pub tls: Option<SouthboundTls>,
    /// `ovn-encap-type`
    pub encap_type: String,
    /// `ovn-encap-ip`; none: the node's `InternalIP`, or the address of the interface with the default route, whatever it is at the moment.
    pub encap_ip: Option<String>,
    /// `ovn-remote-probe-interval`, written in milliseconds.
    pub inactivity_probe: Duration,
    /// `ovn-openflow-probe-interval`, written in seconds.
    pub openflow_probe: Duration,
    /// `ovn-ofctrl-wait-before-clear`, written in milliseconds; none: not written.
    pub ofctrl_wait_before_clear: Option<Duration>,
    /// `ovn-monitor-all`
    pub monitor_all: bool,
    /// `ovn-enable-lflow-cache`
    pub lflow_cache: bool,
    /// `ovn-limit-lflow-cache`; none: no limit.
    pub lflow_cache_limit: Option<u64>,
    /// `ovn-memlimit-lflow-cache-kb`; none: no limit.
    pub lflow_cache_limit_kb: Option<u64>,
}

/// Who Open vSwitch's database says that this node is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Identity {
    /// `external_ids:system-id`, the name of the chassis.
    pub(super) system_id: Option<String>,
    /// The first of `external_ids:ovn-encap-ip`.
    pub(super) encap_ip: Option<IpAddr>,
}

/// PEM files for ovn-controller, which Open vSwitch's `SSL` row names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SouthboundTls {
    pub private_key: PathBuf,
    pub certificate: PathBuf,
    pub authority: PathBuf,
}
