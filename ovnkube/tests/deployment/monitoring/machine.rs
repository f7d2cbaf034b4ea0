//! A machine with all daemons whose metrics are exported, real ones without devices and privileges:
//! OVN's databases, of which the northbound one is a member of a cluster, ovn-northd,
//! ovn-controller, Open vSwitch.

use std::{fs, path::PathBuf, process::Stdio};

use ovnkube::exporter::{Exported, Exporter, ExporterPlaces};
use testkit::{Daemons, Database, Node, eventually, process::Process, program};
use tokio::runtime::Builder;

use super::SOON;

const NORTHBOUND: &str = "/usr/share/ovn/ovn-nb.ovsschema";

pub(super) struct Machine {
    // In this order: the processes end before their directory is removed.
    _northd: Process,
    _northbound: Database,
    _daemons: Daemons,
    _database: Database,
    pub(super) node: Node,
}

impl Machine {
    pub(super) fn start() -> Self {
        let node = Node::new();
        let database = node.start_database_with_bridge();
        let daemons = Daemons::start(&node, &database);
        // As `ovsdb-server --pidfile` writes it.
        let pidfile = node.ovs_run_dir().join("ovsdb-server.pid");
        fs::write(pidfile, format!("{}\n", database.process.pid())).unwrap();
        let directory = node.ovn_run_dir();
        let file = directory.join("ovnnb_db.conf");
        let address = format!("unix:{}", directory.join("ovnnb_db.raft").display());
        program::output(
            program::command("ovsdb-tool")
                .arg("create-cluster")
                .arg(file)
                .arg(program::file(NORTHBOUND))
                .arg(address),
        );
        let northbound = Database::serve(&directory, "ovnnb_db");
        let mut command = program::unprivileged("ovn-northd");
        command
            .env("OVN_RUNDIR", &directory)
            .arg(format!("--ovnnb-db={}", northbound.endpoint()))
            .arg(format!("--ovnsb-db={}", daemons.southbound.endpoint()))
            .arg(format!("--pidfile={}", directory.join("ovn-northd.pid").display()))
            .arg(format!("--log-file={}", directory.join("ovn-northd.log").display()))
            .arg("-vconsole:off")
            .stdin(Stdio::null());
        let northd = Process::start(&mut command);
        Self {
            _northd: northd,
            _northbound: northbound,
            _daemons: daemons,
            _database: database,
            node,
        }
    }

    /// What the exporter tells of the machine once ovn-northd is at work.
    pub(super) fn metrics(&self) -> String {
        let places = ExporterPlaces {
            ovsdb: format!("unix:{}", self.node.ovsdb_socket().display()).parse().unwrap(),
            ovs_run_dir: self.node.ovs_run_dir(),
            ovn_run_dir: self.node.ovn_run_dir(),
            northbound_file: self.node.ovn_run_dir().join("ovnnb_db.conf"),
            southbound_file: PathBuf::from("/nonexistent"),
        };
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let exporter = runtime.block_on(async { Exporter::start(&places, Exported::Both) });
        eventually("ovn-northd is at work", SOON, || {
            let text = runtime.block_on(exporter.text());
            if text.contains("ovn_northd_status 1") { Ok(text.to_string()) } else { Err(text) }
        })
    }

    /// The control socket of a daemon that has a pid file.
    pub(super) fn control(&self, daemon: &str) -> PathBuf {
        let directory = match daemon {
            "ovs-vswitchd" => self.node.ovs_run_dir(),
            _ => self.node.ovn_run_dir(),
        };
        let pid = fs::read_to_string(directory.join(format!("{daemon}.pid"))).unwrap();
        directory.join(format!("{daemon}.{}.ctl", pid.trim()))
    }
}
