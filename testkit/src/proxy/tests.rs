use std::{
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr},
    os::unix::net::{UnixListener, UnixStream},
};

use super::*;
use crate::Scratch;

/// A server that answers each line with `reply to LINE`, and the proxy in front of it.
fn line() -> (Proxy, Scratch) {
    let dir = Scratch::new();
    let behind = dir.join("server");
    let listener = UnixListener::bind(&behind).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                for line in
                    BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok)
                {
                    // In one piece, because a fault happens to blocks.
                    let _ = stream.write_all(format!("reply to {line}\n").as_bytes());
                }
            });
        }
    });
    (Proxy::start(dir.join("proxy"), behind).unwrap(), dir)
}

/// The answers to `requests`, until there is one to each or the connection ends.
fn ask(proxy: &Proxy, requests: &[&str]) -> String {
    let Address::Unix(socket) = proxy.address() else { panic!("{proxy:?}") };
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut said = Vec::new();
    for request in requests {
        if writeln!(stream, "{request}").is_err() {
            break;
        }
        let mut byte = [0];
        while matches!(stream.read(&mut byte), Ok(1)) {
            said.push(byte[0]);
            if byte == *b"\n" {
                break;
            }
        }
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// What is answered, and how often the fault has happened.
fn told(fault: Fault, requests: &[&str]) -> (String, usize) {
    let (proxy, _dir) = line();
    proxy.set(fault);
    (ask(&proxy, requests), proxy.struck())
}

#[test]
fn it_passes_on_what_both_say() {
    assert_eq!(told(Fault::None, &["a", "b"]), ("reply to a\nreply to b\n".to_owned(), 0));
}

#[test]
fn it_passes_on_from_a_unix_socket_to_tcp_and_back() {
    let (proxy, dir) = line();
    let over_tcp =
        Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), proxy.address().clone()).unwrap();
    let front = Proxy::start(dir.join("front"), over_tcp.address().clone()).unwrap();
    over_tcp.set(Fault::LoseReplyTo("commit".to_owned()));
    assert_eq!(ask(&front, &["a", "commit", "b"]), "reply to a\n");
    assert_eq!((front.struck(), over_tcp.struck(), proxy.connections()), (0, 1, 1));
}

#[test]
fn a_delay_is_one_of_time() {
    let began = Instant::now();
    let (said, struck) = told(Fault::Delay(Duration::from_millis(200)), &["a"]);
    assert_eq!((said.as_str(), struck), ("reply to a\n", 1));
    assert!(began.elapsed() >= Duration::from_millis(200));
}

#[test]
fn one_reply_is_lost_and_the_connection_with_it() {
    let (proxy, _dir) = line();
    proxy.set(Fault::LoseReplyTo("commit".to_owned()));
    assert_eq!(ask(&proxy, &["a", "commit", "b"]), "reply to a\n");
    assert_eq!(ask(&proxy, &["commit"]), "reply to commit\n");
    assert_eq!((proxy.struck(), proxy.connections()), (1, 2));
}

#[test]
fn the_reply_to_a_request_with_an_id_is_the_one_that_repeats_it() {
    let requests = r#"{"id":1,"method":"monitor","params":[]}{"method":"transact","params":["insert"],"id":12}"#;
    assert_eq!(reply_to(requests, "insert"), Reply::With("\"id\":12".to_owned()));
    assert_eq!(reply_to("POST / HTTP/1.1\r\n\r\n{}", "POST"), Reply::Any);
}

#[derive(Debug, Default)]
struct Seen(Vec<String>);

impl Observer for Seen {
    fn see(&mut self, connection: usize, sender: Sender, message: &serde_json::Value) {
        self.0.push(format!("{connection} {sender:?} {message}"));
    }
}

#[test]
fn an_observer_sees_each_message_once_and_whole_however_it_is_cut_into_blocks() {
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let mut requests = Direction::new(Some(seen.clone()), 7, Sender::Client);
    for block in [r#"{"id":1}{"id"#, r#"":"a"#, r#"}{"}"#, "\n"] {
        requests.pass(block.as_bytes());
    }
    assert_eq!(lock(&seen).0, [r#"7 Client {"id":1}"#, r#"7 Client {"id":"a}{"}"#]);
}

#[test]
fn an_observer_sees_what_is_said_on_connections_that_begin_under_it() {
    let (proxy, _dir) = line();
    ask(&proxy, &["[1]"]);
    let seen: Arc<Mutex<Seen>> = Arc::default();
    proxy.observe(seen.clone());
    assert_eq!(ask(&proxy, &["[2]"]), "reply to [2]\n");
    assert_eq!(lock(&seen).0, ["1 Client [2]"]);
}

#[test]
fn a_connection_to_a_server_that_is_away_ends() {
    let dir = Scratch::new();
    let proxy = Proxy::start(dir.join("proxy"), dir.join("server")).unwrap();
    assert_eq!(ask(&proxy, &["a"]), "");
}

#[test]
fn what_the_server_says_can_be_cut_corrupted_and_replaced() {
    assert_eq!(told(Fault::CutAfter(4), &["a"]), ("repl".to_owned(), 1));
    let (said, _) = told(Fault::Corrupt, &["a"]);
    assert!(said.contains('\u{fffd}') && said.len() > 4, "{said:?}");
    assert_eq!(told(Fault::Say("nonsense".to_owned()), &["a"]), ("nonsense".to_owned(), 1));
    assert_eq!(told(Fault::HangUp, &["a"]).0, "");
}
