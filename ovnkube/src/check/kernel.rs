//! The kernel's modules.

use std::{fs, path::Path};

use crate::findings::{Finding, State};

pub(super) const KERNEL: &str = "kernel";

/// A module, what it is for, and the state of a machine without it. Open vSwitch also has a
/// datapath in user space, which needs neither of the first two.
const MODULES: [(&str, &str, State); 4] = [
    ("openvswitch", "Open vSwitch's datapath", State::Failed),
    ("geneve", "the tunnels between nodes", State::Failed),
    ("nf_conntrack", "policies and Services", State::Failed),
    ("nf_tables", "rules of the host for the gateway", State::Warning),
];

pub(super) fn findings(root: &Path) -> Vec<Finding> {
    let release = fs::read_to_string(root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
    let release = release.trim();
    MODULES
        .into_iter()
        .map(|(module, purpose, without)| finding(root, release, module, purpose, without))
        .collect()
}

fn finding(root: &Path, release: &str, module: &str, purpose: &str, without: State) -> Finding {
    // A module that is built in has a folder there only if it has parameters.
    if root.join("sys/module").join(module).exists() {
        return Finding::new(KERNEL, module, State::Ok, &format!("loaded, for {purpose}"));
    }
    let directory = root.join("lib/modules").join(release);
    let has = |list: &str| {
        let text = fs::read_to_string(directory.join(list)).unwrap_or_default();
        let file = format!("/{module}.ko");
        text.lines().any(|line| line.split(':').next().is_some_and(|path| path.contains(&file)))
    };
    if has("modules.builtin") {
        return Finding::new(KERNEL, module, State::Ok, &format!("built in, for {purpose}"));
    }
    if has("modules.dep") {
        return Finding::new(KERNEL, module, State::Ok, &format!("can be loaded, for {purpose}"));
    }
    if !directory.is_dir() {
        let why = format!(
            "not loaded, and /lib/modules/{release} is not here to tell whether it can be; for {purpose}"
        );
        return Finding::new(KERNEL, module, State::Unknown, &why)
            .next(&format!("modprobe {module} on the host"));
    }
    let why = format!("Linux {release} has no module {module}, which is for {purpose}");
    Finding::new(KERNEL, module, without, &why)
        .next(&format!("modprobe {module}; the package of the kernel's further modules (linux-modules-extra, kernel-modules-core)"))
}
