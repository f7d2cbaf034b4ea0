//! `POST /port`: the ports that the server writes for plugins, and those that it leaves to them, on
//! the rows of a real database.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use contract::{
    bandwidth::{EGRESS_ANNOTATION, INGRESS_ANNOTATION},
    external_ids::{IFACE_ID, OVN_INSTALLED, SANDBOX},
    wire::PORT_PATH,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::{
    Database, Node, NodeServer, Pod, Port, eventually, http, plugin::new_sandbox, program,
};

/// Limit for a message of the server.
const PATIENCE: Duration = Duration::from_secs(10);
/// The last chunk of a chunked response (RFC 9112, section 7.1).
const AFTER_THE_LAST: &str = "0\r\n\r\n";

/// The annotation of every pod here.
const NETWORK: &str =
    r#"{"default":{"mac_address":"0a:58:0a:f4:00:07","ip_addresses":["10.244.0.7/24"]}}"#;

/// UID of every pod here.
const UID: &str = "4d3b-1";

/// A node whose bridge already has a port.
struct Ready {
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
        let first = self.port("first", "first");
        let mut news = eventually("the server writes ports", PATIENCE, || {
            let mut news = self.ask(&first);
            if news.until_any(&["\"written\"", AFTER_THE_LAST]).contains("written") {
                Ok(news)
            } else {
                Err("not yet".to_owned())
            }
        });
        self.database.vsctl(&["del-port", "br-int", "first"]);
        news.until(AFTER_THE_LAST);
    }

    /// The request for port `name` of a pod that the server knows by now.
    #[track_caller]
    fn port(&self, name: &str, pod: &str) -> Value {
        self.port_of(name, pod, Pod::named(pod))
    }

    #[track_caller]
    fn port_of(&self, name: &str, pod: &str, manifest: Pod) -> Value {
        self.server.put(&manifest.network(NETWORK));
        // The plugin asks for a port after the answer to its ADD.
        let sandbox = new_sandbox();
        let args = format!("K8S_POD_NAMESPACE=shop;K8S_POD_NAME={pod};K8S_POD_UID={UID}");
        let env = json!({"CNI_COMMAND": "ADD", "CNI_CONTAINERID": sandbox, "CNI_IFNAME": "eth0", "CNI_ARGS": args});
        let config = STANDARD.encode(self.node.conf().to_string());
        let (answer, _) = self.server.ask(&json!({"env": env, "config": config}));
        assert_eq!(answer.status(), 200, "{}", answer.text());
        json!({"namespace": "shop", "name": pod, "uid": UID, "nad": "default", "sandbox": sandbox, "ifName": "eth0",
            "hostLink": name, "mac": "0a:58:0a:f4:00:07", "addresses": ["10.244.0.7/24"]})
    }

    fn ask(&self, request: &Value) -> News {
        let body = request.to_string();
        let mut stream =
            UnixStream::connect(self.node.server_socket()).expect("the server listens");
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
            let length = self
                .stream
                .read(&mut bytes)
                .unwrap_or_else(|error| panic!("{error} after {}", self.heard));
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

#[test]
fn a_port_is_written_and_followed_until_it_works() {
    let ready = Ready::new();
    let limited = Pod::named("cart-0")
        .annotation(EGRESS_ANNOTATION, "10M")
        .annotation(INGRESS_ANNOTATION, "7M");
    let mut news = ready.ask(&ready.port_of("new", "cart-0", limited));
    assert!(!news.until("\"written\"").contains("numbered"));
    assert_eq!(ready.database.ports(), ["new", "older"]);
    assert_eq!(
        ready.database.vsctl(&["get", "Interface", "new", "external_ids:iface-id"]).trim(),
        "shop_cart-0"
    );
    assert_eq!(
        ready.database.vsctl(&["get", "Interface", "new", "ingress_policing_rate"]).trim(),
        "10000"
    );
    assert_eq!(ready.database.column("QoS", "other_config"), ["max-rate=7000000"]);

    ready.database.vsctl(&["set", "Interface", "new", "ofport=7"]);
    assert!(!news.until("\"numbered\"").contains("installed"));
    ready.database.vsctl(&[
        "set",
        "Interface",
        "new",
        &format!("external_ids:{OVN_INSTALLED}=true"),
    ]);
    news.until("\"installed\"");
    news.until(AFTER_THE_LAST);
}

#[test]
fn ports_that_wait_at_the_same_moment_share_a_transaction() {
    let ready = Ready::new();
    let ports: Vec<Value> = (0..20)
        .map(|number| ready.port(&format!("new{number}"), &format!("cart-{number}")))
        .collect();
    // While ovsdb-server is stopped, the first transaction is pending, and all later ports wait for
    // it.
    ready.database.process.pause();
    let mut all: Vec<News> = ports
        .iter()
        .map(|port| {
            let mut news = ready.ask(port);
            news.until("HTTP/1.1 200 OK\r\n");
            news
        })
        .collect();
    ready.database.process.signal(Signal::SIGCONT);
    for news in &mut all {
        news.until("\"written\"");
    }
    let log =
        program::output(program::command("ovsdb-tool").arg("show-log").arg(ready.database.file()));
    let written =
        log.lines().filter_map(|line| line.split_once("ovnkube: write ")?.1.split(' ').next());
    // Without the transaction of [`Ready::wait`].
    let written: Vec<&str> = written.skip(1).collect();
    // The first port; the ports that the server had queued when that transaction was done; and
    // those that it had received but not queued.
    assert!(written.len() <= 3, "{written:?}");
    assert_eq!(
        written.iter().map(|count| count.parse::<u32>().expect("a number of ports")).sum::<u32>(),
        20
    );
}

#[test]
fn what_is_in_the_way_stays_and_nothing_is_said() {
    let ready = Ready::new();
    let before = ready.database.content();
    for request in [ready.port("older", "cart-0"), ready.port("new", "older")] {
        ready.ask(&request).are_over();
        assert_eq!(ready.database.content(), before, "{request}");
    }
    // A request for another port is still served.
    let mut news = ready.ask(&ready.port("new", "cart-0"));
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
    ready.ask(&ready.port("next", "cart-1")).are_over();
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
        let mut news = ready.ask(&ready.port(name, name));
        news.until("\"written\"");
        ready.database.vsctl(&command.split(' ').collect::<Vec<_>>());
        let heard = news.until(AFTER_THE_LAST);
        assert!(!heard.contains("numbered"), "{heard}");
    }
    // The server does not wait for these ports.
    ready.ask(&ready.port("next", "next")).until("\"written\"");
}

#[test]
fn without_the_bridge_nothing_is_written() {
    let ready = Ready::new();
    ready.database.vsctl(&["del-br", "br-int"]);
    ready.ask(&ready.port("new", "cart-0")).are_over();
    assert_eq!(ready.database.column("Interface", "name"), [""; 0]);
}

#[test]
fn a_request_that_is_no_port_is_refused() {
    let ready = Ready::new();
    for request in
        [json!({}), json!({"name": "new"}), json!({"name": 7, "external_ids": {}}), json!([])]
    {
        assert!(ready.ask(&request).until("\"code\"").starts_with("HTTP/1.1 400 "), "{request}");
    }
    // An older plugin sends the rows, and writes them itself after a refusal.
    for external_ids in [json!({}), json!({SANDBOX: new_sandbox(), IFACE_ID: "shop_cart-0"})] {
        let request = json!({"name": "new", "external_ids": external_ids});
        assert!(ready.ask(&request).until("\"code\"").starts_with("HTTP/1.1 400 "), "{request}");
    }
    assert_eq!(ready.database.ports(), ["older"]);
}

#[test]
fn a_port_of_another_mac_than_the_annotations_is_refused_and_not_written() {
    let ready = Ready::new();
    let mut request = ready.port("new", "cart-0");
    request["mac"] = json!("0a:58:0a:f4:00:08");
    let mut news = ready.ask(&request);
    let heard = news.until("\"details\"");
    assert!(heard.starts_with("HTTP/1.1 409 "), "{heard}");
    for word in ["pod shop/cart-0", "0a:58:0a:f4:00:07", "0a:58:0a:f4:00:08"] {
        assert!(heard.contains(word), "{heard}");
    }
    assert_eq!(ready.database.ports(), ["older"]);
    ready.server.wait_for_line("0a:58:0a:f4:00:08");
}
