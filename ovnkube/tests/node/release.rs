//! The release of Open vSwitch, as the server finds it at its start.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixListener,
    path::Path,
    thread,
};

use crate::lab::Server;

const WARNING: &str = "the userspace datapath of this Open vSwitch aborts";

/// ovs-vswitchd of a release: a control socket that answers each command with it.
fn vswitchd(directory: &Path, release: &str) {
    let listener = UnixListener::bind(directory.join("ovs-vswitchd.1.ctl")).unwrap();
    fs::write(directory.join("ovs-vswitchd.pid"), "1\n").unwrap();
    let answer =
        format!(r#"{{"error":null,"id":0,"result":"ovs-vswitchd (Open vSwitch) {release}\n"}}"#);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A request is smaller than this, and written at once.
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
}

fn bridge(server: &Server, datapath: &str) {
    server.database().vsctl(&[
        "--no-wait",
        "add-br",
        "br-int",
        "--",
        "set",
        "Bridge",
        "br-int",
        datapath,
    ]);
}

#[test]
fn a_release_that_aborts_in_user_space_is_named_once_it_and_the_bridge_are_there() {
    let server = Server::start();
    vswitchd(server.directory.path(), "3.1.0");
    bridge(&server, "datapath_type=netdev");
    server.log_says(WARNING);
    server.log_says("release=3.1.0");
}

/// In a container of its own, ovs-vswitchd is out of sight.
#[test]
fn without_a_sight_of_ovs_vswitchd_the_release_in_the_database_counts() {
    let server = Server::start_after(|database| {
        database.vsctl(&["--no-wait", "set", "Open_vSwitch", ".", "ovs_version=3.2.2"]);
        let bridge = ["add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev"];
        database.vsctl(&[&["--no-wait"], &bridge[..]].concat());
    });
    server.log_says(WARNING);
    server.log_says("release=3.2.2");
}

#[test]
fn a_fixed_release_and_the_kernels_datapath_are_not_warned_of() {
    for (release, datapath) in
        [("3.1.3", "datapath_type=netdev"), ("3.1.0", "datapath_type=system")]
    {
        let mut server = Server::prepare();
        server.start_database();
        vswitchd(server.directory.path(), release);
        bridge(&server, datapath);
        server.respawn(&[]);
        server.ready();
        server.log_says("Open vSwitch's release");
        assert!(!server.log().contains(WARNING), "{release}, {datapath}: {}", server.log());
    }
}
