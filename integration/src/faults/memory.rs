//! A control group with little memory, of either version of control groups. The lab removes it when
//! it ends.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use crate::{cgroups, inside};

const MOUNTED: &str = "/sys/fs/cgroup";
const HINT: &str = "memory is limited by a control group, which cannot be had here: \
    a container needs --privileged --cgroupns=host for that";

/// A group whose processes share a limited amount of memory, without swap.
#[derive(Debug)]
pub struct LittleMemory {
    group: PathBuf,
    /// The group of this process.
    home: PathBuf,
    version: &'static Version,
}

/// Names of the files of a group (cgroup-v1/memory.rst and cgroup-v2.rst of the kernel).
#[derive(Debug)]
struct Version {
    limit: &'static str,
    /// The file that limits swap, and its value for a limit of memory.
    swap: &'static str,
    swap_beside: fn(u64) -> u64,
    /// The file with a line `oom_kill N`.
    events: &'static str,
}

const V1: Version = Version {
    limit: "memory.limit_in_bytes",
    // Limits memory and swap together.
    swap: "memory.memsw.limit_in_bytes",
    swap_beside: |limit| limit,
    events: "memory.oom_control",
};
const V2: Version = Version {
    limit: "memory.max",
    swap: "memory.swap.max",
    swap_beside: |_| 0,
    events: "memory.events",
};

impl LittleMemory {
    /// Creates a group with so many bytes. Everything that the kernel charges counts: the memory of
    /// the processes, what the kernel keeps for them, and pages of files, which it takes back when
    /// there are too many.
    pub fn of(bytes: u64) -> Result<Self> {
        Self::create(bytes).context(HINT)
    }

    fn create(bytes: u64) -> Result<Self> {
        let name = inside::cgroup()?;
        cgroups::create(&name)?;
        let (root, home, version) = hierarchy()?;
        let group = root.join(&name).join("memory");
        fs::create_dir_all(&group).with_context(|| format!("create {}", group.display()))?;
        // Before the limit for swap: cgroup v1 refuses one for memory and swap that is below the
        // one for memory.
        write(&group.join(version.limit), bytes)?;
        // The file is missing if the kernel does not count swap, which is harmless where no swap is
        // in use.
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default().lines().count() > 1;
        if swaps || group.join(version.swap).exists() {
            write(&group.join(version.swap), (version.swap_beside)(bytes))?;
        }
        Ok(Self { group, home, version })
    }

    /// Runs `start` in the group. What it starts stays there. Moving a process later is not enough:
    /// it leaves behind what it was charged for.
    pub fn start<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        // 0 is the writing process; its children start in its group.
        write(&self.group.join("cgroup.procs"), 0)?;
        let started = start();
        write(&self.home.join("cgroup.procs"), 0)?;
        started
    }

    /// Checks that the memory was enough for the process.
    ///
    /// # Errors
    /// If the process is not in the group, or the kernel has killed a process there for lack of
    /// memory.
    pub fn is_enough_for(&self, pid: u32) -> Result<()> {
        let processes = read(&self.group.join("cgroup.procs"))?;
        ensure!(
            processes.lines().any(|process| process == pid.to_string()),
            "process {pid} is not in the group: {processes:?}"
        );
        let events = read(&self.group.join(self.version.events))?;
        let killed = events
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "))
            .with_context(|| format!("no oom_kill in {events:?}"))?;
        ensure!(killed == "0", "the kernel has ended {killed} processes");
        Ok(())
    }
}

/// The root of the hierarchy that limits memory, and the group of this process in it.
fn hierarchy() -> Result<(PathBuf, PathBuf, &'static Version)> {
    let own = read(Path::new("/proc/self/cgroup"))?;
    let groups = own.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let group = |controller: &str| {
        groups
            .clone()
            .find(|(of, _)| of.split(',').any(|name| name == controller))
            .map(|(_, path)| path)
    };
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
    fs::write(file, number.to_string())
        .with_context(|| format!("write {number} into {}", file.display()))
}
