//! `bridge` with `host-local` as a contestant: the plugins of the CNI project, as Debian ships them
//! (containernetworking-plugins).
//!
//! They attach a pod to a Linux bridge, without Open vSwitch, OVN or a server. The figures show the cost of
//! netlink, two programs and a file lock. They are no target for an ADD of this project.

use std::{fs, io, path::Path};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::netlink::Netlink;

/// Debian's directory for CNI plugins.
pub(crate) const DIR: &str = "/usr/lib/cni";
/// Name of the bridge; unique on the node.
const BRIDGE: &str = "bench0";
const NETWORK: &str = "bench-bridge";
/// In the node's own `/var/lib/cni`.
const RESERVATIONS: &str = "/var/lib/cni/networks";
/// Subnet of the pods on the bridge: outside all networks of the lab, with room for 65,000 pods.
pub(crate) const SUBNET: &str = "10.88.0.0/16";

/// Checks that both plugins are installed.
pub(crate) fn installed() -> Result<()> {
    for program in ["bridge", "host-local"] {
        if !Path::new(DIR).join(program).exists() {
            bail!(
                "{DIR}/{program} is missing (package containernetworking-plugins); \
                 install it with: integration/prerequisites.sh bench"
            );
        }
    }
    Ok(())
}

/// The plugin's entry in a `.conflist` of this network, as a runtime passes it on.
pub(crate) fn config() -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": NETWORK,
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": true,
        "ipam": {
            "type": "host-local",
            "dataDir": RESERVATIONS,
            "ranges": [[{"subnet": SUBNET}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    })
}

/// Removes the bridge and the directory of reservations. A remaining reservation is an error: host-local has
/// leaked an address.
pub(crate) fn remove(netlink: &Netlink) -> Result<()> {
    if Path::new("/sys/class/net").join(BRIDGE).exists() {
        netlink.delete_link(BRIDGE).with_context(|| format!("delete {BRIDGE}"))?;
    }
    let dir = Path::new(RESERVATIONS).join(NETWORK);
    let reserved: Vec<String> = match fs::read_dir(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<_>>()?,
    };
    let addresses: Vec<&String> =
        reserved.iter().filter(|name| name.starts_with(|first: char| first.is_ascii_digit())).collect();
    if let Some(first) = addresses.first() {
        bail!(
            "host-local keeps {} addresses of pods that are gone, {first} among them, in {}",
            addresses.len(),
            dir.display()
        );
    }
    fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))
}
