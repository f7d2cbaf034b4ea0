//! The entry point of the image, `conf/image/ovnkube.sh`, with stubs in place of all programs that
//! it starts: each records its name and arguments.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use tempfile::TempDir;
use testkit::eventually;

use crate::manifests::conf;

const SOON: Duration = Duration::from_secs(30);
/// The ConfigMap's variables, as the DaemonSets set them.
const CONFIGURATION: [(&str, &str); 5] = [
    ("OVN_NORTH", "tcp:10.19.188.22:6641"),
    ("OVN_SOUTH", "tcp:10.19.188.22:6642"),
    ("K8S_APISERVER", "https://api.example.org:8443"),
    ("OVN_NET_CIDR", "10.128.0.0/14"),
    ("OVN_SVC_CIDR", "172.30.0.0/16"),
];
/// What each program does after it has recorded its arguments. A daemon is a process with a
/// pidfile.
const STUBS: [(&str, &str); 14] = [
    ("ovs-ctl", "case $* in *no-ovs-vswitchd*) daemon openvswitch/ovsdb-server ;; esac"),
    (
        "ovn-ctl",
        "case $* in
         *no-ovn-manage-ovsdb*start_northd* | *start_northd*no-ovn-manage-ovsdb*) daemon ovn/ovn-northd ;;
         *start_northd*) for name in ovnnb_db ovnsb_db ovn-northd; do daemon ovn/$name; done ;;
         *start_controller*) daemon ovn/ovn-controller ;;
         *start_nb_ovsdb*) daemon ovn/ovnnb_db ;;
         *start_sb_ovsdb*) daemon ovn/ovnsb_db ;;
         esac",
    ),
    ("ovs-vswitchd", "daemon openvswitch/ovs-vswitchd"),
    ("ovnkube", "exec sleep 1000"),
    ("ovn-nbctl", ""),
    ("ovn-sbctl", ""),
    ("ovs-vsctl", ""),
    ("ovs-ofctl", ""),
    ("ovn-controller", ""),
    ("ovs-dpctl", ""),
    // Nothing runs yet.
    ("ovs-appctl", "exit 1"),
    ("uuidgen", "echo 6c0d63b5-1ad9-4a0f-9c3c-6a1d3a1f1c5e"),
    ("tail", ""),
    ("uname", "echo node7"),
];
const OF_NODE: &str = "--cluster-subnets 10.128.0.0/14 --k8s-service-cidrs 172.30.0.0/16 --k8s-apiserver https://api.example.org:8443";

/// A container: its files, its programs, and the script in it.
struct Container {
    directory: TempDir,
    environment: Vec<(String, String)>,
}

impl Container {
    fn new() -> Self {
        let container = Self {
            directory: tempfile::tempdir().unwrap(),
            environment: CONFIGURATION
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
        };
        for (name, body) in STUBS {
            container.stub(name, body);
        }
        for directory in ["var/run/openvswitch", "var/run/ovn", "usr/libexec/cni", "usr/lib/cni"] {
            fs::create_dir_all(container.path(directory)).unwrap();
        }
        fs::write(container.path("usr/libexec/cni/ovn-k8s-cni-overlay"), "the plugin").unwrap();
        fs::write(container.path("usr/lib/cni/loopback"), "the image's loopback").unwrap();
        container.set("K8S_NODE", "node1")
    }

    fn set(mut self, name: &str, value: &str) -> Self {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn stub(&self, name: &str, body: &str) {
        let file = self.path("bin").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        // The record is the file of one write(2) per program.
        let text = format!(
            "#!/bin/sh\necho \"{name} $*\" >>\"$RECORD\"\n\
             daemon() {{ /bin/sleep 1000 >/dev/null 2>&1 & echo $! >\"$OVNKUBE_ROOT/var/run/$1.pid\"; }}\n{body}\n"
        );
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(conf("image/ovnkube.sh"));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()))
            .env("OVNKUBE_ROOT", self.directory.path())
            .env("RECORD", self.path("record"))
            .envs(self.environment.iter().cloned())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }

    /// Runs it to its end.
    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn start(&self, arguments: &[&str]) -> Running<'_> {
        Running { container: self, child: Some(self.command(arguments).spawn().unwrap()) }
    }

    /// What was started so far, in order.
    fn record(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("record")).unwrap_or_default();
        let root = self.directory.path().to_str().unwrap();
        text.lines().map(|line| line.replace(root, "").trim_end().to_owned()).collect()
    }

    fn pid(&self, name: &str) -> i32 {
        fs::read_to_string(self.path("var/run").join(name).with_extension("pid"))
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    }
}

/// The script at work. All its processes end with the test.
struct Running<'c> {
    container: &'c Container,
    child: Option<Child>,
}

impl Running<'_> {
    fn wait_for(&self, started: &str) {
        eventually(&format!("{started} is started"), SOON, || {
            let record = self.container.record();
            if record.iter().any(|line| line.starts_with(started)) {
                Ok(())
            } else {
                Err(format!("{record:#?}"))
            }
        });
    }

    fn tell_to_end(&self) {
        kill(Pid::from_raw(self.child.as_ref().unwrap().id().cast_signed()), Signal::SIGTERM)
            .unwrap();
    }

    fn end(mut self) -> Output {
        self.child.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _gone = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
            let _status = child.wait();
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn of_node(gateway: &str) -> String {
    format!(
        "ovnkube --init-node node1 {OF_NODE} --sb-address tcp:10.19.188.22:6642 --cni-bin-dir /host/opt/cni/bin {gateway} \
         --metrics-bind-address :9410 --healthz-bind-address 127.0.0.1:9411 --loglevel 4 \
         --pidfile /var/run/openvswitch/ovnkube.pid --logfile /var/log/openvswitch/ovnkube.log"
    )
}

fn of_master() -> String {
    format!(
        "ovnkube --init-master node1 {OF_NODE} --nb-address tcp:10.19.188.22:6641 --sb-address tcp:10.19.188.22:6642 \
         --metrics-bind-address :9409 --healthz-bind-address 127.0.0.1:9408 --loglevel 4 \
         --pidfile /var/run/openvswitch/ovnkube-master.pid --logfile /var/log/openvswitch/ovnkube-master.log"
    )
}

/// Without what asks whether something is there, and without the log that is shown.
fn started(record: &[String]) -> Vec<&str> {
    let asks = ["tail", "ovs-appctl", "ovs-dpctl", "uname"];
    record
        .iter()
        .map(String::as_str)
        .filter(|line| !asks.iter().any(|ask| line.starts_with(ask)))
        .collect()
}

#[test]
fn a_master_starts_everything_in_order_and_stops_it_in_the_other() {
    let container = Container::new().set("OVN_MASTER", "true");
    let running = container.start(&[]);
    running.wait_for("ovnkube --init-master");
    running.wait_for("ovnkube --init-node");
    let record = container.record();
    // Both run in the background: which of them comes first, and when, the machine decides.
    let (mut ovnkube, others): (Vec<_>, Vec<_>) =
        started(&record).into_iter().partition(|line| line.starts_with("ovnkube "));
    ovnkube.sort();
    assert_eq!(ovnkube, [of_master(), of_node("--init-gateways --gateway-localnet")]);
    let expected = [
        "ovs-ctl status",
        "ovn-ctl start_northd --no-monitor --db-nb-addr=10.19.188.22 --db-nb-port=6641 --db-nb-create-insecure-remote=yes \
         --db-nb-file=/var/lib/openvswitch/ovnnb_db.db --db-sb-addr=10.19.188.22 --db-sb-port=6642 \
         --db-sb-create-insecure-remote=yes --db-sb-file=/var/lib/openvswitch/ovnsb_db.db",
        "ovn-nbctl --timeout=5 --db=tcp:10.19.188.22:6641 show",
        "ovn-ctl --no-monitor start_controller",
    ];
    assert_eq!(others, expected);
    running.tell_to_end();
    let output = running.end();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stopped = &container.record()[record.len()..];
    assert_eq!(started(stopped), ["ovn-ctl --restart stop_controller", "ovn-ctl stop_northd"]);
    let said = text(&output.stdout);
    let order = [
        "told to end",
        "stopping: stop_process",
        "stopping: ovn-ctl --restart",
        "stopping: stop_process",
        "stopping: ovn-ctl stop_northd",
    ];
    let mut rest = said.as_str();
    for step in order {
        rest = rest
            .split_once(step)
            .unwrap_or_else(|| panic!("{step:?} is missing or out of order in {said}"))
            .1;
    }
}

#[test]
fn a_node_starts_neither_databases_nor_the_master() {
    let container = Container::new()
        .set("OVN_GATEWAY_OPTS", "")
        .set("OVN_CONTROLLER_OPTS", "--ovn-controller-log=-vfile:dbg");
    let running = container.start(&["start_ovn"]);
    running.wait_for("ovnkube --init-node");
    let expected = [
        "ovs-ctl status".to_owned(),
        "ovn-ctl --no-monitor start_controller --ovn-controller-log=-vfile:dbg".to_owned(),
        of_node("").replace("  ", " "),
    ];
    assert_eq!(started(&container.record()), expected);
}

#[test]
fn each_argument_starts_its_own_program() {
    let northbound = "ovn-nbctl --timeout=5 --db=tcp:10.19.188.22:6641 show";
    let cases: [(&str, &[&str]); 9] = [
        ("ovn-master", &[northbound, &of_master()]),
        ("ovn-node", &["ovs-ctl status", &of_node("--init-gateways --gateway-localnet")]),
        ("ovn-controller", &["ovs-ctl status", "ovn-ctl --no-monitor start_controller"]),
        (
            "run-ovn-northd",
            &[
                northbound,
                "ovn-ctl start_northd --no-monitor --no-ovn-manage-ovsdb --ovn-northd-nb-db=tcp:10.19.188.22:6641 \
                 --ovn-northd-sb-db=tcp:10.19.188.22:6642",
            ],
        ),
        (
            "nb-ovsdb",
            &["ovn-ctl start_nb_ovsdb --no-monitor --db-nb-addr=10.19.188.22 --db-nb-port=6641 \
               --db-nb-create-insecure-remote=yes --db-nb-file=/var/lib/openvswitch/ovnnb_db.db"],
        ),
        (
            "sb-ovsdb",
            &["ovn-ctl start_sb_ovsdb --no-monitor --db-sb-addr=10.19.188.22 --db-sb-port=6642 \
               --db-sb-create-insecure-remote=yes --db-sb-file=/var/lib/openvswitch/ovnsb_db.db"],
        ),
        (
            "local-nb-ovsdb",
            &[
                "ovn-ctl start_nb_ovsdb --no-monitor --db-nb-file=/var/lib/openvswitch/zone/ovnnb_db.db \
                 --db-nb-sock=/var/run/ovn/ovnnb_db.sock.filling",
                "ovn-nbctl --timeout=30 --db=unix:/var/run/ovn/ovnnb_db.sock.filling init -- get NB_Global . name",
                "ovn-nbctl --timeout=30 --db=unix:/var/run/ovn/ovnnb_db.sock.filling set NB_Global . name=\"node1\" \
                 options:name=\"node1\" external_ids:filling=true",
                "ovn-nbctl --timeout=10 --db=unix:/var/run/ovn/ovnnb_db.sock.filling --if-exists get NB_Global . \
                 external_ids:filling",
            ],
        ),
        (
            "local-sb-ovsdb",
            &[
                "ovn-ctl start_sb_ovsdb --no-monitor --db-sb-file=/var/lib/openvswitch/zone/ovnsb_db.db \
                 --db-sb-sock=/var/run/ovn/ovnsb_db.sock.filling",
                "ovn-nbctl --timeout=10 --db=unix:/var/run/ovn/ovnnb_db.sock --wait=sb sync",
                "ovn-sbctl --timeout=10 --db=unix:/var/run/ovn/ovnsb_db.sock.filling --bare --columns=logical_port \
                 find Port_Binding type=remote chassis=[]",
            ],
        ),
        (
            "ovs-server",
            &[
                "uuidgen",
                "ovs-ctl start --no-ovs-vswitchd --no-monitor --system-id=6c0d63b5-1ad9-4a0f-9c3c-6a1d3a1f1c5e",
                "ovs-vsctl --no-wait remove Open_vSwitch . external_ids ovn-bridge-datapath-type",
                "ovs-vswitchd unix:/var/run/openvswitch/db.sock -vconsole:emer -vsyslog:off -vfile:info --no-chdir --detach \
                 --pidfile=/var/run/openvswitch/ovs-vswitchd.pid --log-file=/var/log/openvswitch/ovs-vswitchd.log",
            ],
        ),
    ];
    for (argument, expected) in cases {
        let container = Container::new();
        let running = container.start(&[argument]);
        running.wait_for(expected[expected.len() - 1]);
        assert_eq!(started(&container.record()), expected, "{argument}");
    }
    let container = Container::new();
    container.stub("ovnkube", "");
    assert!(container.run(&["cleanup-ovn-node"]).status.success());
    let expected = "ovnkube --cleanup-node node1 --cni-bin-dir /host/opt/cni/bin --k8s-apiserver https://api.example.org:8443";
    assert_eq!(container.record(), [expected]);
}

#[test]
fn a_zones_database_that_cannot_be_read_begins_anew_and_that_of_another_zone_is_refused() {
    let container = Container::new();
    container.stub("ovsdb-tool", "exit 1");
    fs::create_dir_all(container.path("var/lib/openvswitch/zone")).unwrap();
    fs::write(container.path("var/lib/openvswitch/zone/ovnsb_db.db"), "no database").unwrap();
    let running = container.start(&["local-sb-ovsdb"]);
    running.wait_for("ovn-ctl start_sb_ovsdb");
    let kept =
        fs::read_to_string(container.path("var/lib/openvswitch/zone/ovnsb_db.db.unreadable"));
    assert_eq!(kept.unwrap(), "no database");
    drop(running);

    container.stub("ovn-nbctl", "echo '\"node8\"'");
    let output = container.run(&["local-nb-ovsdb"]);
    let said = text(&output.stderr);
    assert!(
        !output.status.success() && said.contains("is of the zone node8, and this node is node1"),
        "{said}"
    );
}

#[test]
fn a_zones_new_database_opens_its_socket_once_it_is_filled_and_an_old_one_at_once() {
    let container = Container::new();
    let zone = container.path("var/lib/openvswitch/zone");
    let mark = zone.join("ovnnb_db.db.filling");
    container.stub("ovn-nbctl", "case $* in *if-exists*) cat \"$OVNKUBE_ROOT/mark\" ;; esac");
    container.stub("ovs-appctl", "case $* in *add-remote*) ;; *) exit 1 ;; esac");
    let opened = "ovs-appctl --timeout=10 --target=/var/run/ovn/ovnnb_db.ctl ovsdb-server/add-remote \
                  punix:/var/run/ovn/ovnnb_db.sock";
    fs::write(container.path("mark"), "\"true\"").unwrap();
    let asks = "ovn-nbctl --timeout=10 --db=unix:/var/run/ovn/ovnnb_db.sock.filling --if-exists";
    let running = container.start(&["local-nb-ovsdb"]);
    running.wait_for(asks);
    assert!(mark.exists() && !container.record().contains(&opened.to_owned()));
    drop(running);

    // It was not filled when it ended.
    fs::write(zone.join("ovnnb_db.db"), "some rows").unwrap();
    fs::remove_file(container.path("record")).unwrap();
    container.stub("ovsdb-tool", "");
    let running = container.start(&["local-nb-ovsdb"]);
    running.wait_for(asks);
    fs::write(container.path("mark"), "").unwrap();
    running.wait_for(opened);
    eventually("the mark goes", SOON, || if mark.exists() { Err("there") } else { Ok(()) });
    drop(running);

    fs::remove_file(container.path("record")).unwrap();
    let running = container.start(&["local-nb-ovsdb"]);
    running.wait_for("ovn-nbctl --timeout=30");
    let record = container.record();
    assert!(!record.iter().any(|line| line.contains(".filling")), "{record:?}");
}

#[test]
fn a_zones_southbound_database_waits_for_the_chassis_of_the_other_zones() {
    let container = Container::new();
    container.stub("ovn-sbctl", "cat \"$OVNKUBE_ROOT/ports\"");
    container.stub("ovs-appctl", "case $* in *add-remote*) ;; *) exit 1 ;; esac");
    fs::write(container.path("ports"), "tstor-node2").unwrap();
    let running = container.start(&["local-sb-ovsdb"]);
    running.wait_for("ovn-sbctl");
    assert!(!container.record().iter().any(|line| line.contains("add-remote")));
    fs::write(container.path("ports"), "").unwrap();
    running.wait_for(
        "ovs-appctl --timeout=10 --target=/var/run/ovn/ovnsb_db.ctl ovsdb-server/add-remote",
    );
    drop(running);

    let container = container
        .set("OVN_NORTH", "unix:/var/run/ovn/ovnnb_db.sock")
        .set("OVN_SOUTH", "unix:/var/run/ovn/ovnsb_db.sock");
    let running = container.start(&["run-ovn-northd"]);
    running.wait_for(
        "ovn-ctl start_northd --no-monitor --no-ovn-manage-ovsdb \
         --ovn-northd-nb-db=unix:/var/run/ovn/ovnnb_db.sock \
         --ovn-northd-sb-db=unix:/var/run/ovn/ovnsb_db.sock,unix:/var/run/ovn/ovnsb_db.sock.filling",
    );
}

#[test]
fn a_node_keeps_its_chassis_when_the_container_is_another_one() {
    let container = Container::new();
    fs::create_dir_all(container.path("var/lib/openvswitch")).unwrap();
    fs::write(container.path("var/lib/openvswitch/system-id.conf"), "of-before\n").unwrap();
    let running = container.start(&["ovs-server"]);
    running.wait_for("ovs-vswitchd");
    let record = container.record();
    assert!(record.iter().any(|line| line.ends_with("--system-id=of-before")), "{record:#?}");
}

#[test]
fn without_the_kernels_module_packets_go_through_user_space_and_the_nic_comes_back_at_the_end() {
    let container = Container::new();
    container.stub("ovs-dpctl", "exit 1");
    container.stub(
        "ovs-vsctl",
        "case $* in *list-br) echo breth0 br-int ;; *br-get-external-id*breth0*) echo eth0 ;; esac",
    );
    container.stub("ovnkube", "");
    let running = container.start(&["ovs-server"]);
    running.wait_for("ovs-vswitchd");
    let record = container.record();
    let netdev =
        "ovs-vsctl --no-wait set Open_vSwitch . external_ids:ovn-bridge-datapath-type=netdev";
    assert!(record.iter().any(|line| line == netdev), "{record:#?}");
    // Its trap is there before the first program runs.
    running.tell_to_end();
    assert!(running.end().status.success());
    let stopped = container.record();
    let stopped: Vec<_> =
        stopped[record.len()..].iter().filter(|line| !line.starts_with("ovs-vsctl")).collect();
    assert_eq!(stopped, ["ovnkube bridges-to-nic breth0", "ovs-ctl stop"]);
}

#[test]
fn all_that_the_configuration_lacks_is_said_at_once_and_nothing_is_started() {
    for argument in [&[][..], &["ovn-master"], &["ovn-node"]] {
        let container = Container::new().set("OVN_NET_CIDR", "").set("OVN_SOUTH", "");
        let output = container.run(argument);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        let expected = "not set: OVN_SOUTH (key OvnSouth),OVN_NET_CIDR (key net_cidr); the ConfigMap ovn-config";
        assert!(said.contains(expected), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(container.record(), [""; 0], "{argument:?}");
        assert!(!container.path("host").exists(), "the plugin is there");
    }
}

/// A database needs its own address, and no more: its pod has no ConfigMap.
#[test]
fn a_database_and_ovn_northd_need_the_addresses_of_databases_alone() {
    let missing = ["OVN_SOUTH", "K8S_APISERVER", "OVN_NET_CIDR", "OVN_SVC_CIDR"];
    let without =
        |container: Container| missing.iter().fold(container, |all, name| all.set(name, ""));
    let container = without(Container::new());
    let running = container.start(&["nb-ovsdb"]);
    running.wait_for("ovn-ctl start_nb_ovsdb");
    running.tell_to_end();
    assert_eq!(running.end().status.code(), Some(0));
    let stopped = "ovs-appctl --timeout=10 --target=/var/run/ovn/ovnnb_db.ctl exit";
    assert_eq!(container.record().last().map(String::as_str), Some(stopped));
    for argument in ["sb-ovsdb", "run-ovn-northd"] {
        let container = without(Container::new());
        let output = container.run(&[argument]);
        let said = text(&output.stderr);
        assert!(
            said.contains("not set: OVN_SOUTH (key OvnSouth); the ConfigMap"),
            "{argument}: {said}"
        );
        assert_eq!(container.record(), [""; 0], "{argument}");
    }
}

/// Each key of the ConfigMap alone: the other four are there.
#[test]
fn a_configuration_with_four_of_its_five_keys_is_refused_with_the_name_of_the_fifth() {
    for (variable, key) in CONFIGURATION.map(|(variable, _)| variable).into_iter().zip([
        "OvnNorth",
        "OvnSouth",
        "k8s_apiserver",
        "net_cidr",
        "svc_cidr",
    ]) {
        let container = Container::new().set(variable, "");
        let output = container.run(&[]);
        let said = text(&output.stderr);
        assert!(
            said.contains(&format!("not set: {variable} (key {key}); the ConfigMap ovn-config")),
            "{said}"
        );
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert_eq!(container.record(), [""; 0], "{variable}");
    }
}

/// The plugin of an image for another architecture took the place of the host's, and no pod got a
/// network.
#[test]
fn an_image_of_another_architecture_is_refused_before_the_host_has_its_plugin() {
    // The begin of an ELF header, with the number of the machine: little-endian, 64 bits.
    let executable =
        |machine: u8| [&b"\x7fELF\x02\x01\x01"[..], &[0; 9], &[2, 0, machine, 0]].concat();
    let (x86_64, aarch64) = (executable(0x3e), executable(0xb7));
    for (machine, own, other) in [("x86_64", &x86_64, &aarch64), ("aarch64", &aarch64, &x86_64)] {
        let container = Container::new();
        container.stub("uname", &format!("case $1 in -m) echo {machine} ;; *) echo node7 ;; esac"));
        let host = container.path("host/opt/cni/bin/ovn-k8s-cni-overlay");
        fs::create_dir_all(host.parent().unwrap()).unwrap();
        fs::write(&host, "the host's").unwrap();
        let plugin = container.path("usr/libexec/cni/ovn-k8s-cni-overlay");
        fs::write(&plugin, other).unwrap();
        for argument in [&[][..], &["ovn-node"], &["ovn-master"]] {
            let output = container.run(argument);
            let said = text(&output.stderr);
            assert!(
                said.contains(&format!("this machine is {machine}, and "))
                    && said.contains("is for another architecture: take the image for"),
                "{said}"
            );
            assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
            assert_eq!(fs::read_to_string(&host).unwrap(), "the host's");
        }
        fs::write(&plugin, own).unwrap();
        let running = container.start(&["ovn-node"]);
        running.wait_for("ovnkube --init-node");
        assert_eq!(&fs::read(&host).unwrap(), own);
    }
}

#[test]
fn a_member_of_a_cluster_has_to_be_one_of_its_addresses() {
    let cluster = "tcp:10.0.0.1:6641,tcp:10.0.0.2:6641,tcp:10.0.0.3:6641";
    for (addresses, address, message) in [
        (cluster, "10.0.0.4", "the address of this node, '10.0.0.4' (K8S_NODE_IP), is none of"),
        (cluster, "", "the address of this node, '' (K8S_NODE_IP), is none of"),
        (
            "tcp:10.0.0.1:6641,ssl:10.0.0.2:6641",
            "10.0.0.1",
            "'ssl:10.0.0.2:6641', is not tcp:IP:PORT",
        ),
    ] {
        let container = Container::new().set("OVN_NORTH", addresses).set("K8S_NODE_IP", address);
        let output = container.run(&["nb-ovsdb"]);
        assert_eq!(output.status.code(), Some(1), "{addresses}");
        let said = text(&output.stderr);
        assert!(said.contains(message), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(container.record(), [""; 0], "{addresses}");
    }
}

#[test]
fn a_full_disk_of_the_host_is_said_and_the_plugin_that_was_there_stays() {
    let container = Container::new();
    container.stub("cp", "echo half >\"$2\"; echo 'cp: No space left on device' >&2; exit 1");
    let host = container.path("host/opt/cni/bin/ovn-k8s-cni-overlay");
    fs::create_dir_all(host.parent().unwrap()).unwrap();
    fs::write(&host, "the host's").unwrap();
    let output = container.run(&["ovn-node"]);
    let said = text(&output.stderr);
    assert!(said.contains("No space left") && said.contains("is the disk of"), "{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
    let left: Vec<_> = fs::read_dir(host.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["ovn-k8s-cni-overlay"]);
    assert_eq!(fs::read_to_string(&host).unwrap(), "the host's");
}

#[test]
fn databases_at_an_address_that_cannot_be_opened_are_refused() {
    let container =
        Container::new().set("OVN_NORTH", "ssl:10.19.188.22:6641").set("OVN_MASTER", "true");
    let output = container.run(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(
        text(&output.stderr).contains("'ssl:10.19.188.22:6641', is not tcp:IP:PORT"),
        "{}",
        text(&output.stderr)
    );
    assert!(
        !container.record().iter().any(|line| line.starts_with("ovn-ctl")),
        "{:#?}",
        container.record()
    );
}

#[test]
fn a_second_open_vswitch_on_a_host_is_refused() {
    let container = Container::new();
    container.stub("ovs-appctl", "");
    let output = container.run(&["ovs-server"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("Open vSwitch runs on this host already"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(container.record(), ["ovs-appctl --timeout=5 --target=ovs-vswitchd version"]);
}

#[test]
fn the_script_ends_with_the_first_program_that_ends() {
    let container = Container::new();
    let running = container.start(&[]);
    running.wait_for("ovnkube --init-node");
    kill(Pid::from_raw(container.pid("ovn/ovn-controller")), Signal::SIGKILL).unwrap();
    let output = running.end();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stdout).contains("ovn-controller has ended; stopping the others"),
        "{}",
        text(&output.stdout)
    );
    let record = container.record();
    assert_eq!(
        record.last().map(String::as_str),
        Some("ovn-ctl --restart stop_controller"),
        "{record:#?}"
    );
}

#[test]
fn what_is_awaited_is_said_and_given_up_after_forty_times_ten_seconds() {
    for (argument, program, what) in [
        ("ovn-node", "ovs-ctl", "Open vSwitch (sdn-ovs.yaml, or the host's own)"),
        ("ovn-master", "ovn-nbctl", "the northbound database at tcp:10.19.188.22:6641"),
    ] {
        let container = Container::new();
        container.stub(program, "exit 1");
        container.stub("sleep", "");
        let output = container.run(&[argument]);
        assert_eq!(output.status.code(), Some(1));
        let record = container.record();
        assert_eq!(record.iter().filter(|line| *line == "sleep 1").count(), 400, "{argument}");
        let said = text(&output.stdout);
        let lines: Vec<_> =
            said.lines().filter(|line| line.contains(&format!("waiting for {what}"))).collect();
        assert_eq!(lines.len(), 41, "{said}");
        assert!(lines[40].ends_with(": 400 s of 400 s"), "{}", lines[40]);
        assert!(
            text(&output.stderr).contains(&format!("{what} was not there within 400 s")),
            "{}",
            text(&output.stderr)
        );
        assert!(!record.iter().any(|line| line.starts_with("ovnkube")), "{record:#?}");
    }
}

#[test]
fn what_comes_later_is_noticed_within_a_second() {
    let container = Container::new();
    let file = container.path("there");
    container.stub("ovs-ctl", &format!("[ -e {} ]", file.display()));
    let running = container.start(&["ovn-node"]);
    running.wait_for("ovs-ctl status");
    fs::write(&file, "").unwrap();
    running.wait_for("ovnkube --init-node");
    let asked = container.record().iter().filter(|line| *line == "ovs-ctl status").count();
    assert!(asked <= 10, "asked {asked} times");
}

#[test]
fn the_plugin_is_replaced_at_once_and_the_hosts_loopback_stays() {
    let container = Container::new();
    let plugins = container.path("host/opt/cni/bin");
    fs::create_dir_all(&plugins).unwrap();
    for name in ["ovn-k8s-cni-overlay", "loopback"] {
        fs::write(plugins.join(name), "the host's").unwrap();
    }
    // A runtime that runs the old file keeps it.
    let old = fs::File::open(plugins.join("ovn-k8s-cni-overlay")).unwrap();
    let running = container.start(&["ovn-node"]);
    running.wait_for("ovnkube");
    assert_eq!(fs::read_to_string(plugins.join("ovn-k8s-cni-overlay")).unwrap(), "the plugin");
    assert_eq!(std::io::read_to_string(old).unwrap(), "the host's");
    assert_eq!(fs::read_to_string(plugins.join("loopback")).unwrap(), "the host's");
    assert_eq!(mode(&plugins.join("ovn-k8s-cni-overlay")), 0o755);
    drop(running);

    let container = Container::new();
    let running = container.start(&["ovn-node"]);
    running.wait_for("ovnkube");
    let loopback = container.path("host/opt/cni/bin/loopback");
    assert_eq!(fs::read_to_string(&loopback).unwrap(), "the image's loopback");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_environment_is_shown_without_the_token() {
    let container = Container::new().set("K8S_TOKEN", "secret-of-the-cluster");
    let output = container.run(&["display_env"]);
    let said = text(&output.stdout);
    for line in [
        "OVN_NORTH=tcp:10.19.188.22:6641",
        "OVN_NET_CIDR=10.128.0.0/14",
        "K8S_NODE=node1",
        "K8S_TOKEN=(21 characters)",
    ] {
        assert!(said.lines().any(|said| said == line), "no {line} in {said}");
    }
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn the_state_is_shown_although_nothing_runs() {
    let container = Container::new();
    container.stub("ovnkube", "");
    for argument in ["display", "ovn_debug"] {
        let output = container.run(&[argument]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("no ovnkube runs here"), "{}", text(&output.stdout));
    }
    assert_eq!(container.run(&["ready"]).status.code(), Some(1));
}

#[test]
fn a_master_is_not_ready_before_both_of_its_processes_run() {
    let container = Container::new().set("OVN_MASTER", "true");
    let pidfile = container.path("var/run/openvswitch/ovnkube-master.pid");
    fs::write(pidfile, std::process::id().to_string()).unwrap();
    let output = container.run(&["ready"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("ovnkube does not run yet"), "{}", text(&output.stderr));
}

#[test]
fn an_unknown_argument_is_refused_with_those_that_are_known() {
    let container = Container::new();
    let output = container.run(&["ovn-ndoe"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("unknown argument 'ovn-ndoe'; one of: start_ovn ovs-server"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(container.run(&["ovn-node", "ovn-master"]).status.code(), Some(1));
    assert_eq!(container.record(), [""; 0]);
}
