//! A control group with little memory, of either version of control groups. The lab removes it when it ends.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use crate::{cluster::cgroups, inside};

const MOUNTED: &str = "/sys/fs/cgroup";
const HINT: &str =
    "memory is limited by a control group, which cannot be had here: a container needs --privileged --cgroupns=host for that";

/// A group whose processes have so much memory together, and no swap.
#[derive(Debug)]
pub struct LittleMemory {
    group: PathBuf,
    /// The group that this process is in otherwise.
    home: PathBuf,
    version: &'static Version,
}

/// What the files of a group are called (cgroup-v1/memory.rst and cgroup-v2.rst of the kernel).
#[derive(Debug)]
struct Version {
    limit: &'static str,
    /// Bounds swap; with which value.
    swap: &'static str,
    swap_beside: fn(u64) -> u64,
    /// Has a line `oom_kill N`.
    events: &'static str,
}

const V1: Version = Version {
    limit: "memory.limit_in_bytes",
    // Memory and swap together.
    swap: "memory.memsw.limit_in_bytes",
    swap_beside: |limit| limit,
    events: "memory.oom_control",
};
const V2: Version = Version { limit: "memory.max", swap: "memory.swap.max", swap_beside: |_| 0, events: "memory.events" };

impl LittleMemory {
    /// Makes a group that has so many bytes. Everything counts that the kernel charges: memory of a process' own, what it has the kernel
    /// keep, and pages of files, which the kernel takes away when they are too many.
    pub fn of(bytes: u64) -> Result<Self> {
        Self::create(bytes).context(HINT)
    }

    fn create(bytes: u64) -> Result<Self> {
        let name = inside::cgroup()?;
        cgroups::create(&name)?;
        let (root, home, version) = hierarchy()?;
        let group = root.join(&name).join("memory");
        fs::create_dir_all(&group).with_context(|| format!("create {}", group.display()))?;
        write(&group.join(version.limit), bytes)?;
        // A kernel that does not count swap has no such file.
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default().lines().count() > 1;
        if swaps || group.join(version.swap).exists() {
            write(&group.join(version.swap), (version.swap_beside)(bytes))?;
        }
        Ok(Self { group, home, version })
    }

    /// Runs `start` in the group. What it starts stays there: a process that is moved later leaves behind what it was charged for.
    pub fn start<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        write(&self.group.join("cgroup.procs"), 0)?;
        let started = start();
        write(&self.home.join("cgroup.procs"), 0)?;
        started
    }

    /// An error unless the process is in the group, and the kernel has had to end nothing there.
    pub fn is_enough_for(&self, pid: u32) -> Result<()> {
        let processes = read(&self.group.join("cgroup.procs"))?;
        ensure!(processes.lines().any(|process| process == pid.to_string()), "process {pid} is not in the group: {processes:?}");
        let events = read(&self.group.join(self.version.events))?;
        let killed =
            events.lines().find_map(|line| line.strip_prefix("oom_kill ")).with_context(|| format!("no oom_kill in {events:?}"))?;
        ensure!(killed == "0", "the kernel has ended {killed} processes");
        Ok(())
    }
}

/// Where memory is limited, and the group that this process is in.
fn hierarchy() -> Result<(PathBuf, PathBuf, &'static Version)> {
    let own = read(Path::new("/proc/self/cgroup"))?;
    let groups = own.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let group = |controller: &str| groups.clone().find(|(of, _)| of.split(',').any(|name| name == controller)).map(|(_, path)| path);
    let root = Path::new(MOUNTED);
    let (root, path, version) = if root.join("cgroup.controllers").exists() {
        (root.to_path_buf(), group(""), &V2)
    } else {
        (root.join("memory"), group("memory"), &V1)
    };
    let path = path.with_context(|| format!("no group for memory in {own:?}"))?;
    Ok((root.clone(), root.join(path.trim_start_matches('/')), version))
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("read {}", file.display()))
}

fn write(file: &Path, number: u64) -> Result<()> {
    fs::write(file, number.to_string()).with_context(|| format!("write {number} into {}", file.display()))
}
