//! Other programs that configure an interface, by the traces that they leave. Nothing of them is
//! changed.

use std::{fs, path::Path};

use netlink_packet_route::route::RouteProtocol;

use crate::{
    ip_config::{IpConfig, shown_address},
    nic::Nic,
};

/// Name of a program, and how it is told to leave the interface alone.
type Owner = (&'static str, String);

/// Why the interface's addresses would not stay on a bridge, in the words of an administrator;
/// empty if nothing speaks against it. Without the programs' state files (in a container),
/// lifetimes and routes tell of DHCP and router advertisements.
pub(crate) fn claims(root: &Path, nic: &Nic, ip_config: &IpConfig) -> Vec<String> {
    let programs =
        programs(root, nic).into_iter().map(|program| format!("{program} configures it"));
    let limited = ip_config
        .passing()
        .map(|address| format!("its address {} has a limited lifetime", shown_address(address)));
    let learned = ip_config.routes.iter().filter_map(|route| match route.header.protocol {
        RouteProtocol::Dhcp => Some("it has routes of DHCP".to_owned()),
        RouteProtocol::Ra => Some("it has routes of router advertisements".to_owned()),
        _ => None,
    });
    let mut claims: Vec<String> = programs.chain(limited).chain(learned).collect();
    claims.dedup();
    claims
}

/// The names of the programs that manage the interface.
pub(crate) fn programs(root: &Path, nic: &Nic) -> Vec<&'static str> {
    owners(root, nic).into_iter().map(|(program, _)| program).collect()
}

/// A line for each program that manages the interface.
pub(crate) fn lines(root: &Path, nic: &Nic) -> Vec<String> {
    let Nic { name, .. } = nic;
    let line = |(program, remedy): Owner| {
        format!(
            "hint: {program} looks after {name} and may give it its addresses again; to prevent it: {remedy}"
        )
    };
    owners(root, nic).into_iter().map(line).collect()
}

/// The programs whose state files show that they manage the interface.
fn owners(root: &Path, nic: &Nic) -> Vec<Owner> {
    let Nic { name, index, .. } = nic;
    let candidates = [
        (
            format!("run/NetworkManager/devices/{index}"),
            "NetworkManager",
            format!("nmcli device set {name} managed no"),
        ),
        (
            format!("run/systemd/netif/links/{index}"),
            "systemd-networkd",
            format!("a .network file for {name} with Unmanaged=yes"),
        ),
        (
            format!("run/network/ifstate.{name}"),
            "ifupdown",
            format!("{name} without an address in /etc/network/interfaces"),
        ),
        (format!("run/dhclient.{name}.pid"), "dhclient", format!("dhclient -x {name}")),
        (format!("run/dhclient-{name}.pid"), "dhclient", format!("dhclient -x {name}")),
        (
            format!("run/dhcpcd/{name}.pid"),
            "dhcpcd",
            format!("denyinterfaces {name} in /etc/dhcpcd.conf"),
        ),
        (
            format!("run/dhcpcd-{name}.pid"),
            "dhcpcd",
            format!("denyinterfaces {name} in /etc/dhcpcd.conf"),
        ),
        (format!("run/udhcpc.{name}.pid"), "udhcpc", format!("no udhcpc for {name}")),
    ];
    // Both write down the links that they leave alone, too: networkd with ADMIN_STATE,
    // NetworkManager with `managed`.
    let is_left_alone = |text: &str| {
        text.lines().any(|line| ["ADMIN_STATE=unmanaged", "managed=false"].contains(&line.trim()))
    };
    let is_owner =
        |file: &str| fs::read_to_string(root.join(file)).is_ok_and(|text| !is_left_alone(&text));
    candidates
        .into_iter()
        .filter(|(file, ..)| is_owner(file))
        .map(|(_, program, remedy)| (program, remedy))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::{link::LinkMessage, route::RouteMessage};

    #[test]
    fn who_has_a_file_for_the_interface_is_named() {
        let root = tempfile::tempdir().unwrap();
        let mut nic = Nic::from(&LinkMessage::default());
        (nic.name, nic.index) = ("eth0".to_owned(), 2);
        assert_eq!(lines(root.path(), &nic), [""; 0]);
        for directory in ["run/NetworkManager/devices", "run/systemd/netif/links", "run/network"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        for file in [
            "run/NetworkManager/devices/2",
            "run/systemd/netif/links/3",
            "run/network/ifstate.eth0",
        ] {
            fs::write(root.path().join(file), "").unwrap();
        }
        let hints = lines(root.path(), &nic);
        assert!(
            hints.len() == 2
                && hints[0].contains("NetworkManager looks after eth0")
                && hints[1].contains("ifupdown"),
            "{hints:?}"
        );
    }

    #[test]
    fn what_a_program_leaves_alone_is_not_claimed_and_a_lease_is_without_any_program() {
        let root = tempfile::tempdir().unwrap();
        let mut nic = Nic::from(&LinkMessage::default());
        (nic.name, nic.index) = ("eth0".to_owned(), 2);
        let write = |file: &str, text: &str| {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let mut ip_config = IpConfig::default();
        write(
            "run/systemd/netif/links/2",
            "# private\nADMIN_STATE=unmanaged\nOPER_STATE=routable\n",
        );
        write("run/NetworkManager/devices/2", "[device]\nmanaged=false\n");
        assert_eq!(claims(root.path(), &nic, &ip_config), [""; 0]);
        write("run/systemd/netif/links/2", "ADMIN_STATE=configured\n");
        assert_eq!(claims(root.path(), &nic, &ip_config), ["systemd-networkd configures it"]);
        write("run/systemd/netif/links/2", "ADMIN_STATE=unmanaged\n");
        let mut route = RouteMessage::default();
        route.header.protocol = RouteProtocol::Dhcp;
        ip_config.routes = vec![route.clone(), route];
        assert_eq!(claims(root.path(), &nic, &ip_config), ["it has routes of DHCP"]);
    }
}
