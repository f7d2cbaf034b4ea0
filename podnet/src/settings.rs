//! Where the plugin's partners are and how long it may take: the configuration's overrides over the defaults.

use std::{path::PathBuf, time::Duration};

use contract::{
    net_conf::{NetConf, Places},
    paths,
};
use ovsdb::{Endpoint, Endpoints};

use crate::fence;

/// Shorter than the shortest patience of a runtime that is in use (CRI-O's older 60 s), so that the error is ours to word.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(55);
/// What an ADD is given at the most, whatever the configuration says: no runtime waits longer, and the clock cannot count every number.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// How long DEL, CHECK and GC wait for an answer of Open vSwitch's database: less than the 10 s after which the session gives itself up, so
/// that the words are the plugin's.
pub const SHORT_TIMEOUT: Duration = Duration::from_secs(8);
/// How long the rollback of an ADD does: with the default timeout, it ends before CRI-O's 60 s.
pub const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(4);

/// The partners' places.
#[derive(Debug, Clone)]
pub struct Settings {
    pub server_socket: PathBuf,
    /// Where calls for one interface are kept apart ([`fence`]).
    pub calls: PathBuf,
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
        // Zero is "not given", as in the configurations of upstream: an ADD without any time could never succeed.
        let timeout = conf.timeout_seconds.filter(|seconds| *seconds > 0).map_or(DEFAULT_TIMEOUT, Duration::from_secs);
        Self::at(&conf.places, timeout.min(LONGEST_TIMEOUT))
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
        let server_socket = path(&places.server_socket, paths::SERVER_SOCKET);
        Ok(Self {
            calls: fence::directory_beside(&server_socket),
            server_socket,
            ovsdb: endpoint
                .parse()
                .map_err(|reason: ovsdb::EndpointError| BadSettings { value: endpoint.to_owned(), reason: reason.to_string() })?,
            ovs_run_dir: beside.unwrap_or_else(|| PathBuf::from(paths::OVS_RUN_DIR)),
            ovn_run_dir: path(&places.ovn_run_dir, paths::OVN_RUN_DIR),
            timeout,
        })
    }
}
