//! The settings that the server writes into Open vSwitch's database for ovn-controller.

use std::{collections::BTreeSet, time::Duration};

use controller::config::Zone;
use server::node::{Chassis, OtherZone, SouthboundTls};

use super::{
    databases::{NORTHBOUND, SOUTHBOUND},
    kind, networks,
    reading::Reading,
    settings::Origin,
    spec::Spec,
    table::{cluster, open_vswitch},
    values,
};

pub(super) fn chassis(reading: &mut Reading) -> Option<Chassis> {
    let (southbound, tls) = southbound(reading);
    northbound(reading);
    let encap_type = reading.read(&open_vswitch::ENCAP_TYPE, values::encap_type);
    let encap_ip = reading.read_given(&open_vswitch::ENCAP_IP, values::addresses);
    let interconnect = reading.switch(&cluster::INTERCONNECT);
    let inactivity = reading.number(&open_vswitch::INACTIVITY_PROBE);
    let openflow = reading.number(&open_vswitch::OPENFLOW_PROBE);
    let wait = reading.read_given(&open_vswitch::OFCTRL_WAIT_BEFORE_CLEAR, |text| {
        kind::number(text, 0, u64::MAX)
    });
    let (monitor_all, cache) =
        (reading.switch(&open_vswitch::MONITOR_ALL), reading.switch(&open_vswitch::LFLOW_CACHE));
    let limits = (
        reading.number(&open_vswitch::LFLOW_CACHE_LIMIT),
        reading.number(&open_vswitch::LFLOW_CACHE_LIMIT_KB),
    );
    if interconnect == Some(true) {
        only_geneve(reading, encap_type.as_deref());
    }
    // A limit of 0 is none: the key is not written.
    Some(Chassis {
        southbound: southbound?,
        tls,
        encap_type: encap_type?,
        encap_ip,
        interconnect: interconnect?,
        inactivity_probe: Duration::from_millis(inactivity?),
        openflow_probe: Duration::from_secs(openflow?),
        ofctrl_wait_before_clear: wait.map(Duration::from_millis),
        monitor_all: monitor_all?,
        lflow_cache: cache?,
        lflow_cache_limit: limits.0.filter(|limit| *limit > 0),
        lflow_cache_limit_kb: limits.1.filter(|limit| *limit > 0),
    })
}

/// Keys of VXLAN are too short for the switch between zones.
fn only_geneve(reading: &mut Reading, encap_type: Option<&str>) {
    let types = encap_type.unwrap_or_default().split(',').map(str::trim);
    if types.clone().any(|name| name == "vxlan") {
        let option = open_vswitch::ENCAP_TYPE.flag();
        reading.problems.add(format!(
            "{option} vxlan cannot be used with {}: tunnels between zones need geneve",
            cluster::INTERCONNECT.flag()
        ));
    }
}

/// The UDP ports of the encapsulations, which nodes take for each other's without asking: Geneve's
/// is an option, VXLAN's is OVN's own (RFC 7348).
pub(super) fn tunnel_ports(reading: &mut Reading) -> Option<BTreeSet<u16>> {
    let types = reading.read(&open_vswitch::ENCAP_TYPE, values::encap_type)?;
    let geneve = reading.read(&open_vswitch::ENCAP_PORT, |text| kind::number(text, 1, 65535))?;
    let port_of = |name: &str| match name {
        "vxlan" => 4789,
        _ => u16::try_from(geneve).unwrap_or(u16::MAX),
    };
    Some(types.split(',').map(str::trim).map(port_of).collect())
}

/// The southbound database's address, and ovn-controller's TLS files. If neither address nor files
/// are given as options, the files that an administrator configured in Open vSwitch stay.
fn southbound(reading: &mut Reading) -> (Option<String>, Option<SouthboundTls>) {
    let Some(address) = reading.settings.given(SOUTHBOUND.address).cloned() else {
        let local = SOUTHBOUND.local_socket(reading);
        // Only if no address can come any more: one with `ssl:` may still be in `external_ids`.
        if reading.complete {
            SOUTHBOUND.forbid_files(reading, &local);
        }
        return (Some(local), None);
    };
    let Some(parsed) = reading.read(SOUTHBOUND.address, values::databases) else {
        return (None, None);
    };
    let text = parsed.to_string();
    if !values::is_tls(&parsed) {
        SOUTHBOUND.forbid_files(reading, &text);
        return (Some(text), None);
    }
    // The administrator configured the connection in Open vSwitch: its TLS files are there, too.
    if matches!(address.origin, Origin::ExternalId(_)) && !SOUTHBOUND.is_any_file_given(reading) {
        return (Some(text), None);
    }
    let [key, certificate, authority] =
        [0, 1, 2].map(|which| SOUTHBOUND.tls_file(reading, which, &address));
    let tls = key.zip(certificate).zip(authority);
    (
        Some(text),
        tls.map(|((private_key, certificate), authority)| SouthboundTls {
            private_key,
            certificate,
            authority,
        }),
    )
}

/// The zone that the node may move to, besides its own. `None` if the options have errors.
pub(super) fn other_zone(reading: &mut Reading) -> Option<Option<OtherZone>> {
    let options = [&open_vswitch::OTHER_ZONE, &open_vswitch::OTHER_SB_ADDRESS];
    let [zone, address] = options.map(|spec| reading.settings.given(spec).cloned());
    let (zone, address) = match (zone, address) {
        (None, None) => return Some(None),
        (Some(zone), Some(address)) => (zone, address),
        (Some(_), None) | (None, Some(_)) => {
            let [zone, address] = options.map(Spec::flag);
            reading.problems.add(format!("{zone} and {address} need each other"));
            return None;
        }
    };
    let name = reading.read(&open_vswitch::OTHER_ZONE, networks::zone);
    let southbound = reading.read(&open_vswitch::OTHER_SB_ADDRESS, values::databases);
    let own = super::cluster::zone(reading);
    let interconnect = reading.switch(&cluster::INTERCONNECT)?;
    let flag = zone.names(&open_vswitch::OTHER_ZONE);
    if !interconnect {
        reading.problems.add(format!("{flag} needs {}", cluster::INTERCONNECT.flag()));
    }
    if own.as_ref().zip(name.as_ref()).is_some_and(|(own, name)| own == name) {
        let Zone(own) = own?;
        reading.problems.add(format!("{flag}: {own} is this node's zone already"));
        return None;
    }
    let (Zone(name), southbound) = (name?, southbound?);
    let tls = if values::is_tls(&southbound) {
        let [key, certificate, authority] =
            [0, 1, 2].map(|which| SOUTHBOUND.tls_file(reading, which, &address));
        let (private_key, certificate, authority) = (key?, certificate?, authority?);
        Some(SouthboundTls { private_key, certificate, authority })
    } else {
        None
    };
    Some(Some(OtherZone { name, southbound: southbound.to_string(), tls }))
}

/// Only checked: the northbound database is the control plane's. Files without an address are no
/// contradiction: newer programs use them for the health checks of egress addresses.
fn northbound(reading: &mut Reading) {
    if let Some(parsed) = reading
        .read_given(NORTHBOUND.address, values::databases)
        .filter(|parsed| !values::is_tls(parsed))
    {
        NORTHBOUND.forbid_files(reading, &parsed.to_string());
    }
}
