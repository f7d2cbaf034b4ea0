//! `/metrics`, `/healthz` and `/readyz` of the executable, for well-behaved and ill-behaved
//! callers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::symlink,
    thread,
    time::{Duration, Instant},
};

use nix::sys::{
    resource::{Resource, getrlimit, setrlimit},
    signal::Signal,
};
use serde_json::json;

use crate::{
    exposition::Exposition,
    lab::{SOON, Server, add, annotation, answer, eventually, verb},
};

fn start() -> (Server, String) {
    let server = Server::start_with(&["--metrics-bind-address", "127.0.0.1:0"]);
    let address = address(&server);
    (server, address)
}

/// The address of the endpoints.
fn address(server: &Server) -> String {
    eventually("the log says where", || {
        let log = server.log();
        let address = log
            .split_once("option=--metrics-bind-address url=http://")
            .map(|(_, rest)| rest.split_whitespace().next().unwrap().to_owned());
        address.ok_or(log)
    })
}

/// Status and body.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = connect(address);
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) =
        answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

fn scrape(address: &str) -> Exposition {
    let (status, text) = get(address, "/metrics");
    assert_eq!(status, 200, "{text}");
    Exposition::parse(&text)
}

/// Waits until a sample has a value.
fn becomes(address: &str, sample: &str, value: f64) {
    eventually(&format!("{sample} becomes {value}"), || match scrape(address).value(sample) {
        Some(now) if (now - value).abs() < f64::EPSILON => Ok(()),
        other => Err(other),
    });
}

#[test]
fn adds_are_seen_while_they_wait_and_when_they_are_answered() {
    let (server, address) = start();
    let in_flight = r#"ovnkube_node_cni_requests_in_flight{command="ADD"}"#;
    (0..5).for_each(|n| server.pod(&format!("cart-{n}"), "u1", None));
    let mut adds: Vec<_> =
        (0..5).map(|n| server.send("/", &add(&format!("cart-{n}"), "u1"))).collect();
    becomes(&address, in_flight, 5.0);
    becomes(&address, "ovnkube_node_cni_connections", 5.0);
    (0..4).for_each(|n| server.pod(&format!("cart-{n}"), "u1", Some(&annotation(5))));
    adds.iter_mut().take(4).for_each(|add| assert_eq!(answer(add).status(), 200));
    // The last one's caller gives up.
    adds.truncate(4);
    becomes(&address, in_flight, 0.0);
    let page = scrape(&address);
    for (outcome, count) in [("answered", 4.0), ("hung-up", 1.0), ("refused", 0.0)] {
        assert_eq!(
            page.value(&format!(
                r#"ovnkube_node_cni_annotation_wait_seconds_count{{outcome="{outcome}"}}"#
            )),
            Some(count)
        );
    }
    assert!(page.value("ovnkube_node_ready_duration_seconds").unwrap() > 0.0);
}

#[test]
fn what_plugins_report_is_counted_and_what_is_refused_too() {
    let (server, address) = start();
    let stages = json!([{"stage": "veth", "start": 1.0, "end": 3.5}, {"stage": "of_another_version", "start": 3.5, "end": 4.0}]);
    let failed = json!({
        "command": "ADD", "elapsedTime": 0.004, "hasErr": true, "code": 103, "message": "no", "pod": "shop/cart-0",
        "stages": stages, "failedStage": "veth", "rollback": "clean",
    });
    assert_eq!(server.ask("/metrics", &failed).status(), 200);
    assert_eq!(
        server
            .ask("/metrics", &json!({"command": "DEL", "elapsedTime": 1.5, "hasErr": false}))
            .status(),
        200
    );
    assert_eq!(server.ask("/", &verb("NONSENSE", "cart-0", "")).status(), 400);
    let page = scrape(&address);
    for (sample, value) in [
        (r#"ovnkube_node_cni_request_duration_seconds_count{command="ADD",err="true"}"#, 1.0),
        (r#"ovnkube_node_cni_request_duration_seconds_sum{command="DEL",err="false"}"#, 1.5),
        (r#"ovnkube_node_cni_stage_duration_seconds_bucket{stage="veth",le="0.004"}"#, 1.0),
        (r#"ovnkube_node_cni_errors_total{code="103",command="ADD",stage="veth"}"#, 1.0),
        (r#"ovnkube_node_cni_rollbacks_total{outcome="clean"}"#, 1.0),
        (r#"ovnkube_node_cni_requests_refused_total{code="4"}"#, 1.0),
    ] {
        assert_eq!(page.value(sample), Some(value), "{sample}");
    }
    assert!(!page.text.contains("shop") && !page.text.contains("NONSENSE"), "{}", page.text);
}

/// Lines were lost in silence on a full disk, where the log itself cannot say so.
#[test]
fn lines_that_a_full_disk_took_from_the_log_were_not_counted() {
    let (server, address) = start();
    let lost = "ovnkube_node_log_lines_lost_total";
    assert_eq!(scrape(&address).value(lost), Some(0.0));
    // Every write to /dev/full fails with ENOSPC. The log is opened anew, as after logrotate.
    let log = server.directory.join("log");
    fs::rename(&log, server.directory.join("log.kept")).unwrap();
    symlink("/dev/full", &log).unwrap();
    server.signal(Signal::SIGHUP);
    eventually("what cannot be written is counted", || {
        // A refusal is a line in the log.
        server.ask("/", &verb("NONSENSE", "cart-0", ""));
        match scrape(&address).value(lost) {
            Some(count) if count > 0.0 => Ok(()),
            count => Err(count),
        }
    });
}

/// A plugin does not wait for an answer to its report: it exits, which closes the connection.
#[test]
fn a_report_is_counted_though_its_sender_has_left() {
    let (server, address) = start();
    let report = json!({"command": "DEL", "elapsedTime": 0.5, "hasErr": false});
    (0..300).for_each(|_| drop(server.send("/metrics", &report)));
    eventually("all reports are counted", || {
        let counted = scrape(&address)
            .value(r#"ovnkube_node_cni_request_duration_seconds_count{command="DEL",err="false"}"#);
        if counted == Some(300.0) { Ok(()) } else { Err(counted) }
    });
}

#[test]
fn every_scrape_of_a_busy_server_is_well_formed_and_counters_never_fall() {
    let (server, address) = start();
    (0..8).for_each(|n| server.pod(&format!("cart-{n}"), "u1", Some(&annotation(n + 1))));
    thread::scope(|scope| {
        let busy: Vec<_> = (0..4)
            .map(|thread| {
                let server = &server;
                scope.spawn(move || {
                    (0..50).for_each(|n| {
                        assert_eq!(
                            server
                                .ask("/", &add(&format!("cart-{}", (n + thread) % 8), "u1"))
                                .status(),
                            200
                        )
                    });
                })
            })
            .collect();
        let mut before = BTreeMap::new();
        while !busy.iter().all(|thread| thread.is_finished()) {
            let page = scrape(&address);
            let counters = page.counters();
            for (sample, value) in &before {
                assert!(
                    counters.get(sample).is_some_and(|now| now >= value),
                    "{sample} fell below {value}"
                );
            }
            before = counters;
        }
    });
    let page = scrape(&address);
    assert_eq!(
        page.value(r#"ovnkube_node_cni_annotation_wait_seconds_count{outcome="answered"}"#),
        Some(200.0)
    );
}

#[test]
fn upstreams_names_are_there_with_their_labels() {
    let (_server, address) = start();
    let page = scrape(&address);
    for (family, labels) in [
        ("ovnkube_node_cni_request_duration_seconds", &["command", "err", "le"][..]),
        (
            "ovnkube_node_build_info",
            &["branch", "build_date", "build_user", "goversion", "revision", "version"],
        ),
        ("ovnkube_node_ready_duration_seconds", &[]),
        ("ovnkube_node_logfile_size_bytes", &["logfile_name"]),
        ("ovnkube_node_nodeport_enabled", &[]),
        ("ovs_vswitchd_interface_up_wait_seconds_total", &[]),
        ("process_resident_memory_bytes", &[]),
        ("process_start_time_seconds", &[]),
    ] {
        let expected: BTreeSet<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        assert_eq!(page.labels(family), Some(expected), "{family}");
    }
    let buckets = page.values("ovnkube_node_cni_request_duration_seconds", "le");
    let upstream: BTreeSet<String> =
        (0..15).map(|k| (0.1 * f64::from(1 << k)).to_string()).chain(["+Inf".to_owned()]).collect();
    assert_eq!(buckets, upstream);
}

#[test]
fn whoever_asks_is_answered_from_the_first_moment_with_what_is_waited_for() {
    let mut server = Server::spawn_without_database(&["--metrics-bind-address", "127.0.0.1:0"]);
    let address = address(&server);
    assert_eq!(get(&address, "/healthz"), (200, "ok\n".to_owned()));
    let (status, list) = get(&address, "/readyz");
    assert!(status == 503 && list.contains("[-]open-vswitch not ready: "), "{status} {list}");
    assert_eq!(
        scrape(&address).value(r#"ovnkube_node_condition_met{condition="open-vswitch"}"#),
        Some(0.0)
    );

    server.start_database();
    server.ready();
    eventually("the server is ready", || {
        Some(get(&address, "/readyz")).filter(|page| *page == (200, "ok\n".to_owned())).ok_or(())
    });
    let (_, list) = get(&address, "/readyz?verbose");
    assert!(list.lines().count() == 11 && !list.contains("[-]"), "{list}");
}

#[test]
fn a_connection_that_was_lost_is_missing_then_counted_and_readiness_comes_back() {
    let (mut server, address) = start();
    let reconnects = r#"ovnkube_node_reconnects_total{peer="open-vswitch"}"#;
    assert_eq!(scrape(&address).value(reconnects), Some(0.0));
    server.stop_database();
    becomes(&address, r#"ovnkube_node_condition_met{condition="open-vswitch"}"#, 0.0);
    assert_eq!((get(&address, "/readyz").0, get(&address, "/healthz").0), (503, 200));
    server.restart_database();
    becomes(&address, r#"ovnkube_node_condition_met{condition="open-vswitch"}"#, 1.0);
    becomes(&address, reconnects, 1.0);
    assert_eq!(get(&address, "/readyz").0, 200);
}

#[test]
fn hostile_callers_cost_others_little_time_and_the_server_little_memory() {
    let (server, address) = start();
    let answers = |what: &str| {
        let started = Instant::now();
        assert_eq!(get(&address, "/healthz").0, 200, "{what}");
        assert_eq!(server.ask("/", &verb("STATUS", "", "")).status(), 200, "{what}");
        assert!(started.elapsed() < Duration::from_secs(5), "{what}: {:?}", started.elapsed());
    };
    let memory = || scrape(&address).value("process_resident_memory_bytes").unwrap();
    answers("before");
    let before = memory();

    // The test itself needs a descriptor for each of a thousand connections.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let mut many: Vec<TcpStream> = (0..500).map(|_| connect(&address)).collect();
    answers("behind 500 silent connections");
    many.extend((0..500).map(|_| {
        let mut slow = connect(&address);
        let _ = slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\nX-A: ");
        slow
    }));
    answers("behind 500 more that are slow");
    drop(many);

    let mut huge = connect(&address);
    // The server may close the connection before the whole request is written.
    let _ = huge.write_all(
        format!("GET /metrics HTTP/1.1\r\nX-A: {}\r\n\r\n", "a".repeat(1 << 20)).as_bytes(),
    );
    let mut answer = Vec::new();
    let _ = huge.read_to_end(&mut answer);
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    for rubbish in [
        &b"\x16\x03\x01\x00\x01\x00\x00"[..],
        b"GET",
        b"\0\0\0\0\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
    ] {
        let _ = connect(&address).write_all(rubbish);
    }
    answers("after a huge head and rubbish");
    let grown = memory() - before;
    assert!(grown < 16e6, "{grown} bytes more");
}

#[test]
fn a_slow_caller_is_cut_off() {
    let (_server, address) = start();
    let started = Instant::now();
    let mut slow = connect(&address);
    slow.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest);
    let elapsed = started.elapsed();
    assert!(
        elapsed >= Duration::from_millis(4900) && elapsed < Duration::from_secs(8),
        "{elapsed:?}"
    );
}

#[test]
fn a_port_that_is_taken_costs_no_pod_its_network() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let server = Server::start_with(&["--metrics-bind-address", &address]);
    server.pod("cart-0", "u1", Some(&annotation(5)));
    assert_eq!(server.ask("/", &add("cart-0", "u1")).status(), 200);
    server.log_says(&format!("--metrics-bind-address {address}: cannot listen"));
    server.log_says("ss -ltnp");
    drop(taken);
    eventually("the server listens once it can", || TcpStream::connect(&address).map(drop));
}
