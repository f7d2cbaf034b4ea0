//! The walk-through of 2018 on three nodes, its literal commands, as
//! `docs/how-to/older-commands.md` has them.

mod gateway_helper;
mod pod;
mod rows;

use std::{fs, os::unix::fs::symlink, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, command, executable, fabric, mounts};

/// The names of the former programs.
const NAMES: [&str; 5] = [
    "ovn-k8s-overlay",
    "ovn-kube-util",
    "ovn-k8s-util",
    "ovn-k8s-gateway-helper",
    "ovn-k8s-watcher",
];
/// Where they are, on every node.
const BIN: &str = "/run/lab/bin";
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

/// Links to the executable, and databases that listen, as the walk-through's first commands have
/// them.
fn prepare(lab: &Lab) -> Result<()> {
    fs::create_dir_all(BIN)?;
    for name in NAMES {
        symlink(executable::under_test(executable::SERVER)?, Path::new(BIN).join(name))?;
    }
    for (database, rows) in [
        ("nb", "db:OVN_Northbound,NB_Global,connections"),
        ("sb", "db:OVN_Southbound,SB_Global,connections"),
    ] {
        let at = |ending: &str| {
            Path::new(mounts::LAB).join("central").join(format!("{database}.{ending}"))
        };
        symlink(at("sock"), format!("/run/ovn/ovn{database}_db.sock"))?;
        let control = at("ctl").display().to_string();
        let add = ["-t", &control, "ovsdb-server/add-remote", rows];
        command::output(Command::new("ovs-appctl").args(add))?;
    }
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
