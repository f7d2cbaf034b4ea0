//! `bridge` with `host-local` as a contestant: the plugins of the CNI project, as Debian ships them (containernetworking-plugins).
//!
//! They attach a pod to a Linux bridge: no Open vSwitch, no OVN, no server. So they show what a runtime gets from plugins that are nothing
//! but netlink, two programs and a file lock, and not what an ADD of this project could become.

use std::{fs, io, path::Path};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::netlink::Netlink;

/// Where Debian puts them.
pub(crate) const DIR: &str = "/usr/lib/cni";
/// Name of the bridge; no other on the node has it.
const BRIDGE: &str = "bench0";
const NETWORK: &str = "bench-bridge";
/// In the node's own `/var/lib/cni`.
const RESERVATIONS: &str = "/var/lib/cni/networks";
/// Of the pods that are attached to it: no network of the lab's, and room for 65,000.
pub(crate) const SUBNET: &str = "10.88.0.0/16";

/// Whether they are installed.
pub(crate) fn installed() -> Result<()> {
    for program in ["bridge", "host-local"] {
        if !Path::new(DIR).join(program).exists() {
            bail!("{DIR}/{program} is missing (package containernetworking-plugins); install it with: integration/prerequisites.sh bench");
        }
    }
    Ok(())
}

/// What a `.conflist` of this network says about its plugin, as a runtime hands it on.
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

/// Takes the bridge away, and the directory of addresses; an error if an address is still reserved.
pub(crate) fn remove(netlink: &Netlink) -> Result<()> {
    if Path::new("/sys/class/net").join(BRIDGE).exists() {
        netlink.delete_link(BRIDGE).with_context(|| format!("delete {BRIDGE}"))?;
    }
    let dir = Path::new(RESERVATIONS).join(NETWORK);
    let reserved: Vec<String> = match fs::read_dir(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<Result<_>>()?,
    };
    let addresses: Vec<&String> = reserved.iter().filter(|name| name.starts_with(|first: char| first.is_ascii_digit())).collect();
    if let Some(first) = addresses.first() {
        bail!("host-local keeps {} addresses of pods that are gone, {first} among them, in {}", addresses.len(), dir.display());
    }
    fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))
}
