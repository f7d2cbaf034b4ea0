//! What ovn-controller needs to find in Open vSwitch's database.

use std::{path::PathBuf, time::Duration};

use ovsdb::Endpoint;

/// This node's settings in Open vSwitch's database.
#[derive(Debug, Clone)]
pub struct OpenVSwitch {
    /// Where the database is.
    pub endpoint: Endpoint,
    pub chassis: Chassis,
}

/// `external_ids` of the `Open_vSwitch` table (ovn-controller(8)). A value that nobody configured is the one that is there already, or
/// else the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chassis {
    /// `ovn-remote`: endpoints of the southbound database, separated by commas.
    pub southbound: String,
    /// For `ssl:`.
    pub tls: Option<SouthboundTls>,
    /// `ovn-encap-type`
    pub encap_type: String,
    /// `ovn-encap-ip`; none: the address of the interface with the default route.
    pub encap_ip: Option<String>,
    /// `ovn-encap-port`; none: OVN's own choice.
    pub encap_port: Option<u16>,
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

/// PEM files for ovn-controller, which Open vSwitch's `SSL` row names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SouthboundTls {
    pub private_key: PathBuf,
    pub certificate: PathBuf,
    pub authority: PathBuf,
}
