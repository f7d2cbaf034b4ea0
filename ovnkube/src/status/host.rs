//! What this machine has beside Open vSwitch: room on its disks, the MTU below the tunnels,
//! addresses of NICs that are ports of a bridge, and connection tracking that is slow.

use std::{collections::BTreeMap, fs, net::IpAddr, os::unix::fs::MetadataExt as _, path::Path};

use contract::{mtu::tunnel_bytes, paths::MANAGEMENT_PORT};
use nix::{
    ifaddrs::InterfaceAddress,
    sys::statvfs::{FsFlags, statvfs},
};
use ovsdb::SelectedRow;
use podnet::conntrack::why_zones_are_slow;

use super::node::THIS_MACHINE;
use crate::{
    disk::disk,
    findings::{Finding, State},
};

/// Directories that servers and daemons write to, and the MiB below which they soon fail.
const WRITTEN: [(&str, u64); 4] =
    [("/run", 5), ("/var/lib/openvswitch", 20), ("/var/lib/ovn", 20), ("/var/log", 20)];

/// `ids`: the `external_ids` of Open vSwitch.
pub(super) fn findings(interfaces: &[SelectedRow], ids: &BTreeMap<String, String>) -> Vec<Finding> {
    let addresses = addresses();
    let encap_ip = ids.get("ovn-encap-ip").and_then(|text| text.split(',').next()?.parse().ok());
    let mut findings = Vec::new();
    findings.extend(mtu(&addresses, interfaces, encap_ip));
    findings.extend(addresses_of_ports(&addresses, interfaces));
    findings.extend(why_zones_are_slow().map(|why| {
        Finding::new(THIS_MACHINE, "connection tracking", State::Warning, &why)
            .next("cat /proc/sys/net/netfilter/nf_conntrack_count")
    }));
    findings
}

/// The directories that have no room, or one line that all have it.
pub(super) fn disks() -> Vec<Finding> {
    // A container's own file system is read-only, and what is written is mounted elsewhere.
    let root = Path::new("/");
    let is_of_container = |directory: &str| {
        let device = |path: &Path| fs::metadata(path).ok().map(|it| it.dev());
        let is_read_only = statvfs(root).is_ok_and(|it| it.flags().contains(FsFlags::ST_RDONLY));
        is_read_only && device(Path::new(directory)).is_none_or(|it| device(root) == Some(it))
    };
    let written = WRITTEN.into_iter().filter(|(directory, _)| !is_of_container(directory));
    let looked_at = written.map(|(directory, needed)| {
        let found = disk(THIS_MACHINE, root, directory, needed);
        Finding { name: format!("disk of {directory}"), ..found }
    });
    let faulty: Vec<Finding> = looked_at.filter(|finding| finding.state != State::Ok).collect();
    if faulty.is_empty() {
        return vec![Finding::new(THIS_MACHINE, "disks", State::Ok, "there is room")];
    }
    faulty
}

/// Device and address, for each address of this machine.
fn addresses() -> Vec<(String, IpAddr)> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let address = |found: &InterfaceAddress| {
        let storage = found.address.as_ref()?;
        let v4 = storage.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| storage.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    };
    all.filter_map(|found| Some((found.interface_name.clone(), address(&found)?))).collect()
}

/// Whether a packet of a pod fits into the tunnel.
fn mtu(
    addresses: &[(String, IpAddr)],
    interfaces: &[SelectedRow],
    encap_ip: Option<IpAddr>,
) -> Option<Finding> {
    let of = |device: &str| {
        let text = fs::read_to_string(format!("/sys/class/net/{device}/mtu")).ok()?;
        text.trim().parse::<u32>().ok()
    };
    // The management port has the MTU of pods.
    let pods = of(MANAGEMENT_PORT).or_else(|| of_pods(interfaces))?;
    let address = encap_ip?;
    let headers = tunnel_bytes(address);
    let (device, _) = addresses.iter().find(|(_, found)| *found == address)?;
    let below = of(device)?;
    let found = |state, said: &str| {
        let finding = Finding::new(THIS_MACHINE, "MTU", state, said);
        finding.with("pods", pods).with("device", below)
    };
    if pods + headers <= below {
        let said = format!("{pods} for pods, {below} for {device} below the tunnels");
        return Some(found(State::Ok, &said));
    }
    let why = format!(
        "{pods} for pods and {headers} for the tunnel's headers do not fit into {below} of \
         {device}: large packets are lost"
    );
    let least = below.saturating_sub(headers);
    let next = format!("--mtu={least} for ovnkube, or a larger MTU for {device}");
    Some(found(State::Failed, &why).next(&next))
}

/// The largest MTU of a pod's port.
fn of_pods(interfaces: &[SelectedRow]) -> Option<u32> {
    let pods = interfaces.iter().filter(|row| row.map("external_ids").contains_key("sandbox"));
    pods.filter_map(|row| u32::try_from(row.integer("mtu")?).ok()).max()
}

/// NICs that are ports of a bridge and have addresses: those belong to the bridge.
fn addresses_of_ports(addresses: &[(String, IpAddr)], interfaces: &[SelectedRow]) -> Vec<Finding> {
    let is_port = |device: &str| {
        interfaces.iter().any(|row| {
            let is_system = ["", "system"].contains(&row.string("type").unwrap_or("?"));
            is_system && row.string("name") == Some(device)
        })
    };
    let is_own = |address: &IpAddr| match address {
        IpAddr::V4(address) => !address.is_link_local(),
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (device, address) in addresses.iter().filter(|(_, address)| is_own(address)) {
        if is_port(device) {
            found.entry(device).or_default().push(address.to_string());
        }
    }
    let finding = |(device, own): (&str, Vec<String>)| {
        let own = own.join(", ");
        let why = format!(
            "{device} is a port of a bridge and has the address {own}, which belongs to the \
             bridge: a DHCP client or another program configures it"
        );
        Finding::new(THIS_MACHINE, "address of a NIC", State::Failed, &why)
            .next(&format!("ip address show {device}; ip address flush dev {device}"))
            .with("device", device)
    };
    found.into_iter().map(finding).collect()
}
