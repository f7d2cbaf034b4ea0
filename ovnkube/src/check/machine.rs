//! Room on the disk, and the capabilities of this process.

use std::{fs, path::Path};

use crate::{
    disk::disk,
    findings::{Finding, State},
};

pub(super) const DISK: &str = "disk";
pub(super) const RIGHTS: &str = "rights";

/// The directories that the programs write to, and the MiB that each of them needs.
const DIRECTORIES: [(&str, u64); 5] = [
    ("/run", 20),
    ("/var/lib", 500),
    ("/var/log", 200),
    ("/opt/cni/bin", 30),
    ("/etc/cni/net.d", 1),
];
/// Capabilities by their numbers (capabilities(7)), and what they are for.
const CAPABILITIES: [(&str, u32, &str); 3] = [
    ("CAP_NET_ADMIN", 12, "links, addresses and routes"),
    ("CAP_SYS_ADMIN", 21, "the network namespaces of pods"),
    ("CAP_NET_RAW", 13, "address resolution"),
];

pub(super) fn findings(root: &Path) -> Vec<Finding> {
    let disks =
        DIRECTORIES.into_iter().map(|(directory, needed)| disk(DISK, root, directory, needed));
    disks.chain(capabilities(root)).collect()
}

fn capabilities(root: &Path) -> Vec<Finding> {
    let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let Some(effective) = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()) else {
        return vec![Finding::new(
            RIGHTS,
            "capabilities",
            State::Unknown,
            "the kernel does not say which this process has",
        )];
    };
    let finding = |(name, number, purpose): (&str, u32, &str)| match effective >> number & 1 {
        1 => Finding::new(RIGHTS, name, State::Ok, &format!("there, for {purpose}")),
        _ => Finding::new(
            RIGHTS,
            name,
            State::Failed,
            &format!("missing; a node's server needs it for {purpose}"),
        )
        .next("run this command as root, in the host's network namespace"),
    };
    CAPABILITIES.into_iter().map(finding).collect()
}
