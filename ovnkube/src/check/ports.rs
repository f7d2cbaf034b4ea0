//! The ports of OVN's databases and of the tunnels.

use std::{fs, path::Path};

use crate::findings::{Finding, State};

pub(super) const PORTS: &str = "ports";

/// A port, the files that list the sockets of its protocol, and what needs it.
const NEEDED: [(&str, u16, [&str; 2], &str); 3] = [
    ("TCP", 6641, ["tcp", "tcp6"], "the northbound database"),
    ("TCP", 6642, ["tcp", "tcp6"], "the southbound database"),
    ("UDP", 6081, ["udp", "udp6"], "the tunnels between nodes"),
];
/// The programs that the ports are for.
const OWN_PROGRAMS: [&str; 3] = ["ovsdb-server", "ovs-vswitchd", "ovn-controller"];
/// The device that Open vSwitch makes for its tunnels in the kernel.
const OWN_TUNNEL: &str = "genev_sys_6081";
/// The state of a TCP socket that listens (`include/net/tcp_states.h`).
const LISTENS: &str = "0A";
/// The most processes that are looked through for the owner of a socket.
const MOST_PROCESSES: usize = 50_000;

pub(super) fn findings(root: &Path) -> Vec<Finding> {
    NEEDED
        .into_iter()
        .map(|(protocol, port, files, purpose)| finding(root, protocol, port, files, purpose))
        .collect()
}

fn finding(root: &Path, protocol: &str, port: u16, files: [&str; 2], purpose: &str) -> Finding {
    let name = format!("{protocol} {port}");
    let found = |state, said: &str| Finding::new(PORTS, &name, state, said);
    let sockets =
        files.iter().filter_map(|file| fs::read_to_string(root.join("proc/net").join(file)).ok());
    let Some(inode) = sockets.filter_map(|sockets| inode(&sockets, port, protocol == "TCP")).next()
    else {
        return found(State::Ok, &format!("free, for {purpose}"));
    };
    // The kernel's own sockets have no inode.
    if inode == 0 {
        if root.join("sys/class/net").join(OWN_TUNNEL).exists() {
            return found(State::Ok, "Open vSwitch has its tunnels there already");
        }
        let why =
            format!("taken by a tunnel of the kernel, of another network: it is for {purpose}");
        return found(State::Failed, &why)
            .next("ip -d link show type geneve; ip link delete the device of the other network");
    }
    match owner(root, inode) {
        Some(program) if OWN_PROGRAMS.contains(&program.as_str()) => {
            found(State::Ok, &format!("{program} is there already"))
        }
        owner => {
            let owner = owner.unwrap_or_else(|| "another program".to_owned());
            found(State::Failed, &format!("taken by {owner}; it is for {purpose}"))
                .next(&format!("ss -lnp '( sport = :{port} )'"))
        }
    }
}

/// The inode of the socket on the port, in a file of `/proc/net`.
fn inode(sockets: &str, port: u16, is_tcp: bool) -> Option<u64> {
    sockets.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, local) = fields.get(1)?.rsplit_once(':')?;
        let is_it = u16::from_str_radix(local, 16).ok()? == port;
        let listens = !is_tcp || fields.get(3) == Some(&LISTENS);
        (is_it && listens).then(|| fields.get(9)?.parse().ok()).flatten()
    })
}

/// The name of the process that has the socket.
fn owner(root: &Path, inode: u64) -> Option<String> {
    let socket = format!("socket:[{inode}]");
    let processes = fs::read_dir(root.join("proc")).ok()?.flatten().take(MOST_PROCESSES);
    for process in processes {
        let Ok(files) = fs::read_dir(process.path().join("fd")) else { continue };
        let has = files
            .flatten()
            .any(|file| fs::read_link(file.path()).is_ok_and(|to| to.to_string_lossy() == socket));
        if has {
            let name = fs::read_to_string(process.path().join("comm")).ok()?;
            return Some(name.trim().to_owned());
        }
    }
    None
}
