//! Network namespaces of a node, under the names that `ip netns` uses.
//!
//! A name is a mount, and so belongs to a mount namespace. A thread of its own enters those of the
//! node, works there, and ends: no thread of a test comes back from a foreign namespace.

use std::{fs::File, path::PathBuf, thread};

use anyhow::{Context as _, Result, ensure};
use netns_rs::{DefaultEnv, Env as _, NetNs};
use nix::sched::{CloneFlags, setns, unshare};

use crate::threads;

/// Creates namespaces with these names on the node whose namespaces process `holder` holds.
pub(crate) fn add(holder: u32, names: &[String]) -> Result<()> {
    on_node(holder, || {
        names.iter().try_for_each(|name| {
            // The library would mount the new one over an old one.
            ensure!(!file(name).exists(), "there is a network namespace {name} already");
            NetNs::new(name)
                .map(drop)
                .with_context(|| format!("create the network namespace {name}"))
        })
    })
}

/// Removes them. The kernel removes the interfaces in them a moment later.
pub(crate) fn remove(holder: u32, names: &[String]) -> Result<()> {
    on_node(holder, || {
        names.iter().try_for_each(|name| {
            let removed = NetNs::get(name).and_then(NetNs::remove);
            removed.with_context(|| format!("remove the network namespace {name}"))?;
            // The library does not tell when only the mount is gone.
            ensure!(!file(name).exists(), "the file of the network namespace {name} is left");
            Ok(())
        })
    })
}

fn file(name: &str) -> PathBuf {
    DefaultEnv.persist_dir().join(name)
}

/// Runs `work` in the mount and the network namespace of process `holder`, on a thread of its own.
pub(crate) fn on_node<T: Send>(holder: u32, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            // A thread that shares its working directory with others may not enter a mount
            // namespace (setns(2)).
            unshare(CloneFlags::CLONE_FS).context("leave the directory of the other threads")?;
            let open =
                |kind| File::open(format!("/proc/{holder}/ns/{kind}")).context("open a namespace");
            let (mounts, network) = (open("mnt")?, open("net")?);
            setns(&network, CloneFlags::CLONE_NEWNET).context("enter the node's network")?;
            setns(&mounts, CloneFlags::CLONE_NEWNS).context("enter the node's mounts")?;
            work()
        });
        threads::join(inside)
    })
}
