//! Control groups of what the lab limits or counts. They belong to the machine and outlive
//! namespaces: the lab creates them under a name of its own, and the outer process removes them
//! after everything inside has ended.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::eventually;

const MOUNTED: &str = "/sys/fs/cgroup";

/// Creates the group `name` (a relative path) in every hierarchy, ready for groups with limits
/// below it.
pub(crate) fn create(name: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let mut group = hierarchy.clone();
        let mut levels = Path::new(name).components();
        loop {
            // From the root down: a group has only the controllers that its parent passes on
            // (cgroup-v2.rst).
            pass_controllers_on(&group)?;
            let Some(level) = levels.next() else { break };
            let parent = group.clone();
            group.push(level);
            match fs::create_dir(&group) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(error)
                        .with_context(|| format!("create the control group {}", group.display()));
                }
                _ => inherit_cpus(&parent, &group)?,
            }
        }
    }
    Ok(())
}

/// Removes the group `name` and all below it. Tries for 5 s: the last processes may still be
/// ending, and rmdir(2) fails while a group has one.
pub(crate) fn remove(name: &str) -> Result<()> {
    let groups: Vec<PathBuf> = hierarchies()?
        .into_iter()
        .map(|hierarchy| hierarchy.join(name))
        .filter(|group| group.exists())
        .collect();
    eventually("the lab's control groups are removed", Duration::from_secs(5), || {
        groups.iter().try_for_each(|group| remove_below(group))
    })
}

fn remove_below(group: &Path) -> Result<()> {
    if !group.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_below(&entry.path())?;
        }
    }
    fs::remove_dir(group).with_context(|| format!("remove {}", group.display()))
}

/// The roots of all hierarchies: one (cgroup v2), or one for each controller (v1, where some names
/// are links to others).
fn hierarchies() -> Result<Vec<PathBuf>> {
    let root = Path::new(MOUNTED);
    if is_v2(root) {
        return Ok(vec![root.to_path_buf()]);
    }
    let mut hierarchies = Vec::new();
    for entry in fs::read_dir(root).with_context(|| format!("read {MOUNTED}"))? {
        let entry = entry?;
        // A link is no directory here, so each hierarchy counts once.
        if entry.file_type()?.is_dir() && entry.path().join("cgroup.procs").exists() {
            hierarchies.push(entry.path());
        }
    }
    Ok(hierarchies)
}

fn is_v2(group: &Path) -> bool {
    group.join("cgroup.controllers").exists()
}

/// Makes the controllers of `group` available to the groups below it. cgroup v1 needs nothing: its
/// hierarchies have their controllers from the root.
fn pass_controllers_on(group: &Path) -> Result<()> {
    if !is_v2(group) {
        return Ok(());
    }
    let has = fs::read_to_string(group.join("cgroup.controllers"))?;
    let wanted: Vec<String> =
        has.split_whitespace().map(|controller| format!("+{controller}")).collect();
    fs::write(group.join("cgroup.subtree_control"), wanted.join(" "))
        .with_context(|| format!("pass the controllers of {} on", group.display()))
}

/// Copies the processors and memory nodes of the parent. In v1 a new group has none, and takes no
/// process.
fn inherit_cpus(parent: &Path, group: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (from, to) = (parent.join(file), group.join(file));
        if !is_v2(group) && to.exists() {
            fs::write(&to, fs::read(&from)?.trim_ascii())
                .with_context(|| format!("write {}", to.display()))?;
        }
    }
    Ok(())
}
