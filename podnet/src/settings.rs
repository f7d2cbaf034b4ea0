//! Paths and endpoints of the programs that the plugin works with, and its timeout: the values of
//! the configuration over the defaults.

use std::{path::PathBuf, time::Duration};

use contract::{
    net_conf::{NetConf, Places},
    paths,
};
use ovsdb::{Endpoint, Endpoints};

use crate::interface_lock;

/// How long an ADD may take. Shorter than the shortest timeout of a runtime in use (60 s, older
/// CRI-O), so that the runtime gets the plugin's error and not its own.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(55);
/// Upper limit of an ADD's timeout, whatever the configuration says: no runtime waits longer, and
/// the clock cannot count every number.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// How long DEL, CHECK and GC wait for an answer of OVSDB: less than the 10 s after which the
/// session gives itself up, so that the error is the plugin's.
pub const SHORT_TIMEOUT: Duration = Duration::from_secs(8);
/// How long the rollback of an ADD waits for each answer: with the default timeout and one slow
/// answer, it ends before CRI-O's 60 s.
pub const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(4);

/// The settings of one call.
#[derive(Debug, Clone)]
pub struct Settings {
    pub server_socket: PathBuf,
    /// The directory of the locks ([`interface_lock`]).
    pub calls: PathBuf,
    pub ovsdb: Endpoints,
    pub ovs_run_dir: PathBuf,
    pub ovn_run_dir: PathBuf,
    /// How long an ADD may take.
    pub timeout: Duration,
}

/// A value of the configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("ovsdbEndpoint {value:?}: {reason}")]
pub struct BadSettings {
    value: String,
    reason: String,
}

impl Settings {
    /// The settings of a configuration.
    ///
    /// # Errors
    /// The endpoint of OVSDB cannot be parsed.
    pub fn of(conf: &NetConf) -> Result<Self, BadSettings> {
        // Zero means "not given", as in upstream's configurations: an ADD without any time could
        // never succeed.
        let timeout = conf
            .timeout_seconds
            .filter(|seconds| *seconds > 0)
            .map_or(DEFAULT_TIMEOUT, Duration::from_secs);
        Self::at(&conf.places, timeout.min(LONGEST_TIMEOUT))
    }

    /// Settings with this endpoint of OVSDB, and everything else at its usual place.
    pub fn with_ovsdb(endpoint: &Endpoint, timeout: Duration) -> Self {
        let places = Places {
            server_socket: None,
            ovsdb_endpoint: Some(endpoint.to_string()),
            ovn_run_dir: None,
        };
        Self::at(&places, timeout).expect("an endpoint can be read as it was written")
    }

    /// Settings with these places, for an ADD that may take this long.
    ///
    /// # Errors
    /// The endpoint of OVSDB cannot be parsed.
    pub fn at(places: &Places, timeout: Duration) -> Result<Self, BadSettings> {
        let path = |place: &Option<String>, default: &str| {
            PathBuf::from(place.as_deref().unwrap_or(default))
        };
        let endpoint = places.ovsdb_endpoint.as_deref().unwrap_or(paths::OVSDB_ENDPOINT);
        // Open vSwitch keeps the control sockets of its daemons beside the socket of its database.
        let beside = endpoint
            .split(',')
            .find_map(|one| one.trim().strip_prefix("unix:"))
            .map(PathBuf::from)
            .and_then(|socket| Some(socket.parent()?.to_owned()));
        let server_socket = path(&places.server_socket, paths::SERVER_SOCKET);
        Ok(Self {
            calls: interface_lock::directory_beside(&server_socket),
            server_socket,
            ovsdb: endpoint.parse().map_err(|reason: ovsdb::EndpointError| BadSettings {
                value: endpoint.to_owned(),
                reason: reason.to_string(),
            })?,
            ovs_run_dir: beside.unwrap_or_else(|| PathBuf::from(paths::OVS_RUN_DIR)),
            ovn_run_dir: path(&places.ovn_run_dir, paths::OVN_RUN_DIR),
            timeout,
        })
    }
}
