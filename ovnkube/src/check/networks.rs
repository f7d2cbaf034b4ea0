//! Other networks on this machine: their CNI configurations, devices and programs.

use std::{fs, path::Path};

use contract::paths::{CNI_CONF_DIR, PLUGIN};

use crate::findings::{Finding, State};

pub(super) const OTHER_NETWORKS: &str = "other networks";

/// How the names of devices begin, and whose they are.
const DEVICES: [(&str, &str); 11] = [
    ("cilium_", "Cilium"),
    ("cali", "Calico"),
    ("vxlan.calico", "Calico"),
    ("flannel", "flannel"),
    ("antrea-gw", "Antrea"),
    ("ovn0", "Kube-OVN"),
    ("weave", "Weave"),
    ("kube-bridge", "kube-router"),
    ("kube-ipvs", "kube-proxy"),
    ("nodelocaldns", "the local cache of the DNS"),
    ("cni0", "the plugin bridge"),
];
/// Programs that serve Services as OVN does.
const PROXIES: [&str; 2] = ["kube-proxy", "kube-router"];
/// The most processes that are looked through.
const MOST_PROCESSES: usize = 50_000;

pub(super) fn findings(root: &Path) -> Vec<Finding> {
    let configurations = configurations(&root.join(CNI_CONF_DIR.trim_start_matches('/')));
    let mut findings: Vec<Finding> =
        [configurations, devices(root), programs(root)].into_iter().flatten().collect();
    if findings.is_empty() {
        findings.push(Finding::new(
            OTHER_NETWORKS,
            "none",
            State::Ok,
            "no configuration, device or program of another network",
        ));
    }
    findings
}

/// Configurations that runtimes would use in place of this project's, or that remain of another
/// network.
fn configurations(directory: &Path) -> Vec<Finding> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let is_configuration =
        |name: &String| [".conf", ".conflist", ".json"].iter().any(|end| name.ends_with(end));
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(is_configuration)
        .collect();
    names.sort();
    let is_own = |name: &String| {
        fs::read_to_string(directory.join(name)).is_ok_and(|text| text.contains(PLUGIN))
    };
    let finding = |name: &String| {
        let path = directory.join(name);
        let why = "another network's configuration: runtimes use the first of the directory, so pods may get that network";
        Finding::new(OTHER_NETWORKS, &path.display().to_string(), State::Failed, why)
            .next(&format!("remove that network, then its file: mv {} /root", path.display()))
    };
    names.iter().filter(|name| !is_own(name)).map(finding).collect()
}

fn devices(root: &Path) -> Vec<Finding> {
    let Ok(entries) = fs::read_dir(root.join("sys/class/net")) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    let mut seen = Vec::new();
    let mut findings = Vec::new();
    for name in names {
        let Some((_, owner)) = DEVICES.into_iter().find(|(start, _)| name.starts_with(start))
        else {
            continue;
        };
        // A network has a device for each pod.
        if seen.contains(&owner) {
            continue;
        }
        seen.push(owner);
        let why = format!(
            "a device of {owner}: its routes and rules remain after its programs have ended"
        );
        findings.push(Finding::new(OTHER_NETWORKS, &name, State::Warning, &why).next(&format!(
            "remove {owner} as its documentation says, or ip link delete {name}, or reboot"
        )));
    }
    findings
}

fn programs(root: &Path) -> Vec<Finding> {
    let Ok(processes) = fs::read_dir(root.join("proc")) else { return Vec::new() };
    let names = processes.flatten().take(MOST_PROCESSES).filter_map(|process| {
        fs::read_to_string(process.path().join("comm")).ok().map(|name| name.trim().to_owned())
    });
    let names: Vec<String> = names.collect();
    let running = PROXIES.into_iter().filter(|proxy| names.iter().any(|name| name == proxy));
    let finding = |proxy: &str| {
        let why = "runs here: OVN serves Services, and its rules would take connections away";
        Finding::new(OTHER_NETWORKS, proxy, State::Failed, why).next(&format!(
            "kubectl -n kube-system delete daemonset {proxy}, then {proxy} --cleanup on each node"
        ))
    };
    running.map(finding).collect()
}
