//! Where the programs and images of a cluster are: `integration/cluster/programs.sh` builds some,
//! Debian has the rest.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};

use super::reference;
use crate::{executable, prerequisites};

/// Image of the sandbox's container, which holds the namespaces of a pod open.
pub const PAUSE: &str = "localhost/pause:1";
/// Image of test pods: busybox, agnhost's servers and clients, curl and wget. Its entry point is
/// `/agnhost netexec`.
pub const AGNHOST: &str = "localhost/agnhost:1";
/// Image of CoreDNS.
pub const COREDNS: &str = "localhost/coredns:1";

/// A program of Kubernetes.
pub fn kubernetes(name: &str) -> Result<PathBuf> {
    Ok(bin_dir()?.join(name))
}

/// The directory with all of them.
pub fn bin_dir() -> Result<PathBuf> {
    built("bin")
}

/// The directory with containerd 2 and its shim.
pub(crate) fn containerd_2() -> Result<PathBuf> {
    built("containerd-2")
}

/// Archives of the images that every node has.
pub(crate) fn images() -> Result<[PathBuf; 2]> {
    let images = built("images")?;
    Ok([images.join("pause.tar"), images.join("agnhost.tar")])
}

/// Archive of the image of CoreDNS.
pub(crate) fn dns_image() -> Result<PathBuf> {
    Ok(built("images")?.join("coredns.tar"))
}

fn built(what: &str) -> Result<PathBuf> {
    executable::made(&format!("kubernetes/{what}"), "kubernetes")
}

/// Checks everything that a cluster needs beyond a lab, so that one run reports all that is
/// missing.
///
/// # Errors
/// If a program or a plugin is missing, with the command that installs it.
pub fn verify() -> Result<()> {
    bin_dir()?;
    let path = prerequisites::search_path();
    let in_path = |program: &str| env::split_paths(&path).any(|dir| dir.join(program).is_file());
    let programs = ["etcd", "containerd", "ctr", "runc", "openssl"]
        .into_iter()
        .filter(|program| !in_path(program))
        .map(str::to_owned);
    let plugins = ["loopback", "bridge", "host-local"]
        .map(|plugin| Path::new(reference::PLUGINS).join(plugin));
    let missing: Vec<String> = programs
        .chain(
            plugins
                .iter()
                .filter(|plugin| !plugin.is_file())
                .map(|plugin| plugin.display().to_string()),
        )
        .collect();
    ensure!(
        missing.is_empty(),
        "missing: {}; install it with: integration/prerequisites.sh cluster",
        missing.join(", ")
    );
    Ok(())
}
