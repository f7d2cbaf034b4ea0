//! Other programs that may manage an interface. Only for the output: nothing of them is changed.

use std::path::Path;

use crate::nic::Nic;

/// One line for each program whose state files show that it manages the interface.
pub(crate) fn owners(root: &Path, nic: &Nic) -> Vec<String> {
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
    ];
    let present = candidates.into_iter().filter(|(file, ..)| root.join(file).exists());
    present
        .map(|(_, program, remedy)| {
            format!(
                "hint: {program} looks after {name} and may give it its addresses again; \
                 to prevent it: {remedy}"
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::link::LinkMessage;

    #[test]
    fn who_has_a_file_for_the_interface_is_named() {
        let root = tempfile::tempdir().unwrap();
        let mut nic = Nic::from(&LinkMessage::default());
        (nic.name, nic.index) = ("eth0".to_owned(), 2);
        assert_eq!(owners(root.path(), &nic), [""; 0]);
        for directory in ["run/NetworkManager/devices", "run/systemd/netif/links", "run/network"] {
            std::fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        for file in ["run/NetworkManager/devices/2", "run/systemd/netif/links/3", "run/network/ifstate.eth0"]
        {
            std::fs::write(root.path().join(file), "").unwrap();
        }
        let hints = owners(root.path(), &nic);
        assert!(
            hints.len() == 2
                && hints[0].contains("NetworkManager looks after eth0")
                && hints[1].contains("ifupdown"),
            "{hints:?}"
        );
    }
}
