//! Directories that are private to the lab, or to one node of it, under the paths that programs use
//! by default.
//!
//! Called by a process that has just entered a mount namespace of its own. Leaves nothing on the
//! host, not even a mount point.

use std::{
    fs::{self, File, OpenOptions},
    os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    libc::O_PATH,
    mount::{MsFlags, mount},
};

/// The lab's own directory, the same in the lab's root and in every node.
pub const LAB: &str = "/run/lab";

/// Logs of the lab. On the host this is `target/lab-logs/TEST`, so that they survive the
/// namespaces.
pub const LOGS: &str = "/run/lab/logs";

/// Where runtimes look for plugins.
pub const PLUGINS: &str = "/opt/cni/bin";

/// Directories that are empty at the start, under their usual paths.
const PRIVATE: &[&str] = &[
    "/etc/cni/net.d",
    "/etc/kubernetes",
    // Mounted by DaemonSets of `conf/kubernetes/openshift`.
    "/etc/origin/node",
    "/etc/openvswitch",
    "/etc/ovn",
    PLUGINS,
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/openvswitch",
    "/var/lib/ovn",
    "/var/log/containers",
    "/var/log/openvswitch",
    "/var/log/ovn",
    "/var/log/pods",
];

/// Prepares the lab's root: `host_logs` appears as [`LOGS`]; every other directory that programs
/// write to is private and empty.
pub fn prepare_root(host_logs: &Path) -> Result<()> {
    keep_to_ourselves()?;
    let logs = handle(host_logs)?;
    prepare(|| {
        fs::create_dir_all(LOGS)?;
        bind(&logs, Path::new(LOGS))
    })?;
    private_logs(&Path::new(LOGS).join("central"))
}

/// Prepares node `name` in the same way, with directories of its own except [`LAB`], which it
/// shares with the lab's root.
pub fn prepare_node(name: &str) -> Result<()> {
    keep_to_ourselves()?;
    // Opened first: the node's own `/run` will cover it.
    let lab = handle(Path::new(LAB))?;
    prepare(|| {
        fs::create_dir_all(LAB)?;
        bind(&lab, Path::new(LAB))
    })?;
    private_logs(&Path::new(LOGS).join(name))
}

fn keep_to_ourselves() -> Result<()> {
    // No mount made here spreads to the host, and none of the host's spreads to here.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .context("make the mounts private")
}

fn prepare(share: impl FnOnce() -> Result<()>) -> Result<()> {
    tmpfs(Path::new("/run"))?;
    fs::create_dir_all("/run/lock")?;
    share()?;
    for dir in ["/run/openvswitch", "/run/ovn", "/run/netns"] {
        fs::create_dir_all(dir)?;
    }
    // `ip netns` makes this directory a mount of its own when it first runs. Namespaces that a
    // runtime already has there could then not be removed, so it is one from the start.
    tmpfs(Path::new("/run/netns"))?;
    make_missing(PRIVATE)?;
    PRIVATE.iter().try_for_each(|dir| tmpfs(Path::new(dir)))?;
    sysfs()
}

/// Puts the log directories of Open vSwitch and OVN into `logs`, which the host keeps when a test
/// fails.
fn private_logs(logs: &Path) -> Result<()> {
    for name in ["openvswitch", "ovn"] {
        let source = logs.join(name);
        let target = Path::new("/var/log").join(name);
        fs::create_dir_all(&source).with_context(|| format!("create {}", source.display()))?;
        bind(&handle(&source)?, &target)?;
    }
    Ok(())
}

/// Creates those of `dirs` that the host lacks, on overlays over their nearest parents. The upper
/// parents come first, because an overlay hides what is mounted below its directory.
fn make_missing(dirs: &[&'static str]) -> Result<()> {
    let missing: Vec<&Path> = dirs.iter().map(Path::new).filter(|dir| !dir.exists()).collect();
    let mut parents = Vec::new();
    for dir in &missing {
        let parent = dir.ancestors().find(|parent| parent.exists()).unwrap_or(Path::new("/"));
        ensure!(
            parent != Path::new("/"),
            "{} cannot be made private: the machine has nothing on that path",
            dir.display()
        );
        parents.push(parent);
    }
    parents.sort_unstable();
    // One overlay is enough for a parent and those below it, which follow it in the order.
    parents.dedup_by(|parent, above| parent.starts_with(above));
    parents.into_iter().try_for_each(overlay)?;
    missing.into_iter().try_for_each(|dir| {
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))
    })
}

fn overlay(dir: &Path) -> Result<()> {
    let layers = PathBuf::from("/run/overlay").join(dir.to_string_lossy().replace('/', "_"));
    let (upper, work) = (layers.join("upper"), layers.join("work"));
    fs::create_dir_all(&upper)?;
    fs::create_dir_all(&work)?;
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        dir.display(),
        upper.display(),
        work.display()
    );
    mount(Some("overlay"), dir, Some("overlay"), MsFlags::empty(), Some(options.as_str()))
        .with_context(|| format!("mount an overlay over {}", dir.display()))
}

fn tmpfs(dir: &Path) -> Result<()> {
    mount(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), Some("mode=0755"))
        .with_context(|| format!("mount a tmpfs over {}", dir.display()))
}

/// Mounts a new sysfs: `/sys` shows the interfaces of the network namespace in which it was
/// mounted.
fn sysfs() -> Result<()> {
    let cgroup = Path::new("/sys/fs/cgroup");
    let cgroups = handle(cgroup)?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), None::<&str>)
        .context("mount sysfs")?;
    // The new sysfs covers the control groups, which containerd and the kubelet need.
    bind(&cgroups, cgroup)
}

/// Keeps what is at `path` now, whatever is mounted over it later.
fn handle(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(O_PATH)
        .open(path)
        .with_context(|| format!("open {}", path.display()))
}

fn bind(source: &File, target: &Path) -> Result<()> {
    let source = format!("/proc/self/fd/{}", source.as_raw_fd());
    mount(
        Some(source.as_str()),
        target,
        None::<&str>,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        None::<&str>,
    )
    .with_context(|| format!("bind onto {}", target.display()))
}
