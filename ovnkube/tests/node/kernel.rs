//! A kernel that keeps the server waiting. It executes an rtnetlink request inside sendto(2), which
//! blocks while another process changes a link.

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

use crate::lab::{SOON, Server, annotation, eventually, verb};

/// How long the kernel does not answer: some times longer than [`AT_ONCE`].
const HELD: Duration = Duration::from_secs(4);
/// Limit for answers to pods and liveness probes, which come from memory in milliseconds; the rest
/// is for a busy machine.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Makes a process wait while the file `held` exists.
const LIBRARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/rtnl.c");

/// An API server that refuses every request, each time for another reason: each makes the follower
/// of the node's object look again.
fn moody() -> String {
    let number = AtomicU32::new(0);
    let refuse = move |_: &Message| {
        Answer::forbidden(&format!("reason {}", number.fetch_add(1, Ordering::Relaxed)))
    };
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
    // Without an address for tunnels: the server looks for its own in the kernel, and follows the
    // node's object.
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
        let rest = log
            .split_once("option=--healthz-bind-address url=http://")
            .map(|(_, rest)| rest.to_owned());
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
    let asking = fs::read_to_string(&held).unwrap().lines().count();
    fs::remove_file(&held).unwrap();
    assert!(slowest < AT_ONCE, "with {asking} threads in the kernel, an answer took {slowest:?}");
    assert!(asked > 10, "{asked}");
}

/// The sandboxes of a pod that is gone, and of one that lives. Their links have the first 15
/// characters as names.
const GONE: &str = "gone567890123450000000000000000000000000000000000000000000000000";
const LIVING: &str = "live567890123450000000000000000000000000000000000000000000000000";

/// A leftover that a datapath in the kernel still has as a port is looked at again before it is
/// removed: on one of the two threads that serve pods and probes.
#[test]
fn a_look_at_a_leftovers_link_blocked_a_thread_that_serves_pods() {
    let mut server = Server::prepare();
    let [gone, living] = [&GONE[..15], &LIVING[..15]];
    // A bridge stands for Open vSwitch's datapath: both are the link's upper device.
    server.inside = Some(format!(
        "ip link add datapath type bridge && ip link add {gone} type veth peer name other && \
         ip link set {gone} master datapath && ip link add {living} type veth peer name another"
    ));
    let held = server.directory.path().join("held");
    fs::write(&held, "").unwrap();
    let library = preload::library(Path::new(LIBRARY)).unwrap();
    server.environment = vec![(preload::VARIABLE, library), ("OVN_TEST_RTNL_LINK", held.clone())];
    server.start_database();
    server.database().vsctl(&["add-br", "br-int"]);
    // Where no attached pod is known, none is believed to be gone.
    for (sandbox, pod, uid) in [(GONE, "gone", "u9"), (LIVING, "cart-0", "u1")] {
        let link = &sandbox[..15];
        let ids = [("sandbox", sandbox), ("iface-id-ver", uid), ("pod-if-name", "eth0")];
        let ids = ids.map(|(key, value)| format!("external_ids:{key}={value}"));
        let iface_id = format!("external_ids:iface-id=shop_{pod}");
        let port = ["add-port", "br-int", link, "--", "set", "Interface", link, &iface_id];
        server
            .database()
            .vsctl(&port.into_iter().chain(ids.iter().map(String::as_str)).collect::<Vec<_>>());
    }
    server.pod("cart-0", "u1", Some(&annotation(5)));
    server.respawn(&["--stale-after", "1"]);
    server.ready();
    let threads = eventually("the server looks at the link", || {
        let threads = fs::read_to_string(&held).unwrap();
        if threads.ends_with('\n') { Ok(threads) } else { Err(server.log()) }
    });
    fs::remove_file(&held).unwrap();
    assert!(
        threads.lines().all(|thread| thread == "kernel"),
        "threads that the kernel held: {threads}"
    );
    server.log_says("removed a stale attachment");
}
