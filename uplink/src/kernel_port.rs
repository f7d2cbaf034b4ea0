//! The port of a NIC in the kernel's datapath, where a new name of the NIC hides it from
//! ovs-vswitchd.

use std::{io, time::Duration};

use podnet::control_socket::ControlSocket;

/// The kernel's datapath, which all bridges share.
const DATAPATH: &str = "ovs-system";
/// How long each answer may take. ovs-vswitchd normally answers at once; it may be busy with
/// thousands of ports. The caller tries again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of the longest list: 40 for each of 100,000 ports.
const LONGEST: usize = 1 << 22;

/// Removes a renamed NIC's port from the kernel's datapath, so that ovs-vswitchd can add it again.
///
/// ovs-vswitchd asks for a port by its name. The kernel looks in the list that belongs to the name
/// a port was added under, for one with the name of today: it finds a NIC that has been renamed by
/// neither, and ovs-vswitchd leaves the port where it is when its row goes, and fails to add it
/// under the new name ("File exists"). Only its number finds it.
///
/// # Errors
/// ovs-vswitchd does not answer, or refuses.
pub(crate) async fn release(switch: &ControlSocket, nic: &str) -> io::Result<()> {
    let ports = switch.ask_at_length("dpctl/show", &[DATAPATH], PATIENCE, LONGEST).await?;
    let Some(number) = number_of(&ports, nic) else { return Ok(()) };
    switch.ask("dpctl/del-if", &[DATAPATH, number], PATIENCE).await.map(drop)
}

/// The number of a port in what `dpctl/show` prints.
fn number_of<'p>(ports: &'p str, name: &str) -> Option<&'p str> {
    ports.lines().find_map(|line| {
        let (number, port) = line.trim_start().strip_prefix("port ")?.split_once(": ")?;
        // The type of a port that is no plain device follows its name.
        (port.split(' ').next() == Some(name)).then_some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::number_of;

    const SHOWN: &str = "system@ovs-system:\n  lookups: hit:1 missed:4 lost:0\n  flows: 1\n  masks: hit:1 total:1 hit/pkt:0.20\n  \
        caches:\n    masks-cache: size:256\n  port 0: ovs-system (internal)\n  port 1: brlate0 (internal)\n  \
        port 12: ens9\n  port 3: genev_sys_6081 (geneve: packet_type=ptap)\n  port 4: ens90\n";

    #[test]
    fn a_port_is_found_by_its_whole_name() {
        let found = ["ens9", "ens90", "ens", "brlate0", "genev_sys_6081", "late0", ""]
            .map(|name| number_of(SHOWN, name));
        assert_eq!(found, [Some("12"), Some("4"), None, Some("1"), Some("3"), None, None]);
    }
}
