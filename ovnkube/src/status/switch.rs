//! Open vSwitch on this machine: its daemon and bridge, the ports of pods, and the tunnels.

use std::{collections::BTreeMap, fs, path::Path};

use contract::{
    external_ids::OVN_INSTALLED,
    paths::{CNI_CONF_DIR, INTEGRATION_BRIDGE},
};
use ovsdb::{Connection, SelectedRow, Where};
use podnet::control_socket::{ControlSocket, VSWITCHD};

use super::{Machine, PATIENCE, answer, databases::rows, host, node::THIS_MACHINE};
use crate::findings::{Finding, State};

const OPEN_VSWITCH: &str = "Open vSwitch";
/// Types of tunnels that ovn-controller makes.
const TUNNELS: [&str; 2] = ["geneve", "vxlan"];

/// Nothing where there is no Open vSwitch.
pub(super) async fn findings(machine: &Machine) -> Vec<Finding> {
    if let ovsdb::Endpoint::Unix(path) = &machine.ovsdb
        && !path.exists()
    {
        return Vec::new();
    }
    let failed = |why: &str| {
        let next = "systemctl status openvswitch-switch, and /var/log/openvswitch/ovs-vswitchd.log";
        Finding::new(THIS_MACHINE, OPEN_VSWITCH, State::Failed, why).next(next)
    };
    let options = ovsdb::Options { connect_timeout: PATIENCE, ..ovsdb::Options::small() };
    let database = match answer(Connection::open(&machine.ovsdb, "Open_vSwitch", options)).await {
        Ok(database) => database,
        Err(why) => return vec![failed(&format!("its database: {why}"))],
    };
    let daemon = ControlSocket::of(&machine.ovs_run_dir, VSWITCHD);
    let version = match daemon.ask("version", &[], PATIENCE).await {
        Ok(version) => version.lines().next().unwrap_or_default().to_owned(),
        Err(error) => return vec![failed(&format!("ovs-vswitchd does not answer: {error}"))],
    };
    let columns = ["name", "type", "error", "ofport", "external_ids", "options", "statistics"];
    let columns: Vec<&str> = columns.into_iter().chain(["bfd_status", "mtu"]).collect();
    let read = tokio::join!(
        rows(&database, "Open_vSwitch", Where::all(), &["external_ids"]),
        rows(&database, "Bridge", Where::all(), &["name", "ports"]),
        rows(&database, "Interface", Where::all(), &columns),
    );
    let (global, bridges, interfaces) = match read {
        (Ok(global), Ok(bridges), Ok(interfaces)) => (global, bridges, interfaces),
        (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => return vec![failed(&why)],
    };
    let ids = global.first().map(|row| row.map("external_ids")).unwrap_or_default();
    let mut findings = vec![bridge(&version, &bridges, &ids)];
    findings.push(ports(&interfaces));
    findings.extend(tunnels(&interfaces));
    findings.extend(host::findings(&interfaces, &ids));
    findings.extend(configuration(Path::new(CNI_CONF_DIR)));
    findings
}

fn bridge(version: &str, bridges: &[SelectedRow], ids: &BTreeMap<String, String>) -> Finding {
    let chassis = ids.get("system-id").map_or("no system-id", String::as_str);
    if bridges.iter().any(|row| row.string("name") == Some(INTEGRATION_BRIDGE)) {
        let said = format!("{version}, chassis {chassis}");
        return Finding::new(THIS_MACHINE, OPEN_VSWITCH, State::Ok, &said).with("chassis", chassis);
    }
    let why =
        format!("{version}, and there is no bridge {INTEGRATION_BRIDGE}: ovn-controller makes it");
    Finding::new(THIS_MACHINE, OPEN_VSWITCH, State::Failed, &why).next(
        "ovs-vsctl get Open_vSwitch . external_ids, which must have ovn-remote and ovn-encap-ip",
    )
}

/// The ports of pods: those that have flows, those that wait, and those whose device is gone.
fn ports(interfaces: &[SelectedRow]) -> Finding {
    let (mut all, mut installed, mut broken) = (0_usize, 0_usize, Vec::new());
    for row in interfaces {
        let ids = row.map("external_ids");
        // Only ports of pods have a sandbox.
        let Some(pod) = ids.get("iface-id").filter(|_| ids.contains_key("sandbox")) else {
            continue;
        };
        all += 1;
        installed += usize::from(ids.get(OVN_INSTALLED).is_some_and(|value| value == "true"));
        if let Some(error) = row.strings("error").first() {
            broken.push(format!("{pod} ({error})"));
        }
    }
    let found = |state, said: &str| Finding::new(THIS_MACHINE, "ports of pods", state, said);
    let finding = match (broken.first(), all - installed) {
        (Some(first), _) => {
            let why = format!(
                "{} of {all} have no device any more, and are left over: {first}",
                broken.len()
            );
            found(State::Warning, &why)
                .next("ovs-vsctl --columns=name,error,external_ids find Interface")
        }
        (None, 0) => found(State::Ok, &format!("{all}, all with flows")),
        (None, waiting) => {
            let why = format!(
                "{waiting} of {all} have no flows yet: ovn-controller is behind, or has no such logical port"
            );
            found(State::Warning, &why).next("ovn-appctl -t ovn-controller connection-status")
        }
    };
    finding.with("ports", all).with("installed", installed).with("leftovers", broken.len())
}

/// A line for each tunnel that is not up, and one for all that are.
fn tunnels(interfaces: &[SelectedRow]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut well = 0_usize;
    for row in interfaces {
        if !row.string("type").is_some_and(|kind| TUNNELS.contains(&kind)) {
            continue;
        }
        let remote = row.map("options").remove("remote_ip").unwrap_or_else(|| "flow".to_owned());
        let bfd = row.map("bfd_status");
        let counted = |name: &str| counter(row, name);
        let (sent, received) = (counted("tx_packets"), counted("rx_packets"));
        let name = format!("tunnel to {remote}");
        let broken = |state, why: &str| {
            let next = format!(
                "a firewall for UDP port 6081 between the two; ping -M do -s 1400 {remote}"
            );
            Finding::new(THIS_MACHINE, &name, state, why)
                .next(&next)
                .with("sent", sent)
                .with("received", received)
        };
        match (bfd.get("state").map(String::as_str), row.strings("error").first()) {
            (_, Some(error)) => findings.push(broken(State::Failed, error)),
            (Some("up"), None) => well += 1,
            (Some(state), None) => {
                findings.push(broken(State::Failed, &format!("BFD says it is {state}")))
            }
            (None, None) if sent > 0 && received == 0 => {
                findings.push(broken(
                    State::Warning,
                    &format!("{sent} packets were sent, and none has come back"),
                ));
            }
            (None, None) => well += 1,
        }
    }
    if well > 0 {
        findings.push(
            Finding::new(THIS_MACHINE, "tunnels", State::Ok, &format!("{well} without a fault"))
                .with("tunnels", well),
        );
    }
    findings
}

/// A counter of an interface. The column has integers, which `SelectedRow::map` leaves out.
fn counter(row: &SelectedRow, name: &str) -> i64 {
    let pairs = row.datum("statistics").map(ovsdb::Datum::pairs).unwrap_or_default();
    let value = pairs
        .iter()
        .find(|(key, _)| key.as_str() == Some(name))
        .and_then(|(_, value)| value.as_integer());
    value.unwrap_or_default()
}

/// Whether runtimes use this project's plugin: they take the first file of the directory.
pub(crate) fn configuration(directory: &Path) -> Option<Finding> {
    let entries = fs::read_dir(directory).ok()?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names
        .filter(|name| [".conf", ".conflist", ".json"].iter().any(|end| name.ends_with(end)))
        .collect();
    names.sort();
    let found =
        |state, said: &str| Some(Finding::new(THIS_MACHINE, "CNI configuration", state, said));
    let ours = |name: &String| {
        fs::read_to_string(directory.join(name))
            .is_ok_and(|text| text.contains(contract::paths::PLUGIN))
    };
    match (names.first(), names.iter().find(|name| ours(name))) {
        (Some(first), _) if ours(first) => {
            found(State::Ok, &format!("{}/{first}", directory.display()))
        }
        (Some(first), Some(own)) => {
            let why =
                format!("{first} comes before {own}: the runtime uses another network's plugin");
            Some(found(State::Failed, &why)?.next(&format!(
                "mv {}/{first} /root, if that network is gone",
                directory.display()
            )))
        }
        (_, None) => {
            let why = format!(
                "{} has none of this project: no pod gets its network from it",
                directory.display()
            );
            Some(
                found(State::Failed, &why)?
                    .next("ovnkube --init-node writes it once it can serve pods"),
            )
        }
        (None, Some(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_configuration_of_the_directory_is_the_one_that_counts() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        let state = || configuration(directory.path()).unwrap().state;
        assert_eq!(state(), State::Failed);
        write("10-ovn-kubernetes.conflist", r#"{"plugins":[{"type":"ovn-k8s-cni-overlay"}]}"#);
        write("99-other.conf", "{}");
        assert_eq!(state(), State::Ok);
        write("05-stale.conflist", r#"{"plugins":[{"type":"flannel"}]}"#);
        let finding = configuration(directory.path()).unwrap();
        assert_eq!(finding.state, State::Failed);
        assert!(
            finding.summary.contains("05-stale.conflist comes before 10-ovn-kubernetes.conflist"),
            "{finding:?}"
        );
    }
}
