//! Ill-behaved callers: unknown paths, large requests, slow requests, many connections.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use serde_json::json;
use testkit::http::{self, Message};

use crate::lab::{SOON, Server, add, annotation, answer, verb};

fn raw(server: &Server, request: &[u8]) -> Message {
    let mut stream = server.connect();
    // The server may answer and close the connection before the whole request is written.
    let _ = stream.write_all(request);
    answer(&mut stream)
}

fn legitimate(server: &Server) {
    let started = Instant::now();
    assert_eq!(server.ask("/", &verb("STATUS", "", "")).status(), 200);
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
}

#[test]
fn what_is_not_there_is_said_to_be_not_there() {
    let server = Server::start();
    let unknown = raw(&server, &http::request("/nothing", b"{}"));
    assert_eq!((unknown.status(), unknown.json()["code"].as_u64()), (404, Some(5)));
    let get = raw(&server, b"GET / HTTP/1.1\r\nHost: d\r\n\r\n");
    assert_eq!(get.status(), 405);
    assert_eq!(get.header("allow"), Some("POST"));
    for body in ["", "[]", "{", r#"{"env":7}"#, r#"{"env":{},"config":"?"}"#] {
        assert_eq!(raw(&server, &http::request("/", body.as_bytes())).error().0, 400, "{body}");
    }
    assert_eq!(
        server
            .ask("/watch", &json!({"namespace": "Shop", "name": "a", "mac": "", "nad": ""}))
            .error()
            .1,
        4
    );
}

#[test]
fn a_body_of_more_than_a_mebibyte_is_refused_and_one_of_that_size_is_read() {
    let server = Server::start();
    let request = br#"{"env":{"CNI_COMMAND":"GC"}}"#;
    let body = |bytes: usize| [request.as_slice(), &vec![b' '; bytes - request.len()]].concat();
    assert_eq!(raw(&server, &http::request("/", &body(1024 * 1024))).status(), 200);
    assert_eq!(raw(&server, &http::request("/", &body(1024 * 1024 + 1))).status(), 413);
    let chunked = [
        b"POST / HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n".to_vec(),
        body(0x20_0000),
        b"\r\n0\r\n\r\n".to_vec(),
    ];
    assert_eq!(raw(&server, &chunked.concat()).status(), 413);
    legitimate(&server);
}

#[test]
fn slow_callers_are_cut_off_and_hinder_nobody() {
    let server = Server::start();
    let begin = |bytes: &[u8]| {
        let mut stream = server.connect();
        stream.write_all(bytes).unwrap();
        stream
    };
    let started = Instant::now();
    let mut silent = begin(b"");
    let mut slow_head = begin(b"POST / HTTP/1.1\r\nHost: d\r\n");
    let mut slow_body = begin(b"POST / HTTP/1.1\r\nHost: d\r\nContent-Length: 100\r\n\r\n{");
    legitimate(&server);

    assert_eq!(answer(&mut slow_body).error().0, 408);
    for stream in [&mut silent, &mut slow_head] {
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("the end of the connection");
    }
    let elapsed = started.elapsed();
    assert!(
        elapsed >= Duration::from_millis(4900) && elapsed < Duration::from_secs(8),
        "{elapsed:?}"
    );
}

#[test]
fn hundreds_of_idle_connections_hinder_nobody() {
    let server = Server::start();
    let idle: Vec<UnixStream> = (0..300).map(|_| server.connect()).collect();
    legitimate(&server);
    server.pod("cart-0", "u1", Some(&annotation(5)));
    assert_eq!(server.ask("/", &add("cart-0", "u1")).status(), 200);
    drop(idle);
}

#[test]
fn a_connection_serves_one_request_after_another() {
    let server = Server::start();
    let mut stream = server.connect();
    for _ in 0..3 {
        stream
            .write_all(&http::request("/", verb("STATUS", "", "").to_string().as_bytes()))
            .unwrap();
        assert_eq!(answer(&mut stream).status(), 200);
    }
}

#[test]
fn hostile_text_reaches_the_log_as_one_harmless_line() {
    let server = Server::start();
    let mut request = add("cart-0", "u1");
    request["env"]["CNI_CONTAINERID"] =
        json!("x\n2026-01-01T00:00:00.000Z|00001|add|INFO|\u{1b}[2Jforged");
    assert_eq!(server.ask("/", &request).error().0, 400);
    server.log_says("refused code=4");
    assert!(
        !server
            .log()
            .lines()
            .any(|line| line.starts_with("2026-01-01T00:00:00.000Z") || line.contains('\u{1b}')),
        "{}",
        server.log()
    );
}
