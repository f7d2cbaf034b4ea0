//! The databases of a zone by the entry point of the image, `conf/image/ovnkube.sh`, as the chart
//! runs them: their files are lost while the zone's pods talk.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Result, ensure};
use integration::{
    Daemon, Families, Lab, eventually, mounts,
    traffic::{End, Flow},
};

use crate::support::{
    api::Api,
    two_zones::{PORT, SOON, Zone, new_pod, of_zone, pings, process, tell_node},
};

/// The longest silence, on a machine that does much else. It was 2.8 s where ovn-controller saw the
/// empty database.
const LONGEST: Duration = Duration::from_millis(1500);
const ZONE: &str = "b";

/// The containers of a zone's databases and of its ovn-northd.
struct Databases {
    northbound: Daemon,
    southbound: Daemon,
    northd: Daemon,
}

fn root() -> PathBuf {
    Path::new(mounts::LAB).join("zone-by-script")
}

fn socket(database: &str) -> String {
    format!("unix:{}", root().join(format!("var/run/ovn/ovn{database}_db.sock")).display())
}

impl Databases {
    fn new() -> Result<Self> {
        for directory in ["var/run/ovn", "var/run/openvswitch", "var/log/ovn", "usr/share"] {
            fs::create_dir_all(root().join(directory))?;
        }
        fs::create_dir_all(mounts::LOGS)?;
        let [northbound, southbound, northd] =
            ["local-nb-ovsdb", "local-sb-ovsdb", "run-ovn-northd"].map(container);
        Ok(Self { northbound, southbound, northd })
    }

    fn start(&self) -> Result<()> {
        [&self.northbound, &self.southbound, &self.northd].into_iter().try_for_each(Daemon::spawn)
    }

    /// As the power goes, and with it the disk.
    fn lose(&self, files: &[(&Daemon, &str)]) -> Result<()> {
        for (daemon, database) in files {
            daemon.kill()?;
            fs::remove_file(root().join(format!("var/lib/openvswitch/zone/ovn{database}_db.db")))?;
        }
        files.iter().try_for_each(|(daemon, _)| daemon.spawn())
    }
}

/// Process 1 of a "container" runs the script.
fn container(argument: &str) -> Daemon {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conf/image/ovnkube.sh");
    let log = Path::new(mounts::LOGS).join(format!("{argument}.out"));
    let words = ["--fork", "--pid", "--mount-proc", "--kill-child"].map(str::to_owned);
    let script = [script.to_string_lossy().into_owned(), argument.to_owned()];
    let arguments: Vec<String> = words.into_iter().chain(script).collect();
    let program = || Ok(Command::new("unshare"));
    let daemon = Daemon::new(argument.to_owned(), log, program, arguments);
    let of_root = |path: &str| root().join(path).display().to_string();
    let variables = [
        ("OVNKUBE_ROOT", of_root("")),
        ("OVN_RUNDIR", of_root("var/run/ovn")),
        ("OVN_LOGDIR", of_root("var/log/ovn")),
        ("OVN_DBDIR", of_root("var/lib/openvswitch")),
        ("OVN_NORTH", socket("nb")),
        ("OVN_SOUTH", socket("sb")),
        ("K8S_NODE", ZONE.to_owned()),
    ];
    daemon.set_environment(variables.map(|(name, value)| (name.to_owned(), value)).into());
    daemon
}

fn ctl(program: &str, database: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(["--timeout=10", &format!("--db={}", socket(database))]).args(arguments);
    integration::command::output(&mut command)
}

fn names(database: &str, table: &str, column: &str) -> Result<Vec<String>> {
    let program = format!("ovn-{database}ctl");
    let text = ctl(&program, database, &["--bare", &format!("--columns={column}"), "list", table])?;
    let mut names: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    names.sort();
    Ok(names)
}

#[test]
fn databases_of_a_zone_that_are_lost_come_back_filled_while_its_pods_talk() {
    Lab::of_nodes(2).families(Families::Dual).empty().test(|lab| {
        let api = Api::start()?;
        let [first, second] = &lab.nodes[..] else { anyhow::bail!("two nodes") };
        lab.nodes.iter().for_each(|node| tell_node(&api, node));
        let interconnect = ["--enable-interconnect".to_owned()];
        let manager =
            process(&api, "manager", "--init-cluster-manager=manager".to_owned(), &interconnect);
        manager.spawn()?;
        let databases = Databases::new()?;
        databases.start()?;
        // No server writes yet: the sockets wait for the rows.
        eventually("the new databases listen beside their sockets", SOON, || {
            for database in ["nb", "sb"] {
                let socket = root().join(format!("var/run/ovn/ovn{database}_db.sock"));
                ensure!(!socket.exists(), "{} is open", socket.display());
                let beside = socket.with_extension("sock.filling");
                ensure!(beside.exists(), "no {}", beside.display());
            }
            Ok(())
        })?;
        let places =
            [format!("--nb-address={}", socket("nb")), format!("--sb-address={}", socket("sb"))];
        let options = [&places[..], &of_zone(ZONE)].concat();
        let role = format!("--init-ovnkube-controller=controller-{ZONE}");
        let controller = process(&api, "controller-b", role, &options);
        controller.spawn()?;
        second.ovn_controller.stop()?;
        second.vsctl([
            "set",
            "Open_vSwitch",
            ".",
            &format!("external_ids:ovn-remote={}", socket("sb")),
        ])?;
        second.start_ovn_controller()?;
        lab.central.sbctl(["--if-exists", "chassis-del", &second.name])?;
        let zone = Zone::control("global", &lab.central, std::slice::from_ref(first), &api)?;
        zone.serve(first, &api)?;
        Zone::serve_at(ZONE, &socket("sb"), second, &api)?;
        let here = new_pod(lab, &api, first, "client")?;
        let there = new_pod(lab, &api, second, "server")?;
        pings(lab, "pods of the two zones reach each other", &here, &there)?;

        let rows = [("nb", "Logical_Switch_Port", "name"), ("sb", "Chassis", "hostname")];
        let read = || -> Result<Vec<Vec<String>>> {
            rows.iter().map(|(database, table, column)| names(database, table, column)).collect()
        };
        let before = read()?;
        let Databases { northbound, southbound, .. } = &databases;
        let lost: [(&str, &[(&Daemon, &str)]); 3] = [
            ("the northbound database", &[(northbound, "nb")]),
            ("the southbound database", &[(southbound, "sb")]),
            ("both", &[(northbound, "nb"), (southbound, "sb")]),
        ];
        for (what, files) in lost {
            let flows: [Flow; 2] = [lab.flow(&here, &there)?, lab.flow(&there, &here)?];
            let place = SocketAddr::new(there.address(), PORT);
            let connection = lab.lasting(End::Pod(&here), End::Pod(&there), vec![place])?;
            databases.lose(files)?;
            eventually("the rows are there again", SOON, || {
                let now = read()?;
                ensure!(now == before, "{now:?}\nand before\n{before:?}");
                Ok(())
            })?;
            integration::let_pass(Duration::from_secs(5));
            connection.end()?;
            for flow in flows {
                let echoes = flow.stop()?;
                eprintln!("{what} is lost: {echoes:?}");
                ensure!(echoes.silence() < LONGEST, "{what} is lost: {echoes:?}");
            }
        }
        let later = new_pod(lab, &api, second, "server")?;
        pings(lab, "a pod of after it is reached", &here, &later)
    });
}
