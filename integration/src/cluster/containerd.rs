//! Which containerd runs a node's pods: Debian's, which knows neither STATUS nor CNI 1.1.0, or
//! version 2, which asks for STATUS every few seconds.

use std::{env, path::Path};

use anyhow::{Context as _, Result, bail};

use super::programs;
use crate::{Daemon, Node, prerequisites};

/// Environment variable: `2` selects [`Containerd::Two`] for clusters whose test does not choose.
const CHOICE: &str = "OVN_CLUSTER_CONTAINERD";
/// Where containerd reads its configuration, on the node.
pub(super) const CONFIGURATION: &str = "/run/containerd.toml";

/// A major version of containerd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Containerd {
    /// Debian's, 1.6 or 1.7.
    One,
    /// From its own Go module; `programs.sh` builds it.
    Two,
}

impl Containerd {
    /// The version that the environment selects; Debian's by default.
    pub(super) fn usual() -> Result<Self> {
        match env::var(CHOICE).as_deref() {
            Err(_) | Ok("" | "1") => Ok(Self::One),
            Ok("2") => Ok(Self::Two),
            Ok(other) => bail!("{CHOICE} is {other:?}, neither 1 nor 2"),
        }
    }

    pub(super) fn configuration(self) -> &'static str {
        match self {
            Self::One => include_str!("containerd-1.toml"),
            Self::Two => include_str!("containerd-2.toml"),
        }
    }

    pub(super) fn daemon(self, node: &Node) -> Result<Daemon> {
        let arguments = [format!("--config={CONFIGURATION}")];
        // containerd gives pods of the host network the name of the host that it sees.
        match self {
            Self::One => Ok(node.new_named_daemon("containerd", arguments)),
            Self::Two => {
                let directory = programs::containerd_2()?;
                let daemon = node.new_named_daemon(directory.join("containerd"), arguments);
                // containerd runs the first shim in PATH, and Debian's belongs to the other
                // version.
                daemon.set_environment(vec![("PATH".to_owned(), path_with(&directory)?)]);
                Ok(daemon)
            }
        }
    }
}

fn path_with(first: &Path) -> Result<String> {
    let usual = prerequisites::search_path();
    let path =
        env::join_paths(std::iter::once(first.to_path_buf()).chain(env::split_paths(&usual)))?;
    path.into_string().ok().context("PATH is text")
}
