//! A kernel that keeps the server waiting. It executes an rtnetlink request inside sendto(2), which blocks
//! while another process changes a link.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use testkit::{
    http::Message,
    preload,
    scripted_server::{Answer, serve},
};

use crate::lab::{SOON, Server, eventually, verb};

/// How long the kernel does not answer: some times longer than [`AT_ONCE`].
const HELD: Duration = Duration::from_secs(4);
/// Limit for answers to pods and liveness probes, which come from memory in milliseconds; the rest is for a
/// busy machine.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Makes a process wait while the file `held` exists.
const LIBRARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/rtnl.c");

/// An API server that refuses every request, each time for another reason: each makes the follower of the
/// node's object look again.
fn moody() -> String {
    let number = AtomicU32::new(0);
    let refuse =
        move |_: &Message| Answer::forbidden(&format!("reason {}", number.fetch_add(1, Ordering::Relaxed)));
    format!("http://{}", serve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), refuse).unwrap())
}

/// How long `/healthz` takes.
fn healthz(address: &str) -> Duration {
    let asked = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HELD + SOON)).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    asked.elapsed()
}

#[test]
fn a_kernel_that_answers_late_stopped_healthz_and_the_socket() {
    let mut server = Server::prepare();
    let held = server.directory.path().join("held");
    let library = preload::library(Path::new(LIBRARY)).unwrap();
    server.environment = vec![(preload::VARIABLE, library), ("OVN_TEST_RTNL", held.clone())];
    server.start_database();
    // Without an address for tunnels: the server looks for its own in the kernel, and follows the node's
    // object.
    let url = moody();
    let options = [
        "--pod-manifests",
        "",
        "--k8s-apiserver",
        &url,
        "--encap-ip",
        "",
        "--healthz-bind-address",
        "127.0.0.1:0",
    ];
    server.respawn(&options);
    server.listening();
    let address = eventually("the log says where /healthz is", || {
        let log = server.log();
        let rest =
            log.split_once("option=--healthz-bind-address url=http://").map(|(_, rest)| rest.to_owned());
        rest.and_then(|rest| rest.split_whitespace().next().map(str::to_owned)).ok_or(log)
    });
    assert!(healthz(&address) < AT_ONCE);

    fs::write(&held, "").unwrap();
    eventually("the server asks the kernel", || {
        let asking = fs::metadata(&held).unwrap().len();
        if asking > 0 { Ok(()) } else { Err("no request yet") }
    });
    let began = Instant::now();
    let (mut slowest, mut asked) = (Duration::ZERO, 0);
    while began.elapsed() < HELD {
        slowest = slowest.max(healthz(&address));
        let question = Instant::now();
        server.ask("/", &verb("STATUS", "", ""));
        slowest = slowest.max(question.elapsed());
        asked += 1;
        thread::park_timeout(Duration::from_millis(20));
    }
    let asking = fs::metadata(&held).unwrap().len();
    fs::remove_file(&held).unwrap();
    assert!(slowest < AT_ONCE, "with {asking} threads in the kernel, an answer took {slowest:?}");
    assert!(asked > 10, "{asked}");
}
