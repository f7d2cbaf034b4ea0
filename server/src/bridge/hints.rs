//! Who else may think that it owns an interface. Only for the output: nothing is changed there.

use std::path::Path;

use super::nic::Nic;

/// One line for each program whose files say that it looks after the interface.
pub(super) fn owners(root: &Path, nic: &Nic) -> Vec<String> {
    let Nic { name, index, .. } = nic;
    let candidates = [
        (format!("run/NetworkManager/devices/{index}"), "NetworkManager", format!("nmcli device set {name} managed no")),
        (format!("run/systemd/netif/links/{index}"), "systemd-networkd", format!("a .network file for {name} with Unmanaged=yes")),
        (format!("run/network/ifstate.{name}"), "ifupdown", format!("{name} without an address in /etc/network/interfaces")),
    ];
    let present = candidates.into_iter().filter(|(file, ..)| root.join(file).exists());
    present
        .map(|(_, program, remedy)| {
            format!("hint: {program} looks after {name} and may give it its addresses again; to prevent it: {remedy}")
        })
        .collect()
}
