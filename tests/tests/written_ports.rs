//! `POST /port`: the ports that the server writes for plugins, and those that it leaves to them, on the rows
//! of a real database.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use contract::{
    external_ids::{IFACE_ID, IP_ADDRESS, OVN_INSTALLED, SANDBOX},
    wire::PORT_PATH,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::{Database, Node, NodeServer, Port, eventually, http, plugin::new_sandbox, program};

/// Limit for a message of the server.
const PATIENCE: Duration = Duration::from_secs(10);
/// The last chunk of a chunked response (RFC 9112, section 7.1).
const AFTER_THE_LAST: &str = "0\r\n\r\n";

/// A node whose bridge already has a port.
struct Ready {
    #[expect(dead_code, reason = "ends the server when it is dropped")]
    server: NodeServer,
    database: Database,
    node: Node,
}

impl Ready {
    fn new() -> Self {
        let node = Node::new();
        let database = node.start_database_with_bridge();
        Port::of(&new_sandbox(), "eth0", "older").put(&database);
        database.vsctl(&["set", "Interface", "older", "external_ids:iface-id=shop_older"]);
        let ready = Self { server: node.start_server(), database, node };
        ready.wait();
        ready
    }

    /// Waits until the server writes ports: it listens before it has read the bridge.
    fn wait(&self) {
        let mut news = eventually("the server writes ports", PATIENCE, || {
            let mut news = self.ask(&port("first", "shop_first"));
            if news.until_any(&["\"written\"", AFTER_THE_LAST]).contains("written") {
                Ok(news)
            } else {
                Err("not yet".to_owned())
            }
        });
        self.database.vsctl(&["del-port", "br-int", "first"]);
        news.until(AFTER_THE_LAST);
    }

    fn ask(&self, request: &Value) -> News {
        let body = request.to_string();
        let mut stream = UnixStream::connect(self.node.server_socket()).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        stream.write_all(&http::request(PORT_PATH, body.as_bytes())).expect("the server reads");
        News { stream, heard: String::new() }
    }
}

/// The server's messages on a port.
struct News {
    stream: UnixStream,
    heard: String,
}

impl News {
    /// Reads until this text has arrived. Returns everything that was read so far.
    #[track_caller]
    fn until(&mut self, wanted: &str) -> &str {
        self.until_any(&[wanted])
    }

    #[track_caller]
    fn until_any(&mut self, wanted: &[&str]) -> &str {
        while !wanted.iter().any(|wanted| self.heard.contains(wanted)) {
            let mut bytes = [0; 512];
            let length =
                self.stream.read(&mut bytes).unwrap_or_else(|error| panic!("{error} after {}", self.heard));
            assert!(length > 0, "it hung up after {}", self.heard);
            self.heard.push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
        &self.heard
    }

    #[track_caller]
    fn are_over(&mut self) {
        let heard = self.until(AFTER_THE_LAST);
        assert!(heard.starts_with("HTTP/1.1 200 OK\r\n") && !heard.contains('"'), "{heard}");
    }
}

fn port(name: &str, iface_id: &str) -> Value {
    json!({"name": name, "address": "10.244.0.7/24", "external_ids": {
        SANDBOX: new_sandbox(), IFACE_ID: iface_id, IP_ADDRESS: "10.244.0.7/24"}})
}

#[test]
fn a_port_is_written_and_followed_until_it_works() {
    let ready = Ready::new();
    let mut request = port("new", "shop_cart-0");
    request["ingress_policing"] = json!([10_000, 1000]);
    request["qos"] = json!({"type": "linux-htb", "other_config": {"max-rate": "7000000"}, "external_ids": {SANDBOX: "c0ffee"}});
    let mut news = ready.ask(&request);
    assert!(!news.until("\"written\"").contains("numbered"));
    assert_eq!(ready.database.ports(), ["new", "older"]);
    assert_eq!(
        ready.database.vsctl(&["get", "Interface", "new", "external_ids:iface-id"]).trim(),
        "shop_cart-0"
    );
    assert_eq!(ready.database.vsctl(&["get", "Interface", "new", "ingress_policing_rate"]).trim(), "10000");
    assert_eq!(ready.database.column("QoS", "other_config"), ["max-rate=7000000"]);

    ready.database.vsctl(&["set", "Interface", "new", "ofport=7"]);
    assert!(!news.until("\"numbered\"").contains("installed"));
    ready.database.vsctl(&["set", "Interface", "new", &format!("external_ids:{OVN_INSTALLED}=true")]);
    news.until("\"installed\"");
    news.until(AFTER_THE_LAST);
}

#[test]
fn ports_that_wait_at_the_same_moment_share_a_transaction() {
    let ready = Ready::new();
    // While ovsdb-server is stopped, the first transaction is pending, and all later ports wait for it.
    ready.database.process.signal(Signal::SIGSTOP);
    let mut all: Vec<News> = (0..20)
        .map(|number| {
            let mut news = ready.ask(&port(&format!("new{number}"), &format!("shop_cart-{number}")));
            news.until("HTTP/1.1 200 OK\r\n");
            news
        })
        .collect();
    ready.database.process.signal(Signal::SIGCONT);
    for news in &mut all {
        news.until("\"written\"");
    }
    let log = program::output(program::command("ovsdb-tool").arg("show-log").arg(ready.database.file()));
    let written = log.lines().filter_map(|line| line.split_once("ovnkube: write ")?.1.split(' ').next());
    // Without the transaction of [`Ready::wait`].
    let written: Vec<&str> = written.skip(1).collect();
    // The first port; the ports that the server had queued when that transaction was done; and those that it
    // had received but not queued.
    assert!(written.len() <= 3, "{written:?}");
    assert_eq!(written.iter().map(|count| count.parse::<u32>().expect("a number of ports")).sum::<u32>(), 20);
}

#[test]
fn what_is_in_the_way_stays_and_nothing_is_said() {
    let ready = Ready::new();
    let before = ready.database.content();
    for request in [port("older", "shop_cart-0"), port("new", "shop_older")] {
        ready.ask(&request).are_over();
        assert_eq!(ready.database.content(), before, "{request}");
    }
    // A request for another port is still served.
    let mut news = ready.ask(&port("new", "shop_cart-0"));
    news.until("\"written\"");
    // A working port that has the address: the server detects that, too.
    ready.database.vsctl(&[
        "set",
        "Interface",
        "new",
        "ofport=7",
        &format!("external_ids:{OVN_INSTALLED}=true"),
    ]);
    news.until("\"installed\"");
    ready.ask(&port("next", "shop_cart-1")).are_over();
    assert_eq!(ready.database.ports(), ["new", "older"]);
}

#[test]
fn a_port_that_cannot_work_any_more_is_left_to_its_plugin() {
    let ready = Ready::new();
    for (name, command) in [
        ("gone", "del-port br-int gone"),
        ("broken", "set Interface broken ofport=-1"),
        ("taken", "set Interface taken external_ids:iface-id=shop_other"),
    ] {
        let mut news = ready.ask(&port(name, &format!("shop_{name}")));
        news.until("\"written\"");
        ready.database.vsctl(&command.split(' ').collect::<Vec<_>>());
        let heard = news.until(AFTER_THE_LAST);
        assert!(!heard.contains("numbered"), "{heard}");
    }
    // The server does not wait for these ports.
    ready.ask(&port("next", "shop_next")).until("\"written\"");
}

#[test]
fn without_the_bridge_nothing_is_written() {
    let ready = Ready::new();
    ready.database.vsctl(&["del-br", "br-int"]);
    ready.ask(&port("new", "shop_cart-0")).are_over();
    assert_eq!(ready.database.column("Interface", "name"), [""; 0]);
}

#[test]
fn a_request_that_is_no_port_is_refused() {
    let ready = Ready::new();
    for request in [json!({}), json!({"name": "new"}), json!({"name": 7, "external_ids": {}}), json!([])] {
        assert!(ready.ask(&request).until("\"code\"").starts_with("HTTP/1.1 400 "), "{request}");
    }
    // A port without `iface-id`.
    ready.ask(&json!({"name": "new", "external_ids": {}})).are_over();
    assert_eq!(ready.database.ports(), ["older"]);
}
