use std::{fs, os::unix::net::UnixListener};

use testkit::Scratch;

use super::*;
use crate::options::{Options, Program};

/// The paths of a node, in a directory of the test.
fn place() -> (Scratch, Early) {
    let scratch = Scratch::new();
    let dir = scratch.path().display();
    let line = format!(
        "--init-node n1 --pod-manifests {dir} --cni-socket {dir}/server.sock --pidfile {dir}/ovnkube.pid"
    );
    let Ok(Program::Node(options)) = line.parse::<Options>().unwrap().program() else {
        panic!("{line}")
    };
    (scratch, options.early().clone())
}

#[test]
fn a_server_that_runs_is_left_alone() {
    let (scratch, early) = place();
    let listener = UnixListener::bind(&early.socket).unwrap();
    let pidfile = pidfile::Pidfile::create(early.pidfile.as_ref().unwrap()).unwrap();
    let error = cleanup(&early).unwrap_err().to_string();
    assert!(error.contains("a server answers on") && error.contains("stop it first"), "{error}");
    drop(listener);
    let error = cleanup(&early).unwrap_err().to_string();
    assert!(error.contains("a running server holds"), "{error}");
    assert!(scratch.join("ovnkube.pid").exists());
    pidfile.remove();
    assert!(none_runs(&early).is_ok());
}

#[test]
fn the_pidfile_of_a_server_that_was_killed_is_removed_whatever_else_failed() {
    for (failures, is_complete) in [(vec![], true), (vec!["settings".to_owned()], false)] {
        let (scratch, early) = place();
        fs::write(scratch.join("ovnkube.pid"), "4194304\n").unwrap();
        let cleaned =
            finish(&early, Cleaned { lines: vec!["removed the socket".to_owned()], failures });
        assert_eq!(cleaned.is_ok(), is_complete, "{cleaned:?}");
        let text = cleaned.map_or_else(|error| error.to_string(), |cleaned| cleaned.to_string());
        assert!(text.contains("removed the socket\nremoved the pidfile "), "{text}");
        assert!(!scratch.join("ovnkube.pid").exists());
    }
}
