//! Where the plugin's partners are and how long it may take: the configuration's overrides over the defaults.

use std::{path::PathBuf, time::Duration};

use contract::{
    net_conf::{NetConf, Places},
    paths,
};
use ovsdb::{Endpoint, Endpoints};

/// Shorter than the shortest patience of a runtime that is in use (CRI-O's older 60 s), so that the error is ours to word.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(55);
/// How long DEL, CHECK, GC and STATUS wait for Open vSwitch's database.
pub const SHORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The partners' places.
#[derive(Debug, Clone)]
pub struct Settings {
    pub server_socket: PathBuf,
    pub ovsdb: Endpoints,
    pub ovs_run_dir: PathBuf,
    pub ovn_run_dir: PathBuf,
    /// How long an ADD may take.
    pub timeout: Duration,
}

/// An override that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("ovsdbEndpoint {value:?}: {reason}")]
pub struct BadSettings {
    value: String,
    reason: String,
}

impl Settings {
    /// The settings of a configuration.
    pub fn of(conf: &NetConf) -> Result<Self, BadSettings> {
        Self::at(&conf.places, conf.timeout_seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs))
    }

    /// Those of whoever works with this database of Open vSwitch, everything else at its usual place.
    pub fn with_ovsdb(endpoint: &Endpoint, timeout: Duration) -> Self {
        let places = Places { server_socket: None, ovsdb_endpoint: Some(endpoint.to_string()), ovn_run_dir: None };
        Self::at(&places, timeout).expect("an endpoint can be read as it was written")
    }

    /// Those of an ADD that may take this long.
    pub fn at(places: &Places, timeout: Duration) -> Result<Self, BadSettings> {
        let path = |place: &Option<String>, default: &str| PathBuf::from(place.as_deref().unwrap_or(default));
        let endpoint = places.ovsdb_endpoint.as_deref().unwrap_or(paths::OVSDB_ENDPOINT);
        let beside = endpoint.strip_prefix("unix:").map(PathBuf::from).and_then(|socket| Some(socket.parent()?.to_owned()));
        Ok(Self {
            server_socket: path(&places.server_socket, paths::SERVER_SOCKET),
            ovsdb: endpoint
                .parse()
                .map_err(|reason: ovsdb::EndpointError| BadSettings { value: endpoint.to_owned(), reason: reason.to_string() })?,
            ovs_run_dir: beside.unwrap_or_else(|| PathBuf::from(paths::OVS_RUN_DIR)),
            ovn_run_dir: path(&places.ovn_run_dir, paths::OVN_RUN_DIR),
            timeout,
        })
    }
}
