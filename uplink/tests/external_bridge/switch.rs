//! A bridge of a real ovs-vswitchd, without devices and without privileges.

use std::{fs, path::Path};

use testkit::{Database, Scratch, daemons, process::Process, program};
use uplink::flows::{COOKIE, Flows};

pub(crate) const BRIDGE: &str = "breth0";

/// Ports 1 (uplink), 2 (patch) and 3 (another one).
pub(crate) struct Switch {
    pub(crate) vswitchd: Process,
    database: Database,
    scratch: Scratch,
}

impl Switch {
    pub(crate) fn start() -> Self {
        let scratch = Scratch::new();
        let database = Database::start(scratch.path());
        database.vsctl(&["add-br", BRIDGE, "--", "set", "Bridge", BRIDGE, "datapath_type=dummy"]);
        for number in 1..=3 {
            let (port, request) = (format!("p{number}"), format!("ofport_request={number}"));
            database.vsctl(&[
                "add-port",
                BRIDGE,
                &port,
                "--",
                "set",
                "Interface",
                &port,
                "type=dummy",
                &request,
            ]);
        }
        let vswitchd = daemons::vswitchd(scratch.path(), &database, BRIDGE);
        Self { vswitchd, database, scratch }
    }

    pub(crate) fn run_dir(&self) -> &Path {
        self.scratch.path()
    }

    /// Kills ovs-vswitchd, and starts it again: all flows are gone.
    pub(crate) fn restart(&mut self) {
        self.vswitchd.signal(nix::sys::signal::Signal::SIGKILL);
        self.vswitchd.end();
        self.vswitchd = daemons::vswitchd(self.scratch.path(), &self.database, BRIDGE);
    }

    /// Restricts the versions of OpenFlow that the bridge speaks, and waits until it does.
    #[track_caller]
    pub(crate) fn speak(&self, protocols: &str) {
        let set = ["set", "Bridge", BRIDGE, &format!("protocols={protocols}")];
        program::output(
            program::command("ovs-vsctl")
                .args(["--timeout=10", &format!("--db={}", self.database.endpoint())])
                .args(set),
        );
    }

    /// `ovs-ofctl -O OpenFlow14 COMMAND BRIDGE ARGUMENTS`
    #[track_caller]
    pub(crate) fn ofctl(&self, command: &[&str], arguments: &[&str]) -> String {
        program::output(
            program::command("ovs-ofctl")
                .env("OVS_RUNDIR", self.run_dir())
                .args(["-O", "OpenFlow14"])
                .args(command)
                .arg(BRIDGE)
                .args(arguments),
        )
    }

    /// The flows, one a line, without counters.
    #[track_caller]
    pub(crate) fn dump(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .ofctl(&["--no-stats", "dump-flows"], &[])
            .lines()
            .map(|line| line.trim().to_owned())
            .collect();
        lines.sort();
        lines
    }

    pub(crate) fn ours(&self) -> usize {
        self.dump().iter().filter(|line| line.starts_with(&format!("cookie={COOKIE:#x},"))).count()
    }

    /// Compares with what ovs-ofctl makes of the text of the flows, and leaves that in the bridge.
    /// The flow `NORMAL` is that of every new bridge. (`ovs-ofctl diff-flows` finds a difference in
    /// `nw_frag=yes` that it wrote itself.)
    #[track_caller]
    pub(crate) fn assert_has(&self, flows: &Flows) {
        let file = self.file("flows", flows);
        let ours = self.dump();
        self.ofctl(&["del-flows"], &[]);
        self.ofctl(&["add-flows"], &[&file]);
        assert_eq!(ours, self.dump());
    }

    /// A file of flows for ovs-ofctl.
    pub(crate) fn file(&self, name: &str, flows: &Flows) -> String {
        let cookie =
            |line: &str| if line == "table=0, priority=0 actions=NORMAL" { 0 } else { COOKIE };
        let text: Vec<String> = flows
            .to_string()
            .lines()
            .map(|line| format!("cookie={:#x}, {line}\n", cookie(line)))
            .collect();
        let file = self.scratch.join(name);
        fs::write(&file, text.concat()).expect("a file of the test's own directory can be written");
        file.display().to_string()
    }

    /// What happens to a packet: the actions of the datapath.
    #[track_caller]
    pub(crate) fn trace(&self, packet: &str, options: &[&str]) -> String {
        self.appctl(&[&["ofproto/trace", BRIDGE, packet], options].concat())
    }

    /// `ovs-appctl COMMAND`
    #[track_caller]
    pub(crate) fn appctl(&self, command: &[&str]) -> String {
        program::output(
            program::command("ovs-appctl")
                .arg("-t")
                .arg(self.run_dir().join(format!("ovs-vswitchd.{}.ctl", self.vswitchd.pid())))
                .args(command),
        )
    }
}
