//! ADD with the powers of an ordinary user, i.e. up to the moment when the pod's network is known.
//! Nothing may have been created by then.

use std::{
    fs,
    os::unix::net::UnixListener,
    thread,
    time::{Duration, Instant},
};

use contract::error::Code;
use serde_json::{Value, json};
use testkit::{
    Answer, Database, Namespace, Node, NodeServer, Plugin, Pod, ScriptedServer, eventually,
    plugin::POD_ARGS, pod::ANNOTATION,
};

/// Limit for "at once", on a machine that has other work.
const AT_ONCE: Duration = Duration::from_millis(900);

/// A node with everything except the pod's annotation.
struct Ready {
    namespace: Namespace,
    server: NodeServer,
    database: Database,
    node: Node,
}

impl Ready {
    fn new() -> Self {
        let node = Node::new();
        Self {
            namespace: Namespace::new(),
            server: node.start_server(),
            database: node.start_database_with_bridge(),
            node,
        }
    }

    /// An ADD with a deadline of so many seconds.
    fn add(&self, timeout_seconds: u64) -> Plugin<'_> {
        self.node
            .add(&self.namespace)
            .conf(&self.node.conf_with(json!({"timeoutSeconds": timeout_seconds})))
    }

    /// Waits until the server logs that the ADD waits for this.
    fn waiting_for(&self, what: &str) {
        self.server.wait_for_line(&format!("waiting missing=\"{what}"));
    }
}

#[test]
fn without_a_server_an_add_waits_for_a_restart_for_less_than_a_second_and_then_names_the_socket() {
    let (node, namespace) = (Node::new(), Namespace::new());
    let _database = node.start_database_with_bridge();
    // Row 1 of the fault matrix allows one second. A busy machine adds to some of the calls, not to
    // all.
    let quickest = (0..5).map(|_| {
        let outcome = node.add(&namespace).run();
        let message = outcome.refused(Code::TryAgain);
        assert!(message.contains(node.server_socket().to_str().unwrap()), "{message}");
        outcome.duration
    });
    let mut quickest = quickest.inspect(|duration| eprintln!("{duration:?}"));
    assert!(
        quickest.any(|duration| duration < Duration::from_secs(1)),
        "each took more than a second"
    );
}

#[test]
fn a_socket_that_a_dead_server_left_is_no_server() {
    let (node, namespace) = (Node::new(), Namespace::new());
    let _database = node.start_database_with_bridge();
    node.make_dir("cni");
    drop(UnixListener::bind(node.server_socket()).unwrap());
    let outcome = node.add(&namespace).run();
    let message = outcome.refused(Code::TryAgain);
    assert!(message.contains(node.server_socket().to_str().unwrap()), "{message}");
    assert!(outcome.duration < Duration::from_millis(1500), "{outcome:?}");
}

#[test]
fn a_server_that_comes_back_in_time_is_asked() {
    let (node, namespace) = (Node::new(), Namespace::new());
    let _database = node.start_database_with_bridge();
    let add = node.add(&namespace).start();
    eventually("the plugin's first line", Duration::from_secs(5), || {
        match node.log_lines("log/plugin.log") {
            lines if lines.is_empty() => Err("no line"),
            _ => Ok(()),
        }
    });
    let server = ScriptedServer::start(&node.server_socket(), Answer::upstream_error("here again"));
    let message = add.end().refused(Code::TryAgain);
    assert!(message.contains("here again"), "{message}");
    assert_eq!(server.request().path(), "/");
}

#[test]
fn a_namespace_that_is_none_is_refused_before_anybody_is_asked() {
    let node = Node::new();
    let database = node.start_database_with_bridge();
    let server = ScriptedServer::start(&node.server_socket(), Answer::silence());
    let (missing, file, link, own) =
        (node.path("missing"), node.path("file"), node.path("link"), "/proc/self/ns/net");
    fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink(&missing, &link).unwrap();
    let before = database.content();
    for path in [
        &missing.display().to_string(),
        &file.display().to_string(),
        &link.display().to_string(),
        "/",
        "/dev/null",
        own,
    ] {
        let message = node.call("ADD").with("CNI_NETNS", path).run().refused(Code::InvalidNetns);
        assert!(message.contains(path), "{path}: {message}");
    }
    assert_eq!(database.content(), before);
    assert!(server.requests().iter().all(|request| request.path() == "/metrics"));
}

#[test]
fn the_own_namespace_is_named_as_such() {
    let message = Node::new()
        .call("ADD")
        .with("CNI_NETNS", "/proc/self/ns/net")
        .run()
        .refused(Code::InvalidNetns);
    assert!(message.contains("own namespace"), "{message}");
}

#[test]
fn a_namespace_that_cannot_be_entered_fails_in_the_stage_netns_and_not_in_that_of_the_database() {
    let node = Node::new();
    let _database = node.start_database_with_bridge();
    let _server = ScriptedServer::start(&node.server_socket(), Answer::silence());
    // A namespace, but not a network namespace.
    let message =
        node.call("ADD").with("CNI_NETNS", "/proc/self/ns/uts").run().refused(Code::InvalidNetns);
    assert!(message.contains("stage netns: enter namespace /proc/self/ns/uts"), "{message}");
}

#[test]
fn a_malformed_annotation_fails_at_once_with_the_reason() {
    let ready = Ready::new();
    let network =
        |fields: &str| format!(r#"{{"default":{{"mac_address":"0a:58:0a:f4:01:05",{fields}}}}}"#);
    for (text, reason) in [
        ("{".to_owned(), "not the JSON"),
        (r#"{"default":7}"#.to_owned(), "not the JSON"),
        (
            r#"{"default":{"mac_address":"x","ip_addresses":["10.0.0.5/24"]}}"#.to_owned(),
            "mac_address \"x\"",
        ),
        (network(r#""ip_addresses":[]"#), "no address"),
        (network(r#""ip_addresses":["10.0.0.5"]"#), "ip_addresses \"10.0.0.5\""),
        (network(r#""ip_addresses":["10.0.0.5/24","10.0.0.6/24"]"#), "two of one family"),
        (network(r#""ip_addresses":["127.0.0.1/8"]"#), "cannot belong to a pod"),
        (
            network(r#""ip_addresses":["10.0.0.5/24"],"gateway_ips":["fd00::1"]"#),
            "no address of its family",
        ),
        (
            network(
                r#""ip_addresses":["10.0.0.5/24"],"routes":[{"dest":"0.0.0.0/0","nextHop":"10.0.0.1"}]"#,
            ),
            "default route",
        ),
        (network(r#""ip_addresses":["10.0.0.5/24"],"role":"king""#), "role \"king\""),
        (format!("{{\"x\":\"{}\"}}", "x".repeat(300_000)), "more than"),
    ] {
        ready.server.put(&Pod::cart().network(&text));
        // The server reads the file while the plugin starts. It may still answer with the
        // annotation before, which is malformed for another reason.
        let message = eventually("the annotation is seen", Duration::from_secs(5), || {
            let outcome = ready.add(3).run();
            let message = outcome.refused(Code::BadAnnotation);
            assert!(outcome.duration < AT_ONCE, "{outcome:?}");
            if message.contains(reason) {
                Ok(message)
            } else {
                Err(format!("{text:.100}: {message}"))
            }
        });
        assert!(message.contains("shop/cart-0"), "{message}");
    }
}

#[test]
fn the_rate_limits_are_checked_as_well() {
    for pod in [
        Pod::cart().network(ANNOTATION).annotation("kubernetes.io/ingress-bandwidth", "ten apples"),
        Pod::cart().network(ANNOTATION).annotation("kubernetes.io/egress-bandwidth", "1"),
    ] {
        let ready = Ready::new();
        ready.server.put(&pod);
        ready.add(3).run().refused(Code::BadAnnotation);
    }
}

/// Other programs use its short key, too.
#[test]
fn an_older_annotation_that_cannot_be_read_is_not_about_this_network() {
    let ready = Ready::new();
    ready.server.put(
        &Pod::cart()
            .annotation("ovn", r#"{"ip_address":"192.168.2.3","mac_address":"0a:00:00:00:00:01"}"#),
    );
    let outcome = ready.add(3).run();
    let message = outcome.refused(Code::TryAgain);
    assert!(
        message.contains("no network \"default\" in annotation k8s.ovn.org/pod-networks"),
        "{message}"
    );
}

#[test]
fn a_pod_that_nobody_knows_is_waited_for_until_the_deadline() {
    let ready = Ready::new();
    let outcome = ready.add(2).run();
    let message = outcome.refused(Code::TryAgain);
    assert!(message.contains("pod shop/cart-0 is not known"), "{message}");
    assert!(
        (Duration::from_secs(1)..Duration::from_secs(2)).contains(&outcome.duration),
        "{outcome:?}"
    );
}

#[test]
fn an_annotation_that_never_comes_fails_at_the_deadline_and_nothing_was_made() {
    let ready = Ready::new();
    let before = ready.database.content();
    ready.server.put(&Pod::cart().network(r#"{"other/net":{"mac_address":"0a:58:0a:f4:01:05"}}"#));
    let outcome = ready.add(3).run();
    let message = outcome.refused(Code::TryAgain);
    assert!(
        message.contains("shop/cart-0") && message.contains("k8s.ovn.org/pod-networks"),
        "{message}"
    );
    assert!(
        (Duration::from_secs(2)..Duration::from_secs(3)).contains(&outcome.duration),
        "{outcome:?}"
    );
    assert_eq!(ready.database.content(), before);
}

#[test]
fn an_annotation_that_comes_late_is_answered_at_once() {
    let ready = Ready::new();
    ready.server.put(&Pod::cart());
    let socket = ready.server.socket.clone();
    let config =
        json!({"cniVersion": "1.0.0", "name": "ovn-kubernetes", "type": "ovn-k8s-cni-overlay"});
    let asking = thread::spawn(move || {
        let env = json!({"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "a", "CNI_NETNS": "/n", "CNI_IFNAME": "eth0", "CNI_ARGS": POD_ARGS});
        let request = json!({"env": env, "config": base64(&config)});
        let (answer, _) = testkit::http::post(&socket, "/", request.to_string().as_bytes());
        (answer, Instant::now())
    });
    ready.waiting_for("the pod has no annotation");
    let written = Instant::now();
    ready.server.put(&Pod::cart().network(ANNOTATION));
    let (answer, answered) = asking.join().unwrap();
    assert_eq!(
        (answer.status(), answer.json()["PodIFInfo"]["MAC"].as_str()),
        (200, Some("ClgK9AEF"))
    );
    assert!(answered - written < Duration::from_millis(250), "{:?}", answered - written);
}

#[test]
fn an_add_goes_on_when_the_annotation_comes_late_and_undoes_what_the_kernel_refuses() {
    let ready = Ready::new();
    let before = ready.database.content();
    ready.server.put(&Pod::cart());
    let add = ready.add(10).start();
    ready.waiting_for("the pod has no annotation");
    ready.server.put(&Pod::cart().network(ANNOTATION));
    // An ordinary user may not change the machine's own network, so the veth fails.
    let message = add.end().refused(Code::Kernel);
    assert!(message.contains("stage veth"), "{message}");
    assert_eq!(ready.database.content(), before);
}

#[test]
fn a_pod_that_is_deleted_while_its_add_waits_is_an_unknown_container() {
    let ready = Ready::new();
    ready.server.put(&Pod::cart());
    let add = ready.add(20).start();
    ready.waiting_for("the pod has no annotation");
    ready.server.delete(&Pod::cart());
    let outcome = add.end();
    let message = outcome.refused(Code::UnknownContainer);
    assert!(message.contains("shop/cart-0") && message.contains("deleted"), "{message}");
    assert!(outcome.duration < Duration::from_secs(10), "{outcome:?}");
}

#[test]
fn a_pod_that_is_replaced_while_its_add_waits_is_an_unknown_container() {
    let ready = Ready::new();
    ready.server.put(&Pod::cart());
    let add = ready.add(20).start();
    ready.waiting_for("the pod has no annotation");
    ready.server.put(&Pod::cart().uid("4d3b-2").network(ANNOTATION));
    let outcome = add.end();
    let message = outcome.refused(Code::UnknownContainer);
    assert!(message.contains("replaced"), "{message}");
    assert!(outcome.duration < Duration::from_secs(10), "{outcome:?}");
}

#[test]
fn a_pod_of_another_uid_is_never_attached() {
    let ready = Ready::new();
    ready.server.put(&Pod::cart().uid("new").network(ANNOTATION));
    let message = ready
        .add(2)
        .with("CNI_ARGS", format!("{POD_ARGS};K8S_POD_UID=old"))
        .run()
        .refused(Code::UnknownContainer);
    assert!(message.contains("\"old\"") && message.contains("\"new\""), "{message}");
}

#[test]
fn a_server_that_lags_behind_is_given_time_to_learn_of_the_new_uid() {
    let ready = Ready::new();
    ready.server.put(&Pod::cart().uid("old").network(ANNOTATION));
    let add = ready.add(20).with("CNI_ARGS", format!("{POD_ARGS};K8S_POD_UID=new")).start();
    ready.waiting_for("the pod that is known has another UID");
    ready.server.put(&Pod::cart().uid("new").network(r#"{"default":{"mac_address":"x"}}"#));
    add.end().refused(Code::BadAnnotation);
}

#[test]
fn a_server_that_is_killed_while_an_add_waits_fails_it_at_once() {
    let mut ready = Ready::new();
    ready.server.put(&Pod::cart());
    let add = ready.add(20).start();
    ready.waiting_for("the pod has no annotation");
    ready.server.process.signal(nix::sys::signal::Signal::SIGKILL);
    ready.server.process.end();
    let outcome = add.end();
    outcome.refused(Code::TryAgain);
    assert!(outcome.duration < Duration::from_secs(10), "{outcome:?}");
}

#[test]
fn a_second_add_of_the_same_interface_is_refused_and_does_not_disturb_the_first() {
    let ready = Ready::new();
    ready.server.put(&Pod::cart());
    let first = ready.add(20).start();
    ready.waiting_for("the pod has no annotation");
    let message = ready.add(20).run().refused(Code::AlreadyAttached);
    assert!(message.contains("under way"), "{message}");
    ready.server.put(&Pod::cart().network("{"));
    first.end().refused(Code::BadAnnotation);
}

#[test]
fn a_del_ends_an_add_that_waits() {
    let ready = Ready::new();
    ready.server.put(&Pod::cart());
    let add = ready.add(20).start();
    ready.waiting_for("the pod has no annotation");
    let del = ready.node.call("DEL").in_namespace(&ready.namespace).run();
    del.success();
    let outcome = add.end();
    outcome.refused(Code::UnknownContainer);
    assert!(
        outcome.duration < Duration::from_secs(10) && del.duration < Duration::from_secs(5),
        "{outcome:?} {del:?}"
    );
}

#[test]
fn a_server_that_says_nothing_fails_at_the_deadline() {
    let (node, namespace) = (Node::new(), Namespace::new());
    let _database = node.start_database_with_bridge();
    let _server = ScriptedServer::start(&node.server_socket(), Answer::silence());
    let outcome = node.add(&namespace).conf(&node.conf_with(json!({"timeoutSeconds": 1}))).run();
    let message = outcome.refused(Code::TryAgain);
    assert!(message.contains("stage annotation"), "{message}");
    assert!(
        (Duration::from_secs(1)..Duration::from_secs(2)).contains(&outcome.duration),
        "{outcome:?}"
    );
}

#[test]
fn without_the_database_of_open_vswitch_an_add_fails_at_once_and_names_it() {
    let (node, namespace) = (Node::new(), Namespace::new());
    let server = node.start_server();
    server.put(&Pod::cart());
    let outcome = node.add(&namespace).run();
    let message = outcome.refused(Code::TryAgain);
    assert!(
        message.contains("stage ovsdb") && message.contains(node.ovsdb_socket().to_str().unwrap()),
        "{message}"
    );
    assert!(outcome.duration < AT_ONCE, "{outcome:?}");
}

#[test]
fn a_database_that_says_nothing_fails_at_the_deadline() {
    let (node, namespace) = (Node::new(), Namespace::new());
    let server = node.start_server();
    server.put(&Pod::cart().network(ANNOTATION));
    node.make_dir("ovs");
    let _silent = UnixListener::bind(node.ovsdb_socket()).unwrap();
    let outcome = node.add(&namespace).conf(&node.conf_with(json!({"timeoutSeconds": 1}))).run();
    let message = outcome.refused(Code::TryAgain);
    assert!(message.contains("stage ovsdb"), "{message}");
    assert!(
        (Duration::from_secs(1)..Duration::from_secs(2)).contains(&outcome.duration),
        "{outcome:?}"
    );
}

#[test]
fn without_br_int_an_add_fails_at_once_and_says_who_makes_it() {
    let (node, namespace) = (Node::new(), Namespace::new());
    let _database = node.start_database();
    let server = node.start_server();
    server.put(&Pod::cart());
    let outcome = node.add(&namespace).run();
    let error = outcome.error();
    assert_eq!(error.code, Code::TryAgain.number());
    assert!(
        error.msg.contains("no bridge br-int") && error.details.contains("ovn-controller"),
        "{error:?}"
    );
    assert!(outcome.duration < AT_ONCE, "{outcome:?}");
}

#[test]
fn an_add_makes_two_requests() {
    let (node, namespace) = (Node::new(), Namespace::new());
    let _database = node.start_database_with_bridge();
    let server = ScriptedServer::start(&node.server_socket(), Answer::upstream_error("no"));
    node.add(&namespace).run().error();
    let paths = [server.request(), server.request()].map(|request| request.path().to_owned());
    assert_eq!(paths, ["/", "/metrics"]);
    assert!(server.requests().is_empty());
}

#[test]
fn only_cni_variables_reach_the_server() {
    let (node, namespace) = (Node::new(), Namespace::new());
    let _database = node.start_database_with_bridge();
    let server = ScriptedServer::start(&node.server_socket(), Answer::upstream_error("no"));
    let secrets = [
        ("PATH", "/bin"),
        ("HOME", "/root"),
        ("TOKEN", "hunter2"),
        ("cni_lower", "hunter2"),
        ("XCNI_ARGS", "hunter2"),
    ];
    let add =
        secrets.into_iter().fold(node.add(&namespace), |add, (name, value)| add.with(name, value));
    add.with("CNI_OF_TOMORROW", "kept").run().error();
    let request = server.request().json();
    let sent: Vec<&str> = request["env"].as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "CNI_ARGS",
        "CNI_COMMAND",
        "CNI_CONTAINERID",
        "CNI_IFNAME",
        "CNI_NETNS",
        "CNI_OF_TOMORROW",
        "CNI_PATH",
    ];
    assert_eq!(sent, expected);
    assert!(!server.request().text().contains("hunter2"));
}

fn base64(config: &Value) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(config.to_string())
}
