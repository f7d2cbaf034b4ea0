//! What Open vSwitch's database has of ovn-controller: its configuration, and ports of `br-int`.

use std::collections::BTreeMap;

use contract::paths::INTEGRATION_BRIDGE;
use ovsdb::SelectedRow;

use super::families::MetricSet;

/// `flows`: of `br-int`, if they are known.
pub(super) fn families(
    ids: &BTreeMap<String, String>,
    interfaces: &[SelectedRow],
    flows: Option<u64>,
) -> MetricSet {
    let mut families = MetricSet::default();
    let id = |key: &str| ids.get(key).map(String::as_str).unwrap_or_default();
    let number = |key: &str| id(key).parse::<f64>().unwrap_or_default();
    let mut set = |name: &str, help: &str, value: f64| {
        families.set(&format!("ovn_controller_{name}"), help, &[], value);
    };
    set(
        "remote_probe_interval_seconds",
        "Inactivity probe of the connection to the southbound database; 0 if none is set.",
        number("ovn-remote-probe-interval") / 1000.0,
    );
    set(
        "openflow_probe_interval_seconds",
        "Inactivity probe of the connection to the integration bridge; 0 if none is set.",
        number("ovn-bridge-remote-probe-interval"),
    );
    set(
        "monitor_all",
        "Whether ovn-controller monitors the whole southbound database (1) or its part (0).",
        f64::from(u8::from(id("ovn-monitor-all") == "true")),
    );
    let count = |is: &dyn Fn(&SelectedRow) -> bool| {
        interfaces.iter().filter(|row| is(row)).fold(0.0, |count, _| count + 1.0)
    };
    let is_of = |row: &SelectedRow, kind: &str| row.string("type") == Some(kind);
    set(
        "integration_bridge_geneve_ports",
        "Geneve ports of the integration bridge.",
        count(&|row| is_of(row, "geneve")),
    );
    let is_patch = |row: &SelectedRow| {
        is_of(row, "patch")
            && row.string("name").is_some_and(|name| name.contains(INTEGRATION_BRIDGE))
    };
    set(
        "integration_bridge_patch_ports",
        "Patch ports between the integration bridge and others.",
        count(&is_patch),
    );
    for (metric, label, key) in [
        ("encap_ip", "ipaddress", "ovn-encap-ip"),
        ("encap_type", "type", "ovn-encap-type"),
        ("sb_connection_method", "connection_method", "ovn-remote"),
        ("bridge_mappings", "mapping", "ovn-bridge-mappings"),
    ] {
        let help = format!("Always 1; the label is external_ids:{key} of Open vSwitch.");
        families.info(&format!("ovn_controller_{metric}"), &help, &[(label, id(key))]);
    }
    if let Some(flows) = flows {
        families.count(
            "ovn_controller_integration_bridge_openflow_total",
            "Flows of the integration bridge.",
            flows as f64,
        );
    }
    families
}
