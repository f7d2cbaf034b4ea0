//! The process that holds a node's namespaces open: they exist as long as it runs.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use nix::sched::{CloneFlags, unshare};

use crate::{command, executable, mounts};

/// The process that holds the namespaces of a node open.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    _process: Child,
    /// The process ends when this closes.
    _stdin: Option<ChildStdin>,
}

impl Holder {
    pub(crate) fn start(name: &str) -> Result<Self> {
        let mut command = Command::new(executable::of_package("integration")?);
        command.args(["hold", name]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process =
            command.spawn().context("start the process that holds the node's namespaces")?;
        // The namespaces and their mounts are complete once it has said so: `nsenter` before that
        // would enter the lab's.
        let mut ready = String::new();
        BufReader::new(process.stdout.take().context("standard output is a pipe")?)
            .read_line(&mut ready)?;
        ensure!(ready == "ready\n", "the namespaces of {name} could not be made (see above)");
        Ok(Self { pid: process.id(), _stdin: process.stdin.take(), _process: process })
    }
}

/// The holder's side: creates the namespaces of node `name`, calls `ready`, and keeps them until
/// its standard input closes.
///
/// # Errors
/// If a namespace, a mount or a setting of the kernel cannot be made.
pub fn hold(name: &str, ready: impl FnOnce()) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
        .context("make the node's namespaces")?;
    mounts::prepare_node(name)?;
    command::output(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    for (key, value) in [
        // The kernel, too, sees what arrives on the NIC, although the NIC belongs to a userspace
        // bridge. Without the filter it answers TCP connections that are not its own with RST.
        ("ipv4/conf/default/rp_filter", "1"),
        ("ipv4/conf/all/rp_filter", "1"),
        // An IPv6 address is usable at once, and no router changes the node.
        ("ipv6/conf/default/accept_dad", "0"),
        ("ipv6/conf/default/accept_ra", "0"),
    ] {
        let file = Path::new("/proc/sys/net").join(key);
        fs::write(&file, value).with_context(|| format!("write {}", file.display()))?;
    }
    ready();
    std::io::stdin().read_to_end(&mut Vec::new()).map(drop).context("wait for the lab")
}
