//! The configuration of the control plane, of `--remove-node` and of `policy explain`.

use std::{collections::BTreeSet, time::Duration};

use controller::config::{ClusterConfig, Zone};
use ovsdb::Endpoint;

use super::{
    Collected, Problems, cluster,
    databases::{NORTHBOUND, SOUTHBOUND, opened},
    external_ids::ExternalIds,
    kind, kubernetes, networks,
    reading::Reading,
    roles::Role,
    spec::Spec,
    table::{cluster::NO_HOSTSUBNET_NODES, control_plane as table, databases, roles},
    values,
};
use crate::{
    control_plane::{AdoptConfig, ControlPlaneConfig, Database, Election, LEASE, RemoveNodeConfig},
    explain::ExplainConfig,
    roles::Roles,
};

/// client-go's `JitterFactor`: its election requires a renew deadline of more than this many retry
/// periods.
const JITTER: f64 = 1.2;

impl Collected {
    /// The configuration of `roles`, which are those of `role`.
    pub(super) fn control_plane(
        &self,
        role: Role,
        roles: Roles,
        external_ids: &ExternalIds,
    ) -> Result<ControlPlaneConfig, Problems> {
        let mut reading = self.reading(role, external_ids);
        let config = reading.control_plane(role, roles);
        reading.problems.none_or()?;
        config.ok_or_else(Problems::incomplete)
    }

    pub(super) fn remove_node(
        &self,
        external_ids: &ExternalIds,
    ) -> Result<RemoveNodeConfig, Problems> {
        // Not `complete`: the command works without an API server. Not `waits`: it ends, so
        // credentials have to be there now.
        let reading = self.reading(Role::RemoveNode, external_ids);
        let mut reading = Reading { waits: false, complete: false, ..reading };
        let config = reading.remove_node();
        reading.problems.none_or()?;
        config.ok_or_else(Problems::incomplete)
    }

    pub(super) fn adopt(&self, external_ids: &ExternalIds) -> Result<AdoptConfig, Problems> {
        // It ends, so credentials have to be there now.
        let mut reading = Reading { waits: false, ..self.reading(Role::Adopt, external_ids) };
        let config = reading.adopt();
        reading.problems.none_or()?;
        config.ok_or_else(Problems::incomplete)
    }

    pub(super) fn explanation(
        &self,
        external_ids: &ExternalIds,
    ) -> Result<ExplainConfig, Problems> {
        // It ends, so credentials have to be there now.
        let mut reading = Reading { waits: false, ..self.reading(Role::Explain, external_ids) };
        let config = reading.explanation();
        reading.problems.none_or()?;
        config.ok_or_else(Problems::incomplete)
    }
}

impl Reading {
    fn explanation(&mut self) -> Option<ExplainConfig> {
        let northbound = NORTHBOUND.database(self);
        let patience = self.read(&databases::DB_TXN_TIMEOUT, positive_span);
        let api_server = kubernetes::api_server(self);
        Some(ExplainConfig {
            api_server: api_server?,
            northbound: northbound?,
            patience: patience?,
        })
    }

    fn adopt(&mut self) -> Option<AdoptConfig> {
        let northbound = NORTHBOUND.database(self);
        let patience = self.read(&databases::DB_TXN_TIMEOUT, positive_span);
        let (cluster, api_server) = (cluster::cluster(self), kubernetes::api_server(self));
        Some(AdoptConfig {
            northbound: northbound?,
            cluster: cluster?,
            api_server: api_server?,
            patience: patience?,
            dry_run: self.switch(&roles::DRY_RUN)?,
        })
    }

    fn control_plane(&mut self, role: Role, of: Roles) -> Option<ControlPlaneConfig> {
        let given =
            [&roles::INIT_MASTER, &roles::INIT_OVNKUBE_CONTROLLER, &roles::INIT_CLUSTER_MANAGER];
        let names: Vec<Option<String>> =
            given.into_iter().map(|spec| self.read_given(spec, values::node_name)).collect();
        let identity = names.into_iter().flatten().next();
        let cluster = cluster::cluster(self);
        let api_server = kubernetes::api_server(self);
        let foreign_nodes = self.read_given(&NO_HOSTSUBNET_NODES, networks::selector);
        let northbound = if of.has_controller() { Some(NORTHBOUND.database(self)) } else { None };
        // Of the events there, only those of idled Services are of use. The chassis of nodes of
        // other zones are written there. With an address, those of deleted nodes leave it, too.
        let unidles = cluster.as_ref().is_some_and(|cluster| cluster.empty_lb_events);
        let is_connected = cluster.as_ref().is_some_and(ClusterConfig::is_connected);
        let is_used = of.has_controller()
            && (unidles || is_connected || self.settings.given(&databases::SB_ADDRESS).is_some());
        let southbound = is_used.then(|| SOUTHBOUND.database(self));
        let opened = if of.has_controller() { opened(self) } else { Some(Vec::new()) };
        // A controller in one process with a node's server is the only one of its zone, if the zone
        // is the node's own.
        let zone = cluster.as_ref().map(|cluster| cluster.zone.clone());
        let beside_node = matches!(role, Role::Beside(_));
        let is_elected = of.has_cluster_manager() || !beside_node || zone == Some(Zone::default());
        let stands = self.switch(&table::HA_ELECTION)?;
        if !stands && self.settings.given(&roles::PIDFILE).is_none() {
            self.problems.add(
                "--ha-election=false needs --pidfile: it keeps a second control plane from starting"
                    .to_owned(),
            );
        }
        // Read in any case: a value that makes no sense is no matter of another option.
        let election =
            is_elected.then(|| self.election(of, zone.as_ref().map(|zone| zone.0.as_str())));
        let election = election.filter(|_| stands);
        let bootstrap_users =
            if of.has_cluster_manager() { Some(self.bootstrap_users()) } else { None };
        let (log, endpoints) = (self.log(), self.endpoints());
        let beside = |database: Database| match is_connected {
            true => with_new(database),
            false => database,
        };
        Some(ControlPlaneConfig {
            identity: identity?,
            roles: of,
            election: required(election)?,
            api_server: api_server?,
            cluster: cluster?,
            foreign_nodes,
            northbound: required(northbound)?.map(beside),
            southbound: required(southbound)?.map(beside),
            opened: opened?,
            bootstrap_users: required(bootstrap_users)?.flatten(),
            log: log?,
            pidfile: self
                .settings
                .given(&roles::PIDFILE)
                .map(|setting| setting.value.clone().into()),
            endpoints: endpoints?,
        })
    }

    /// The users that may request the first certificate of any node; `None` inside if this process
    /// approves no certificates.
    fn bootstrap_users(&mut self) -> Option<Option<BTreeSet<String>>> {
        let approves = self.switch(&table::APPROVE_NODE_CERTIFICATES)?;
        let users = self.settings.value(&table::NODE_BOOTSTRAP_USERS).value;
        let users =
            users.split(',').map(str::trim).filter(|user| !user.is_empty()).map(str::to_owned);
        Some(approves.then(|| users.collect()))
    }

    fn remove_node(&mut self) -> Option<RemoveNodeConfig> {
        let node = self.read_given(&roles::REMOVE_NODE, values::node_name);
        let (northbound, southbound) = (NORTHBOUND.database(self), SOUTHBOUND.database(self));
        let patience = self.read(&databases::DB_TXN_TIMEOUT, positive_span);
        let cluster = cluster::cluster(self);
        let api_server = kubernetes::api_server(self);
        Some(RemoveNodeConfig {
            node: node?,
            northbound: northbound?,
            southbound: southbound?,
            patience: patience?,
            cluster: cluster?,
            api_server,
        })
    }

    fn election(&mut self, of: Roles, zone: Option<&str>) -> Option<Election> {
        let namespace = self.read(&table::OVN_CONFIG_NAMESPACE, values::namespace);
        let [duration, deadline, retry]: [&'static Spec; 3] = match of {
            Roles::ClusterManager => [
                &table::MANAGER_LEASE_DURATION,
                &table::MANAGER_RENEW_DEADLINE,
                &table::MANAGER_RETRY_PERIOD,
            ],
            Roles::Controller | Roles::Both => {
                [&table::LEASE_DURATION, &table::RENEW_DEADLINE, &table::RETRY_PERIOD]
            }
        };
        let times =
            [duration, deadline, retry].map(|spec| self.number(spec).map(Duration::from_secs));
        let [Some(lasts), Some(renewed_within), Some(retried_after)] = times else { return None };
        let (whole, part) = (self.seconds(duration), self.seconds(deadline));
        if renewed_within >= lasts {
            self.problems.add(format!(
                "{part} has to be less than {whole}: a leader gives up before others take over"
            ));
        }
        if retried_after.mul_f64(JITTER) >= renewed_within {
            let retry = self.seconds(retry);
            self.problems.add(format!(
                "{part} has to be more than {JITTER} times {retry}: a leader tries more than once"
            ));
        }
        let of_zone = format!("{LEASE}-{}", zone?);
        // A process of both roles takes both Leases: it must exclude processes that have only one
        // of the roles.
        let (lease, second_lease) = match of {
            Roles::ClusterManager => (LEASE.to_owned(), None),
            Roles::Controller => (of_zone, None),
            Roles::Both => (LEASE.to_owned(), Some(of_zone)),
        };
        Some(Election {
            namespace: namespace?,
            lease,
            second_lease,
            duration: lasts,
            renew_deadline: renewed_within,
            retry_period: retried_after,
            lock_directory: self.settings.value(&table::ELECTION_LOCK_DIR).value.clone().into(),
        })
    }

    /// The option with its value, for an error.
    fn seconds(&self, spec: &'static Spec) -> String {
        let setting = self.settings.value(spec);
        format!("{} ({} s)", setting.origin.names(spec), setting.value)
    }
}

/// A zone's database of this host that is new listens beside its socket, for those that fill it
/// (`conf/image/ovnkube.sh`).
fn with_new(database: Database) -> Database {
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for endpoint in database.endpoints.iter() {
        if let Endpoint::Unix(path) = endpoint {
            let mut beside = path.clone().into_os_string();
            beside.push(".filling");
            // First: where none listens, the socket itself is what a report names.
            endpoints.push(Endpoint::Unix(beside.into()));
        }
        endpoints.push(endpoint.clone());
    }
    let endpoints = endpoints.try_into().unwrap_or(database.endpoints);
    Database { endpoints, ..database }
}

/// `None` if the value is needed and has errors. `Some(None)` if it is not needed.
fn required<T>(value: Option<Option<T>>) -> Option<Option<T>> {
    match value {
        None => Some(None),
        Some(value) => value.map(Some),
    }
}

fn positive_span(text: &str) -> Result<Duration, String> {
    let span = kind::span(text)?;
    if span.is_zero() { Err(format!("{text:?} leaves no time at all")) } else { Ok(span) }
}
