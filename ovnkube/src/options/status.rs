//! Where `status` and `check` look: each part that the options name.

use std::path::Path;

use kubeapi::ApiServer;
use ovsdb::Endpoint;

use super::{
    Collected, Problems,
    databases::{NORTHBOUND, SOUTHBOUND, Side},
    external_ids::ExternalIds,
    kubernetes,
    reading::Reading,
    roles::Role,
    table::{cni, control_plane, node, open_vswitch},
    values,
};
use crate::{
    check::CheckConfig,
    exporter::ExporterPlaces,
    status::{Machine, Reach, StatusConfig},
};

impl Collected {
    pub(super) fn status(&self, external_ids: &ExternalIds) -> Result<StatusConfig, Problems> {
        // It ends, so credentials have to be there now.
        let mut reading = Reading { waits: false, ..self.reading(Role::Status, external_ids) };
        let machine = machine(&mut reading);
        let namespace = reading.read(&control_plane::OVN_CONFIG_NAMESPACE, values::namespace);
        // Those of single values; what is missing for a part is said of that part.
        reading.problems.clone().none_or()?;
        let api_server = api_server(&mut reading);
        let northbound = database(&NORTHBOUND, &mut reading);
        let southbound = database(&SOUTHBOUND, &mut reading);
        let (Some(machine), Some(namespace)) = (machine, namespace) else {
            return Err(Problems::incomplete());
        };
        Ok(StatusConfig { api_server, namespace, northbound, southbound, machine })
    }
}

impl Collected {
    pub(super) fn api_server(&self) -> Result<ApiServer, Problems> {
        let mut reading =
            Reading { waits: false, ..self.reading(Role::Status, &ExternalIds::Ignored) };
        let api_server = kubernetes::api_server(&mut reading);
        reading.problems.none_or()?;
        api_server.ok_or_else(Problems::incomplete)
    }

    pub(super) fn check(&self) -> Result<CheckConfig, Problems> {
        let mut reading =
            Reading { waits: false, ..self.reading(Role::Status, &ExternalIds::Ignored) };
        let machine = machine(&mut reading);
        let mtu = reading.read(&node::MTU, values::mtu);
        reading.problems.clone().none_or()?;
        let api_server = api_server(&mut reading);
        let (Some(machine), Some(mtu)) = (machine, mtu) else { return Err(Problems::incomplete()) };
        Ok(CheckConfig { api_server, machine, mtu: mtu.bytes() })
    }
}

impl Collected {
    pub(super) fn exporter(&self) -> Result<ExporterPlaces, Problems> {
        let mut reading = self.reading(Role::Status, &ExternalIds::Ignored);
        let places = reading.exporter_places();
        reading.problems.none_or()?;
        places.ok_or_else(Problems::incomplete)
    }
}

fn api_server(reading: &mut Reading) -> Reach<ApiServer> {
    match kubernetes::is_server_known(&reading.settings) {
        true => part(reading, kubernetes::api_server),
        false => Reach::NotGiven,
    }
}

fn machine(reading: &mut Reading) -> Option<Machine> {
    let ovsdb: Option<Endpoint> = reading.read(&open_vswitch::OVSDB_ENDPOINT, |text| {
        text.parse().map_err(|error| format!("{error}"))
    });
    Some(Machine {
        ovsdb: ovsdb?,
        ovs_run_dir: reading.path(&open_vswitch::OVS_RUN_DIR),
        ovn_run_dir: reading.path(&open_vswitch::OVN_RUN_DIR),
        socket: reading.path(&cni::SOCKET),
        recorded: None,
    })
}

fn database(side: &'static Side, reading: &mut Reading) -> Reach<crate::control_plane::Database> {
    let is_here = || {
        let socket = side.local_socket(reading);
        Path::new(socket.trim_start_matches("unix:")).exists()
    };
    if reading.settings.given(side.address).is_none() && !is_here() {
        return Reach::NotGiven;
    }
    part(reading, |reading| side.database(reading))
}

/// Reads a part with problems of its own.
fn part<T>(reading: &mut Reading, read: impl FnOnce(&mut Reading) -> Option<T>) -> Reach<T> {
    let before = std::mem::take(&mut reading.problems);
    let found = read(reading);
    let problems = std::mem::replace(&mut reading.problems, before);
    match (problems.none_or(), found) {
        (Ok(()), Some(found)) => Reach::Known(found),
        (Ok(()), None) => Reach::NotGiven,
        (Err(problems), _) => Reach::Unusable(problems.to_string()),
    }
}
