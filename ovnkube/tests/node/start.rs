//! The order of the server's start, with a real database of Open vSwitch.

use std::{
    fs,
    os::unix::net::{UnixDatagram, UnixStream},
};

use nix::sys::signal::Signal;

use crate::lab::{Server, eventually};

/// The row's `_version`, which changes with every transaction that writes to the row.
fn version(server: &Server) -> String {
    let select = r#"["Open_vSwitch",{"op":"select","table":"Open_vSwitch","where":[],"columns":["_version"]}]"#;
    testkit::program::output(testkit::program::command("ovsdb-client").args([
        "transact",
        server.database().endpoint(),
        select,
    ]))
}

/// Keys that ovn-controller needs.
const KEYS: [&str; 9] = [
    "hostname",
    "ovn-enable-lflow-cache",
    "ovn-encap-ip",
    "ovn-encap-type",
    "ovn-monitor-all",
    "ovn-openflow-probe-interval",
    "ovn-remote",
    "ovn-remote-probe-interval",
    "ovnkube-wrote",
];

#[test]
fn ovn_controllers_settings_are_written_and_others_stay() {
    let server = Server::start_after(|database| {
        database.vsctl(&[
            "set",
            "Open_vSwitch",
            ".",
            "external_ids:system-id=chassis-1",
            "external_ids:ovn-bridge-mappings=physnet:br-ex",
        ]);
        database.vsctl(&[
            "set",
            "Open_vSwitch",
            ".",
            "external_ids:ovn-remote=tcp:192.0.2.1:6642",
            "external_ids:hostname=node1.example",
        ]);
    });
    let id = |key: &str| server.external_id(key);
    assert_eq!(id("hostname").as_deref(), Some("node1"), "a logical port asks for the node's name");
    assert_eq!(id("ovn-encap-ip").as_deref(), Some("127.0.0.1"));
    assert_eq!(id("ovn-encap-type").as_deref(), Some("geneve"));
    assert_eq!(id("ovn-remote-probe-interval").as_deref(), Some("100000"));
    assert_eq!(id("ovn-openflow-probe-interval").as_deref(), Some("180"));
    assert_eq!(id("ovn-remote").as_deref(), Some("tcp:192.0.2.1:6642"), "the administrator's");
    assert_eq!(id("system-id").as_deref(), Some("chassis-1"));
    assert_eq!(id("ovn-bridge-mappings").as_deref(), Some("physnet:br-ex"));
    let wrote = id("ovnkube-wrote").unwrap();
    assert!(
        wrote.contains("ovn-encap-ip")
            && !wrote.contains("ovn-remote ")
            && !wrote.contains("system-id"),
        "{wrote}"
    );
}

#[test]
fn a_second_start_writes_nothing() {
    let mut server = Server::start();
    let before = version(&server);
    server.kill_and_restart();
    server.log_says("Open vSwitch's database has what ovn-controller needs");
    assert_eq!(version(&server), before);
}

#[test]
fn an_option_wins_over_what_is_there() {
    let server = Server::start_after(|database| {
        database.vsctl(&["set", "Open_vSwitch", ".", "external_ids:ovn-encap-ip=192.0.2.9"]);
    });
    assert_eq!(server.external_id("ovn-encap-ip").as_deref(), Some("127.0.0.1"));
}

#[test]
fn nothing_is_announced_before_open_vswitch_is_there() {
    let mut server = Server::spawn_without_database(&[]);
    server.log_says("waiting for condition condition=open-vswitch why=\"unix:");
    assert!(!server.socket().exists() && !server.conf_dir().exists());
    server.start_database();
    server.ready();
    UnixStream::connect(server.socket()).expect("the socket was there before the configuration");
    server.log_says("condition met condition=open-vswitch");
    for key in KEYS {
        assert!(server.external_id(key).is_some(), "{key}");
    }
}

#[test]
fn a_server_that_waits_for_open_vswitch_can_be_stopped_at_once() {
    let mut server = Server::spawn_without_database(&[]);
    server.log_says("waiting for condition condition=open-vswitch");
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended().code(), Some(0));
    assert!(
        server.log().contains("told to stop before the start was complete why=SIGTERM"),
        "{}",
        server.log()
    );
    assert!(!server.conf_dir().exists());
}

#[test]
fn a_database_without_its_row_is_waited_for() {
    let mut server = Server::spawn_without_database(&[]);
    server.start_empty_database();
    server.log_says("the database has no row yet");
    assert!(!server.conf_dir().exists());
    server.database().vsctl(&["init"]);
    server.ready();
}

#[test]
fn a_key_that_disappears_is_put_back_and_another_value_is_not() {
    let server = Server::start();
    server.database().vsctl(&["set", "Open_vSwitch", ".", "external_ids:ovn-encap-type=vxlan"]);
    server.database().vsctl(&["remove", "Open_vSwitch", ".", "external_ids", "ovn-remote"]);
    eventually("ovn-remote is there again", || {
        server.external_id("ovn-remote").ok_or_else(|| server.log())
    });
    server.log_says("put back what ovn-controller needs");
    assert_eq!(server.external_id("ovn-encap-type").as_deref(), Some("vxlan"));
    assert!(server.external_id("system-id").is_some(), "no other program gave the chassis a name");
}

#[test]
fn a_database_that_goes_and_comes_back_is_said() {
    let mut server = Server::start();
    server.stop_database();
    server.log_says("waiting for condition condition=open-vswitch");
    UnixStream::connect(server.socket()).expect("the server serves on");
    server.restart_database();
    eventually("Open vSwitch is there again", || {
        let log = server.log();
        (log.matches("condition met condition=open-vswitch").count() == 2).then_some(()).ok_or(log)
    });
}

#[test]
fn the_plugin_is_there_before_the_configuration() {
    let server = Server::start();
    let plugin = server.directory.path().join("bin/ovn-k8s-cni-overlay");
    assert_eq!(fs::read(plugin).unwrap(), fs::read("/bin/true").unwrap());
}

#[test]
fn a_missing_plugin_keeps_the_configuration_back_until_somebody_installs_it() {
    let mut server = Server::prepare();
    let plugin = server.directory.path().join("bin/ovn-k8s-cni-overlay");
    // A directory that is not empty cannot be replaced by a file.
    fs::create_dir_all(plugin.join("full")).unwrap();
    server.start_database();
    server.respawn(&[]);
    server.log_says("the plugin was not installed");
    server.log_says("waiting for condition condition=plugin");
    eventually("the socket is served", || UnixStream::connect(server.socket()).map(drop));
    assert!(!server.conf_dir().exists(), "runtimes would start what is not there");
    fs::remove_dir_all(&plugin).unwrap();
    fs::copy("/bin/true", &plugin).unwrap();
    server.ready();
}

#[test]
fn systemd_is_told_of_each_step() {
    let mut server = Server::prepare();
    let path = server.directory.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(crate::lab::SOON)).unwrap();
    server.notify = Some(path);
    let read = || {
        let mut text = [0; 4096];
        let length = systemd.recv(&mut text).expect("a message within a few seconds");
        String::from_utf8(text[..length].to_vec()).unwrap()
    };
    let until = |wanted: &[&str]| {
        let mut said = Vec::new();
        while !wanted.iter().all(|wanted| said.iter().any(|line: &String| line.starts_with(wanted)))
        {
            said.extend(read().lines().map(str::to_owned));
        }
    };
    server.respawn(&[]);
    // A unit that waits counts as started: a later unit may have to start what it waits for.
    until(&["STATUS=waiting for open-vswitch: unix:", "READY=1"]);
    server.start_database();
    until(&["STATUS=serving"]);
    assert!(server.conf_dir().join("10-ovn-kubernetes.conflist").exists());
    server.signal(Signal::SIGTERM);
    until(&["STOPPING=1"]);
    assert_eq!(server.ended().code(), Some(0));
}

#[test]
fn the_pidfile_names_the_server_and_refuses_a_second_one() {
    let mut server = Server::start_with_pidfile();
    let pidfile = server.directory.path().join("ovnkube.pid");
    assert_eq!(fs::read_to_string(&pidfile).unwrap(), format!("{}\n", server.pid()));
    let (status, text) = server.second_with(&["--pidfile", pidfile.to_str().unwrap()]);
    assert_eq!(status.code(), Some(1));
    assert!(
        text.contains(&format!("names process {}, which is a running ovnkube", server.pid())),
        "{text}"
    );
    server.signal(Signal::SIGTERM);
    server.ended();
    assert!(!pidfile.exists());
}

#[test]
fn sighup_opens_the_log_anew() {
    let server = Server::start();
    let log = server.directory.path().join("log");
    fs::rename(&log, server.directory.path().join("log.1")).unwrap();
    server.signal(Signal::SIGHUP);
    eventually("the log is there", || {
        let text = fs::read_to_string(&log).map_err(|error| error.to_string())?;
        text.contains("SIGHUP").then_some(()).ok_or(text)
    });
}

#[test]
fn a_node_is_cleaned_up_after_its_server_has_ended_and_not_before() {
    let mut server = Server::start();
    let clean = |server: &Server| server.second_with(&["--cleanup-node", "node1"]);
    let (status, text) = clean(&server);
    assert!(status.code() == Some(2) && text.contains("give one of them"), "{status}: {text}");
    let (status, text) = server.clean_up();
    assert!(status.code() == Some(1) && text.contains("a server answers on"), "{status}: {text}");
    server.kill();
    let (status, text) = server.clean_up();
    assert!(status.success() && text.is_empty(), "{status}: {text}");
    assert!(
        !server.socket().exists() && !server.conf_dir().join("10-ovn-kubernetes.conflist").exists()
    );
    assert_eq!(server.external_id("ovn-remote"), None);
}
