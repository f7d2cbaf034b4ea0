//! The NIC that leads to the other nodes: its MTU, and the programs that configure it.

use std::{fs, net::Ipv4Addr};

use contract::mtu::tunnel_bytes;

use crate::{
    chain,
    findings::{Finding, State},
};

pub(super) const MTU: &str = "MTU";
pub(super) const NIC: &str = "NIC";

pub(super) async fn findings(nic: Option<&str>, mtu: u32) -> Vec<Finding> {
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let nic = match nic.map(str::to_owned).or_else(|| default_route(&routes)) {
        Some(nic) => nic,
        None => {
            let why = "there is no default route, and no --nic is given";
            return vec![
                Finding::new(NIC, "none", State::Warning, why)
                    .next("ip route; --nic NAME, the device to the other nodes"),
            ];
        }
    };
    // A name of the command line must not lead elsewhere in the file system.
    let file = format!("/sys/class/net/{}/mtu", nic.replace('/', ""));
    let below = fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
    let Some(below) = below else {
        return vec![
            Finding::new(NIC, &nic, State::Failed, "there is no such device").next("ip link"),
        ];
    };
    vec![fits(&nic, mtu, below), claims(&nic).await]
}

/// The device of the default route, in `/proc/net/route`.
fn default_route(routes: &str) -> Option<String> {
    routes.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let (device, destination) = (fields.next()?, fields.next()?);
        (destination == "00000000").then(|| device.to_owned())
    })
}

/// Tunnels have IPv4 unless the node's server is told an address of IPv6.
fn fits(nic: &str, mtu: u32, below: u32) -> Finding {
    let headers = tunnel_bytes(Ipv4Addr::UNSPECIFIED.into());
    if mtu + headers <= below {
        return Finding::new(
            MTU,
            nic,
            State::Ok,
            &format!("{below}, enough for {mtu} of pods and {headers} of the tunnels"),
        );
    }
    let why = format!(
        "{below} of {nic} is too small for {mtu} of pods and {headers} of the tunnels: large packets would be lost"
    );
    Finding::new(MTU, nic, State::Failed, &why).next(&format!(
        "ovnkube --mtu={}, or a larger MTU for {nic}",
        below.saturating_sub(headers)
    ))
}

/// Whether the NIC's addresses would stay on a bridge, if it becomes the uplink of the gateway.
async fn claims(nic: &str) -> Finding {
    match uplink::claims(nic).await {
        Ok(claims) if claims.is_empty() => Finding::new(
            NIC,
            nic,
            State::Ok,
            "no program configures it; it can become the uplink of the gateway",
        ),
        Ok(claims) => {
            let why = format!("would not keep its addresses on a bridge: {}", claims.join("; "));
            Finding::new(NIC, nic, State::Warning, &why)
                .next("docs/how-to/real-machines.md; or a gateway without this NIC")
        }
        Err(error) => Finding::new(NIC, nic, State::Unknown, &chain(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nic_of_the_default_route_needs_room_for_the_tunnels_headers() {
        let routes =
            "Iface\tDestination\tGateway\neth1\t0000A8C0\t00000000\neth0\t00000000\t0100A8C0\n";
        assert_eq!(default_route(routes).as_deref(), Some("eth0"));
        assert_eq!(default_route("Iface\tDestination\n"), None);
        assert_eq!(fits("eth0", 1400, 1500).state, State::Ok);
        assert_eq!(fits("eth0", 1442, 1500).state, State::Ok);
        let finding = fits("eth0", 1500, 1500);
        assert_eq!(finding.state, State::Failed);
        assert!(finding.next.unwrap().contains("--mtu=1442"));
    }
}
