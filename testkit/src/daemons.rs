//! Real daemons of Open vSwitch and OVN with run directories of their own, without privileges. The
//! datapath is the dummy of Open vSwitch's own tests, which has no devices.

use std::{
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Stdio},
};

use crate::{database::Database, node::Node, process::Process, program};

const SOUTHBOUND_SCHEMA: &str = "/usr/share/ovn/ovn-sb.ovsschema";

/// ovs-vswitchd and ovn-controller, with the southbound database that ovn-controller is connected
/// to.
#[derive(Debug)]
pub struct Daemons {
    pub ovn_controller: Process,
    pub ovs_vswitchd: Process,
    pub southbound: Database,
}

impl Daemons {
    /// Starts the daemons on a node whose database has `br-int`, and waits until ovn-controller is
    /// connected.
    #[track_caller]
    pub fn start(node: &Node, database: &Database) -> Self {
        let (ovs, ovn) = (node.ovs_run_dir(), node.make_dir("ovn"));
        let southbound = Database::of_schema(&ovn, "southbound", SOUTHBOUND_SCHEMA);
        // ovn-northd would insert this row; ovn-controller 23.03 crashes without it.
        let insert = r#"["OVN_Southbound",{"op":"insert","table":"SB_Global","row":{}}]"#;
        program::output(program::command("ovsdb-client").args([
            "transact",
            southbound.endpoint(),
            insert,
        ]));
        let remote = format!("external_ids:ovn-remote={}", southbound.endpoint());
        let chassis = [
            "external_ids:system-id=node1",
            "external_ids:ovn-encap-type=geneve",
            "external_ids:ovn-encap-ip=127.0.0.1",
        ];
        database.vsctl(&[&["set", "Open_vSwitch", ".", &remote], &chassis[..]].concat());
        database.vsctl(&["set", "Bridge", "br-int", "datapath_type=dummy", "fail_mode=secure"]);

        let ovs_vswitchd = vswitchd(&ovs, database, "br-int");
        // After the bridge: ovn-controller retries a missing bridge only after a second.
        let mut ovn_controller = Process::start(
            daemon("ovn-controller", &ovn, database)
                .env("OVS_RUNDIR", &ovs)
                .env("OVN_RUNDIR", &ovn),
        );
        let control = ovn.join(format!("ovn-controller.{}.ctl", ovn_controller.pid()));
        ovn_controller.ready("ovn-controller is connected", || {
            let asked = program::command("ovs-appctl")
                .arg("-t")
                .arg(&control)
                .arg("connection-status")
                .output();
            let seen = asked.map_or_else(
                |error| error.to_string(),
                |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            );
            if seen == "connected" { Ok(()) } else { Err(seen) }
        });
        Self { ovn_controller, ovs_vswitchd, southbound }
    }
}

/// Starts ovs-vswitchd without devices, and waits until it has the bridge. Its sockets are in
/// `run_dir`.
#[track_caller]
pub fn vswitchd(run_dir: &Path, database: &Database, bridge: &str) -> Process {
    let mut command = daemon("ovs-vswitchd", run_dir, database);
    let mut vswitchd = Process::start(
        command.args(["--disable-system", "--enable-dummy"]).env("OVS_RUNDIR", run_dir),
    );
    let socket = run_dir.join(format!("{bridge}.mgmt"));
    vswitchd.ready("the bridge is there", || {
        UnixStream::connect(&socket).map_err(|error| error.to_string())
    });
    vswitchd
}

fn daemon(name: &str, run_dir: &Path, database: &Database) -> Command {
    let mut command = program::unprivileged(name);
    command
        .arg(database.endpoint())
        .args(["-vconsole:off", &format!("--pidfile={}/{name}.pid", run_dir.display())])
        .arg(format!("--log-file={}/{name}.log", run_dir.display()))
        .stdin(Stdio::null());
    command
}
