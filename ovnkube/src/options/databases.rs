//! OVN's databases: their addresses and TLS files.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use ovsdb::{Endpoint, Endpoints, Identity, MissingAuthority, Ssl};

use super::{
    environment::readable,
    kind,
    reading::Reading,
    settings::{Origin, Setting, Settings},
    spec::Spec,
    table::{databases as table, open_vswitch::INACTIVITY_PROBE, roles::NET_CONTROLLER},
    values,
};
use crate::control_plane::{Database, Listener, OvnDatabase, Probe, ServerFiles};

/// The directory of the databases' sockets in the time when OVN was part of Open vSwitch.
const OLD_RUN_DIR: &str = "/var/run/openvswitch";

/// The options of one of the two databases.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) address: &'static Spec,
    /// Key, certificate, authority.
    pub(super) files: [&'static Spec; 3],
    /// Their paths if none are given.
    usual: [&'static str; 3],
    common_name: &'static Spec,
    run_dir: &'static Spec,
    socket: &'static str,
    /// Key, certificate, authority of the database's server.
    pub(super) server_files: [&'static Spec; 3],
    /// Where it listens if no address says it (ovn-ctl(8)).
    port: u16,
    database: OvnDatabase,
}

pub(super) static NORTHBOUND: Side = Side {
    address: &table::NB_ADDRESS,
    files: [&table::NB_CLIENT_PRIVKEY, &table::NB_CLIENT_CERT, &table::NB_CLIENT_CACERT],
    usual: [
        "/etc/openvswitch/ovnnb-privkey.pem",
        "/etc/openvswitch/ovnnb-cert.pem",
        "/etc/openvswitch/ovnnb-ca.cert",
    ],
    common_name: &table::NB_CERT_COMMON_NAME,
    run_dir: &table::NB_RUN_DIR,
    socket: "ovnnb_db.sock",
    server_files: [&table::NB_SERVER_PRIVKEY, &table::NB_SERVER_CERT, &table::NB_SERVER_CACERT],
    port: 6641,
    database: OvnDatabase::Northbound,
};

pub(super) static SOUTHBOUND: Side = Side {
    address: &table::SB_ADDRESS,
    files: [&table::SB_CLIENT_PRIVKEY, &table::SB_CLIENT_CERT, &table::SB_CLIENT_CACERT],
    usual: [
        "/etc/openvswitch/ovnsb-privkey.pem",
        "/etc/openvswitch/ovnsb-cert.pem",
        "/etc/openvswitch/ovnsb-ca.cert",
    ],
    common_name: &table::SB_CERT_COMMON_NAME,
    run_dir: &table::SB_RUN_DIR,
    socket: "ovnsb_db.sock",
    server_files: [&table::SB_SERVER_PRIVKEY, &table::SB_SERVER_CERT, &table::SB_SERVER_CACERT],
    port: 6642,
    database: OvnDatabase::Southbound,
};

impl Side {
    /// How the control plane reaches the database.
    pub(super) fn database(&'static self, reading: &mut Reading) -> Option<Database> {
        let bootstrap = reading.switch(&table::BOOTSTRAP_CA_CERT)?;
        // Only if it is given: the option's default is for ovn-controller, and the client has its
        // own.
        let probe = reading.read_given(&INACTIVITY_PROBE, |text| kind::number(text, 0, u64::MAX));
        let probe = probe.map(|millis| {
            if millis == 0 { Probe::Never } else { Probe::After(Duration::from_millis(millis)) }
        });
        let Some(address) = reading.settings.given(self.address).cloned() else {
            let local = self.local_socket(reading);
            self.forbid_files(reading, &local);
            let endpoints = reading.problems.take(values::databases(&local))?;
            return Some(Database { endpoints, ssl: None, probe });
        };
        let endpoints = reading.read(self.address, values::databases)?;
        if !values::is_tls(&endpoints) {
            self.forbid_files(reading, &endpoints.to_string());
            return Some(Database { endpoints, ssl: None, probe });
        }
        let private_key = self.tls_file(reading, 0, &address);
        let certificate = self.tls_file(reading, 1, &address);
        let authority = match self.authority_to_come(reading).filter(|_| bootstrap) {
            Some(path) => Some(path),
            None => self.tls_file(reading, 2, &address),
        };
        let common_name =
            reading.settings.given(self.common_name).map(|setting| setting.value.clone());
        let missing_authority =
            if bootstrap { MissingAuthority::Bootstrap } else { MissingAuthority::Refuse };
        let identity = Some(Identity { private_key: private_key?, certificate: certificate? });
        let mut ssl = Ssl::new(authority?);
        ssl.identity = identity;
        ssl.missing_authority = missing_authority;
        ssl.common_name = common_name;
        Some(Database { endpoints, ssl: Some(ssl), probe })
    }

    /// The path of the CA file, if there is no such file.
    fn authority_to_come(&self, reading: &Reading) -> Option<PathBuf> {
        let path = reading
            .settings
            .given(self.files[2])
            .map_or(self.usual[2], |setting| setting.value.as_str());
        (!Path::new(path).exists()).then(|| path.into())
    }

    /// The file that is given, or else the usual one, if it can be read. `which`: an index of
    /// [`Self::files`].
    pub(super) fn tls_file(
        &self,
        reading: &mut Reading,
        which: usize,
        address: &Setting,
    ) -> Option<PathBuf> {
        let (spec, usual) = (self.files[which], self.usual[which]);
        if reading.settings.given(spec).is_some() {
            return reading.file(spec);
        }
        let wrong = |reason| {
            let needs = address.names(self.address);
            format!(
                "{needs} needs --{}; the usual file {usual} cannot be read: {reason}",
                spec.name
            )
        };
        reading.problems.take(readable(usual.as_ref()).map_err(wrong)).map(|()| usual.into())
    }

    /// TLS files for a database without TLS are an error: either the files or the address is wrong.
    pub(super) fn forbid_files(&self, reading: &mut Reading, address: &str) {
        for spec in self.files {
            if let Some(setting) = reading.settings.given(spec).filter(|setting| setting.insists) {
                let problem = format!(
                    "{}: is for ssl:, and the database's address is {address}",
                    setting.names(spec)
                );
                reading.problems.add(problem);
            }
        }
    }

    pub(super) fn is_any_file_given(&self, reading: &Reading) -> bool {
        self.files.iter().any(|spec| reading.settings.given(spec).is_some())
    }

    /// The database's address if none is given.
    pub(super) fn local_socket(&self, reading: &Reading) -> String {
        let directory = reading.path(self.run_dir);
        let (path, old) =
            (directory.join(self.socket), PathBuf::from(OLD_RUN_DIR).join(self.socket));
        // The old directory only by default, and only if the new one has no socket.
        let is_default = reading.settings.value(self.run_dir).origin == Origin::Default;
        let path = if is_default && !path.exists() && old.exists() { old } else { path };
        format!("unix:{}", path.display())
    }
}

/// The databases that a controller opens. `None` if the options have errors.
pub(super) fn opened(reading: &mut Reading) -> Option<Vec<Listener>> {
    let asked = reading.switch(&table::OPEN_DATABASES)?;
    let as_in_2018 = reading.switch(&NET_CONTROLLER)?;
    if is_opening_forbidden(&reading.settings) {
        return Some(Vec::new());
    }
    let sides = [&NORTHBOUND, &SOUTHBOUND];
    let is_any_tls = sides.iter().any(|side| side.asks_for_tls(&reading.settings));
    let mut listeners = Vec::new();
    for side in sides {
        let is_opened = asked
            || as_in_2018 && side.has_tcp(&reading.settings)
            || side.opens_by_files(&reading.settings);
        if !is_opened {
            continue;
        }
        let without_address = addresses(&reading.settings, side.address).is_none();
        if without_address && is_any_tls {
            let (address, port) = (side.address.flag(), side.port);
            reading.problems.add(format!(
                "--open-databases: {address} is missing, and the other database has ssl:; add \
                 {address} ssl:IP:{port}, or tcp:IP:{port} to open this one to everybody"
            ));
            continue;
        }
        listeners.push(side.listener(reading)?);
    }
    Some(listeners)
}

/// `--open-databases=false` is said, and not just the default: it wins over the options of 2018.
pub(super) fn is_opening_forbidden(settings: &Settings) -> bool {
    let said = settings.given(&table::OPEN_DATABASES);
    said.is_some_and(|setting| kind::switch(&setting.value) == Ok(false))
}

/// The addresses of servers that are given, if they can be read and are not sockets of this host.
fn addresses(settings: &Settings, spec: &'static Spec) -> Option<Endpoints> {
    let endpoints = values::databases(&settings.given(spec)?.value).ok()?;
    let is_remote = endpoints.iter().any(|endpoint| !matches!(endpoint, Endpoint::Unix(_)));
    is_remote.then_some(endpoints)
}

impl Side {
    /// An `ssl:` address and all three files of the server, as the programs of 2018 had them: such
    /// a database is opened without further words.
    pub(super) fn opens_by_files(&self, settings: &Settings) -> bool {
        let has_all = self.server_files.iter().all(|spec| settings.given(spec).is_some());
        has_all && self.asks_for_tls(settings)
    }

    /// A `tcp:` address that other machines reach: `--net-controller` opens such a database, as in
    /// 2018.
    pub(super) fn has_tcp(&self, settings: &Settings) -> bool {
        addresses(settings, self.address).is_some_and(|endpoints| {
            endpoints.iter().any(|endpoint| match endpoint {
                Endpoint::Tcp { host, .. } => {
                    let host = host.trim_matches(['[', ']']);
                    let address = host.parse::<IpAddr>();
                    host != "localhost" && !address.is_ok_and(|address| address.is_loopback())
                }
                Endpoint::Unix(_) | Endpoint::Ssl { .. } => false,
            })
        })
    }

    fn asks_for_tls(&self, settings: &Settings) -> bool {
        addresses(settings, self.address).is_some_and(|endpoints| values::is_tls(&endpoints))
    }

    fn listener(&self, reading: &mut Reading) -> Option<Listener> {
        let endpoints = addresses(&reading.settings, self.address);
        let places: Vec<(&str, u16)> =
            endpoints.iter().flat_map(Endpoints::iter).filter_map(place).collect();
        let port = places.first().map_or(self.port, |(_, port)| *port);
        let flag = self.address.flag();
        if places.iter().any(|(_, other)| *other != port) {
            reading.problems.add(format!(
                "{flag} has several ports, and a database opens one \
                 (--open-databases, --net-controller)"
            ));
            return None;
        }
        // Of the kernel's IPv6 sockets, this one takes IPv4, too.
        let has_ipv6 = places.iter().any(|(host, _)| host.contains(':'));
        let tls = if self.asks_for_tls(&reading.settings) {
            Some(self.files_of_server(reading)?)
        } else {
            None
        };
        let method = if tls.is_some() { "pssl" } else { "ptcp" };
        let target = format!("{method}:{port}{}", if has_ipv6 { ":[::]" } else { "" });
        let socket = self.local_socket(reading);
        let socket =
            reading.problems.take(socket.parse().map_err(|error| format!("{flag}: {error}")))?;
        Some(Listener { database: self.database, socket, target, port, tls })
    }

    fn files_of_server(&self, reading: &mut Reading) -> Option<ServerFiles> {
        let given = |spec: &&'static Spec| {
            reading.settings.given(spec).map(|setting| setting.value.clone())
        };
        let [private_key, certificate, authority] = self.server_files.each_ref().map(given);
        let files = private_key.zip(certificate).zip(authority);
        if files.is_none() {
            let missing: Vec<String> = self.server_files.iter().map(|spec| spec.flag()).collect();
            let address = self.address.flag();
            reading
                .problems
                .add(format!("--open-databases: ssl: in {address} needs {}", missing.join(", ")));
        }
        let ((private_key, certificate), authority) = files?;
        Some(ServerFiles { private_key, certificate, authority })
    }
}

fn place(endpoint: &Endpoint) -> Option<(&str, u16)> {
    match endpoint {
        Endpoint::Unix(_) => None,
        Endpoint::Tcp { host, port } | Endpoint::Ssl { host, port } => Some((host, *port)),
    }
}
