//! The documents of 2016 to 2018 and the controller's README, with their literal commands
//! (`docs/how-to/older-commands.md`).
//!
//! | module | document |
//! |---|---|
//! | `rows`, `gateway_helper`, `pod` | the walk-through of the Python programs, on three nodes |
//! | `gateways` | its gateways: a NIC of their own, sources, databases with TLS |
//! | `handbook` | the overlay handbook of the first `ovnkube` |
//! | `readme` | the README of the Go programs |

mod gateway_helper;
mod gateways;
mod handbook;
mod pki;
mod pod;
mod readme;
mod rows;

use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, central, command, executable, fabric, mounts};

/// The names of the programs.
const NAMES: [&str; 6] = [
    executable::SERVER,
    "ovn-k8s-overlay",
    "ovn-kube-util",
    "ovn-k8s-util",
    "ovn-k8s-gateway-helper",
    "ovn-k8s-watcher",
];
/// Where they are, on every node.
const BIN: &str = "/run/lab/bin";
/// The file with what a node's commands print.
const TERMINAL: &str = "terminal";
/// Limit for tunnels and flows to follow, on a busy machine.
const SOON: Duration = Duration::from_secs(45);

const MASTER_INIT: &str = "ovn-k8s-overlay master-init --cluster-ip-subnet=\"192.168.0.0/16\" \
     --master-switch-subnet=\"192.168.1.0/24\" --node-name=\"kube-master\"";

fn minion_init(number: usize) -> String {
    format!(
        "ovn-k8s-overlay minion-init --cluster-ip-subnet=\"192.168.0.0/16\" \
         --minion-switch-subnet=\"192.168.{}.0/24\" --node-name=\"kube-node{number}\"",
        number + 1
    )
}

fn gateway_init(address: &str) -> String {
    format!(
        "ovn-k8s-overlay gateway-init --cluster-ip-subnet=\"192.168.0.0/16\" --bridge-interface breth0 \
         --physical-ip \"{address}/24\" --node-name=\"kube-master\" --default-gw \"{}\"",
        fabric::LAB_ADDRESS
    )
}

/// Links to the executable, and a `sudo` for those who are root.
fn install() -> Result<()> {
    fs::create_dir_all(BIN)?;
    for name in NAMES {
        symlink(executable::under_test(executable::SERVER)?, Path::new(BIN).join(name))?;
    }
    let sudo = Path::new(BIN).join("sudo");
    fs::write(&sudo, "#!/bin/sh\nexec \"$@\"\n")?;
    fs::set_permissions(&sudo, fs::Permissions::from_mode(0o755))?;
    central::link_sockets(Path::new("/"))
}

/// The same, and databases that listen, as the walk-through's first commands have them.
fn prepare(lab: &Lab) -> Result<()> {
    install()?;
    shell("ovn-nbctl set-connection ptcp:6641 && ovn-sbctl set-connection ptcp:6642")?;
    for node in &lab.nodes {
        node.shell(&format!(
            "ovs-vsctl set Open_vSwitch . external_ids:ovn-remote=\"tcp:{0}:6642\" \
             external_ids:ovn-nb=\"tcp:{0}:6641\"",
            fabric::LAB_ADDRESS
        ))?;
    }
    Ok(())
}

fn shell(script: &str) -> Result<String> {
    command::output(Command::new("sh").args(["-euc", script]))
}

/// What a command prints, and its exit status.
struct Said {
    status: Option<i32>,
    out: String,
    err: String,
}

fn say(node: &Node, line: &str) -> Result<Said> {
    let path = format!("PATH={BIN}:/opt/cni/bin:$PATH; {line}");
    let output = node.command("sh").args(["-c", &path]).output().context("start sh")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Said { status: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) })
}

fn succeed(node: &Node, line: &str) -> Result<()> {
    let Said { status, out, err } = say(node, line)?;
    ensure!(
        status == Some(0) && out == "Initialization complete.\n" && err.is_empty(),
        "{line}: {status:?} {out:?} {err:?}"
    );
    Ok(())
}

/// A refusal: the sentence, and nothing in the database has changed.
fn refuse(node: &Node, line: &str, status: i32, why: &str) -> Result<()> {
    let before = northbound()?;
    let said = say(node, line)?;
    ensure!(
        said.status == Some(status) && said.out.is_empty() && said.err.contains(why),
        "{line}: {:?} {:?} {:?}",
        said.status,
        said.out,
        said.err
    );
    ensure!(
        status != 1 || said.err.starts_with("Failed operation.\n(") && said.err.ends_with(")\n"),
        "{:?}",
        said.err
    );
    ensure!(northbound()? == before, "{line} changed rows");
    Ok(())
}

/// The directory in which a node's commands are typed.
fn home(node: &Node) -> Result<PathBuf> {
    let home = Path::new(mounts::LAB).join("home").join(&node.name);
    fs::create_dir_all(&home)?;
    Ok(home)
}

/// Runs a document's commands on the node, with these variables. What they print, those in the
/// background too, is [`printed`].
fn enter(node: &Node, variables: &[(&str, &str)], script: &str) -> Result<()> {
    let home = home(node)?;
    let terminal = File::options().create(true).append(true).open(home.join(TERMINAL))?;
    let mut shell = node.command("sh");
    shell.args(["-euc", &format!("cd {}; PATH={BIN}:$PATH; {script}", home.display())]);
    shell.envs(variables.iter().copied()).stdin(Stdio::null());
    let status = shell.stdout(terminal.try_clone()?).stderr(terminal).status()?;
    ensure!(status.success(), "{script}: {status}\n{}", printed(node)?);
    Ok(())
}

/// What the commands of [`enter`] have printed so far.
fn printed(node: &Node) -> Result<String> {
    Ok(fs::read_to_string(home(node)?.join(TERMINAL))?)
}

/// Rows of the northbound database, with their ids, without the columns that ovn-northd writes.
fn northbound() -> Result<String> {
    let tables = [
        ("Logical_Switch", "name,ports,load_balancer,other_config,external_ids"),
        ("Logical_Switch_Port", "name,type,addresses,options,external_ids"),
        ("Logical_Router", "name,ports,static_routes,nat,load_balancer,options,external_ids"),
        ("Logical_Router_Port", "name,mac,networks,external_ids"),
        ("Load_Balancer", "name,vips,protocol,external_ids"),
        ("Logical_Router_Static_Route", "ip_prefix,nexthop,policy,output_port"),
        ("NAT", "type,external_ip,logical_ip"),
    ];
    let list = |(table, columns): (&str, &str)| {
        shell(&format!("ovn-nbctl --format=csv --columns=_uuid,{columns} list {table} | sort"))
    };
    tables.into_iter().map(list).collect()
}

/// What `ovn-nbctl` says, by words.
fn nbctl(line: &str) -> Result<String> {
    Ok(shell(&format!("ovn-nbctl {line}"))?.trim().trim_matches('"').to_owned())
}
