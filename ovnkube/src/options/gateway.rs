//! The gateway of a node.

use std::net::IpAddr;

use contract::names::IfName;
use server::node::{GatewayConfig, GatewayMode, ManagedNic};

use super::{
    chassis, kind, management_port, reading::Reading, settings::Settings, spec::Spec,
    table::gateway,
};

/// The configuration of the node's gateway; an inner `None` without one.
#[expect(clippy::option_option, reason = "the outer one: an option is not valid")]
pub(super) fn gateway(reading: &mut Reading) -> Option<Option<GatewayConfig>> {
    let mode = wanted_mode(reading);
    let interface = reading.read_given(&gateway::INTERFACE, interface);
    let next_hops = reading.read_given(&gateway::NEXTHOP, next_hops).unwrap_or_default();
    let vlan = reading.read(&gateway::VLANID, vlan)?;
    let node_ports = reading.switch(&gateway::NODEPORT)?;
    let managed_nic =
        if reading.switch(&gateway::MOVE_MANAGED)? { ManagedNic::Move } else { ManagedNic::Refuse };
    let snat_per_pod = reading.switch(&gateway::SNAT_MULTIPLE_GWS)?;
    let conntrack_zone =
        reading.read(&gateway::CONNTRACK_ZONE, |text| kind::number(text, 1, 65531))?;
    let tunnel_ports = chassis::tunnel_ports(reading)?;
    let masquerade = management_port::masquerade(reading);
    let Some(mode) = mode? else { return Some(None) };
    if let (GatewayMode::Local, Some(_)) = (mode, vlan) {
        reading
            .problems
            .add("--gateway-vlanid is for --gateway-mode shared: in local mode the host's routes lead out");
        return None;
    }
    Some(Some(GatewayConfig {
        mode,
        interface: interface.flatten(),
        managed_nic,
        next_hops,
        vlan,
        node_ports,
        snat_per_pod,
        masquerade: masquerade?,
        tunnel_ports,
        conntrack_zone: u16::try_from(conntrack_zone).unwrap_or(u16::MAX),
    }))
}

/// The mode that the options name; none without one, or if they cannot be read.
pub(super) fn mode_of(settings: &Settings) -> Option<GatewayMode> {
    let is_on = |spec: &'static Spec| {
        settings.given(spec).is_some_and(|given| kind::switch(&given.value) == Ok(true))
    };
    match settings.given(&gateway::MODE) {
        Some(given) => mode(&given.value).ok().flatten(),
        None if is_on(&gateway::GATEWAY_LOCAL) => Some(GatewayMode::Local),
        None => is_on(&gateway::INIT_GATEWAYS).then_some(GatewayMode::Shared),
    }
}

/// The mode, which the older options name in their own way; an inner `None` for no gateway.
#[expect(clippy::option_option, reason = "the outer one: an option is not valid")]
fn wanted_mode(reading: &mut Reading) -> Option<Option<GatewayMode>> {
    let mut on = |spec: &'static Spec| reading.read_given(spec, kind::switch).unwrap_or_default();
    let (init, local) = (on(&gateway::INIT_GATEWAYS), on(&gateway::GATEWAY_LOCAL));
    let old = match (init, local) {
        (_, true) => Some((&gateway::GATEWAY_LOCAL, GatewayMode::Local)),
        (true, false) => Some((&gateway::INIT_GATEWAYS, GatewayMode::Shared)),
        (false, false) => None,
    };
    let new = reading.read_given(&gateway::MODE, mode);
    match (new, old) {
        (Some(new), Some((spec, old))) if new != Some(old) => {
            reading
                .problems
                .add(format!("--gateway-mode and {} contradict each other: give one", spec.flag()));
            None
        }
        (Some(new), _) => Some(new),
        (None, old) => Some(old.map(|(_, mode)| mode)),
    }
}

/// A mode; `None` for no gateway.
pub(super) fn mode(text: &str) -> Result<Option<GatewayMode>, String> {
    match text {
        "shared" => Ok(Some(GatewayMode::Shared)),
        "local" => Ok(Some(GatewayMode::Local)),
        "disabled" | "" => Ok(None),
        _ => Err(format!("{:?} is none of shared, local, disabled", kind::shown(text))),
    }
}

/// The name of an interface; `None` if it is to be found.
pub(super) fn interface(text: &str) -> Result<Option<IfName>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error: contract::names::BadName| error.to_string())
}

/// Addresses, at most one of each family.
pub(super) fn next_hops(text: &str) -> Result<Vec<IpAddr>, String> {
    let mut hops: Vec<IpAddr> = Vec::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let hop: IpAddr =
            entry.parse().map_err(|_| format!("{:?} is no IP address", kind::shown(entry)))?;
        if hops.iter().any(|other| other.is_ipv4() == hop.is_ipv4()) {
            return Err(format!("{:?} has two addresses of one family", kind::shown(text)));
        }
        hops.push(hop);
    }
    Ok(hops)
}

/// A VLAN; `None` for packets without a tag.
pub(super) fn vlan(text: &str) -> Result<Option<u16>, String> {
    let id = kind::number(text, 0, 4094)?;
    Ok(u16::try_from(id).ok().filter(|id| *id > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        assert_eq!(mode(""), Ok(None));
        assert_eq!(mode("disabled"), Ok(None));
        assert!(mode("Shared").unwrap_err().contains("none of shared, local, disabled"));
        assert_eq!(next_hops("192.0.2.1, 2001:db8::1").unwrap().len(), 2);
        assert!(
            next_hops("192.0.2.1,192.0.2.2").unwrap_err().contains("two addresses of one family")
        );
        assert!(next_hops("router").unwrap_err().contains("no IP address"));
        assert_eq!((vlan("0"), vlan("4094")), (Ok(None), Ok(Some(4094))));
        assert!(vlan("4095").is_err());
        assert_eq!(interface(""), Ok(None));
        assert!(interface("a/b").is_err());
    }
}
