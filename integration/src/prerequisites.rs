//! What the lab needs of the machine. A test that lacks it fails and says what to do; it never
//! skips.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};

/// Programs the lab starts, and the Debian package of each.
const PROGRAMS: &[(&str, &str)] = &[
    ("ovsdb-server", "openvswitch-switch"),
    ("ovsdb-tool", "openvswitch-switch"),
    ("ovs-vswitchd", "openvswitch-switch"),
    ("ovs-vsctl", "openvswitch-switch"),
    ("ovn-northd", "ovn-central"),
    ("ovn-nbctl", "ovn-common"),
    ("ovn-sbctl", "ovn-common"),
    ("ovn-controller", "ovn-host"),
    ("ip", "iproute2"),
    ("ping", "iputils-ping"),
    ("ethtool", "ethtool"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
];

/// Schemas of the databases. The paths are absolute, because no program tells where a distribution
/// puts them.
const FILES: &[(&str, &str)] = &[
    ("/usr/share/openvswitch/vswitch.ovsschema", "openvswitch-switch"),
    ("/usr/share/ovn/ovn-nb.ovsschema", "ovn-common"),
    ("/usr/share/ovn/ovn-sb.ovsschema", "ovn-common"),
];

/// Checks everything, so that one run reports all that is missing.
///
/// # Errors
/// Without root, a program, a schema, `/dev/net/tun` or overlayfs; with the command that helps.
pub fn verify() -> Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "the lab needs root for its namespaces and interfaces; run this as root (sudo -E env \"PATH=$PATH\" …)"
    );
    let path = search_path();
    let programs = PROGRAMS.iter().filter(|(name, _)| find(name, &path).is_none());
    let files = FILES.iter().filter(|(file, _)| !Path::new(file).exists());
    let missing: Vec<String> = programs
        .chain(files)
        .map(|(name, package)| format!("{name} (package {package})"))
        .collect();
    ensure!(
        missing.is_empty(),
        "missing: {}; install it with: integration/prerequisites.sh test",
        missing.join(", ")
    );
    ensure!(
        Path::new("/dev/net/tun").exists(),
        "/dev/net/tun is missing; run: modprobe tun (in a container: --device /dev/net/tun)"
    );
    // It lists the file systems of loaded modules only.
    let filesystems = fs::read_to_string("/proc/filesystems")?;
    ensure!(
        filesystems.contains("\toverlay\n"),
        "the kernel has no overlay file system; run: modprobe overlay"
    );
    Ok(())
}

/// `PATH` with the directories of the daemons, which the `PATH` of a user often lacks.
pub fn search_path() -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    env::join_paths(env::split_paths(&path).chain(sbin)).unwrap_or(path)
}

fn find(name: &str, path: &OsString) -> Option<PathBuf> {
    env::split_paths(path).map(|dir| dir.join(name)).find(|program| program.is_file())
}
