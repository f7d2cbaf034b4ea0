//! The server's start, its files, and its end.

use std::{
    fs,
    io::Write,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::Path,
};

use nix::sys::signal::Signal;

use crate::lab::{Server, add, annotation, answer, eventually, verb, watch};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn the_socket_is_for_its_owner_alone_and_the_configuration_for_all() {
    let server = Server::start();
    assert_eq!(
        (mode(&server.directory.path().join("run")), mode(&server.socket())),
        (0o700, 0o600)
    );
    let conf = server.conf_dir().join("10-ovn-kubernetes.conflist");
    assert_eq!(mode(&conf), 0o644);
    let conf: serde_json::Value = serde_json::from_slice(&fs::read(conf).unwrap()).unwrap();
    assert_eq!(
        (conf["name"].as_str(), conf["plugins"][0]["type"].as_str()),
        (Some("ovn-kubernetes"), Some("ovn-k8s-cni-overlay"))
    );
}

#[test]
fn the_configuration_appears_when_the_socket_answers_and_not_before() {
    // `start` returns as soon as the file exists.
    for _ in 0..10 {
        let server = Server::start();
        UnixStream::connect(server.socket()).expect("a socket that answers");
    }
}

#[test]
fn a_second_server_is_refused_and_leaves_the_first_alone() {
    let server = Server::start();
    let (status, text) = server.second();
    assert_eq!(status.code(), Some(1));
    assert!(
        text.starts_with("ovnkube: another server answers on ") && text.contains("stop it first"),
        "{text}"
    );
    assert_eq!(server.ask("/", &verb("STATUS", "", "")).status(), 200);
}

#[test]
fn a_socket_that_a_killed_server_left_behind_is_replaced() {
    let mut server = Server::start();
    server.pod("cart-0", "u1", Some(&annotation(5)));
    server.kill_and_restart();
    assert_eq!(server.ask("/", &add("cart-0", "u1")).status(), 200);
}

#[test]
fn what_is_in_flight_is_finished_before_the_server_ends() {
    let mut server = Server::start();
    server.pod("cart-0", "u1", None);
    server.pod("cart-1", "u1", Some(&annotation(6)));
    let mut in_flight = server.send("/", &add("cart-0", "u1"));
    server.log_says("waiting missing=\"the pod has no annotation");
    // The server must know the pod before the watch, which would otherwise report it as deleted.
    assert_eq!(server.ask("/", &add("cart-1", "u1")).status(), 200);
    let mut watching = server.send("/watch", &watch("cart-1", "u1", 6));

    server.signal(Signal::SIGTERM);
    server.log_says("stopping; the CNI configuration stays in place why=SIGTERM in_flight=1");
    let (status, code, _) = eventually("new ADDs are refused", || {
        let answer = server.ask("/", &add("cart-1", "u1"));
        if answer.status() == 200 { Err(answer) } else { Ok(answer.error()) }
    });
    assert_eq!((status, code), (503, 11));
    let (status, code, text) = server.ask("/", &verb("STATUS", "", "")).error();
    // 11 is "try again": a server that restarts is no error yet. The plugin itself answers 50 if it
    // does not come back.
    assert_eq!((status, code), (503, 11));
    assert!(text.contains("the server is shutting down"), "{text}");
    assert_eq!(server.ask("/", &verb("DEL", "cart-1", "u1")).status(), 200);
    assert_eq!(answer(&mut watching).status(), 503);

    server.pod("cart-0", "u1", Some(&annotation(5)));
    assert_eq!(answer(&mut in_flight).status(), 200);
    assert_eq!(server.ended().code(), Some(0));
    assert!(!server.socket().exists());
    assert!(server.conf_dir().join("10-ovn-kubernetes.conflist").exists());
}

#[test]
fn an_idle_server_ends_at_once() {
    let mut server = Server::start();
    let _idle = server.connect();
    server.signal(Signal::SIGINT);
    assert_eq!(server.ended().code(), Some(0));
    assert!(server.log().ends_with("stopped\n"), "{}", server.log());
}

#[test]
fn a_second_signal_ends_the_wait_for_what_is_in_flight() {
    let mut server = Server::start();
    server.pod("cart-0", "u1", None);
    let mut in_flight = server.send("/", &add("cart-0", "u1"));
    server.log_says("waiting missing=\"the pod has no annotation");
    server.signal(Signal::SIGTERM);
    server.log_says("why=SIGTERM in_flight=1");
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended().code(), Some(0));
    assert_eq!(
        std::io::Read::read(&mut in_flight, &mut [0; 1]).unwrap_or(0),
        0,
        "the connection ended"
    );
}

#[test]
fn the_log_follows_logrotate_and_survives_a_missing_directory() {
    let server = Server::start();
    let (log, rotated) =
        (server.directory.path().join("log"), server.directory.path().join("log.1"));
    fs::rename(&log, rotated).unwrap();
    eventually("lines go to a new file", || {
        assert_eq!(server.ask("/", &verb("DEL", "cart-0", "")).status(), 200);
        fs::read_to_string(&log)
    });
}

#[test]
fn a_process_out_of_file_descriptors_serves_on_when_it_has_some() {
    let server = Server::start();
    // The server reserves 16 for its own work, whatever is open now: this leaves 3 for connections.
    let in_use = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count();
    let mut prlimit = std::process::Command::new("prlimit");
    assert!(
        prlimit
            .args([&format!("--nofile={}", in_use + 19), "--pid", &server.pid().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let mut many: Vec<UnixStream> = (0..60).map(|_| server.connect()).collect();
    server.log_says("no connection can be accepted for now");
    many.iter_mut().for_each(|stream| drop(stream.write_all(b"POST")));
    drop(many);
    assert_eq!(server.ask("/", &verb("STATUS", "", "")).status(), 200);
}

#[test]
fn the_command_line_says_what_is_missing() {
    let run = |arguments: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_ovnkube"))
            .args(arguments)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, _, text) = run(&["--config-file", "/dev/null"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("say what to be: --init-node NODE"), "{text}");
    let (code, text, _) = run(&["--version"]);
    assert_eq!((code, text), (Some(0), format!("ovnkube {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let server = Server::start();
    let (status, text) = server.second_with(&["--pod-manifests", "/no/such/directory"]);
    assert_eq!(
        (status.code(), text.as_str()),
        (
            Some(1),
            "ovnkube: pod manifests in \"/no/such/directory\": No such file or directory (os error 2)\n"
        )
    );
}
