//! STATUS with the real daemons: whether an ADD could succeed now, with each daemon missing in
//! turn.

use std::{fs, os::unix::net::UnixListener, time::Duration};

use contract::error::Code;
use nix::sys::signal::Signal;
use serde_json::json;
use testkit::{Answer, Daemons, Database, Node, NodeServer, Outcome, ScriptedServer};

/// Limit for a normal answer: a runtime asks every few seconds and waits for it.
const SOON: Duration = Duration::from_secs(1);
/// Longer than the plugin waits for a daemon that is there and does not answer.
const PATIENT: Duration = Duration::from_secs(4);

/// A node on which an ADD could succeed. Tests that take it apart bind `node` first, so that it is
/// dropped last: it owns the directory.
struct Healthy {
    server: NodeServer,
    daemons: Daemons,
    database: Database,
    node: Node,
}

impl Healthy {
    fn new() -> Self {
        let node = Node::new();
        let database = node.start_database_with_bridge();
        let healthy = Self {
            server: node.start_server(),
            daemons: Daemons::start(&node, &database),
            database,
            node,
        };
        healthy.status().success();
        healthy
    }

    #[track_caller]
    fn status(&self) -> Outcome {
        self.node.call("STATUS").run()
    }
}

/// Makes the node look as if no server had been able to answer since boot.
fn remove_stamp(node: &Node) {
    fs::remove_file(node.stamp()).expect("a server that could answer has left a stamp");
}

/// Makes the stamp older, as if the last server that could answer had been gone for so long.
fn age_stamp(node: &Node, seconds: u64) {
    let text =
        fs::read_to_string(node.stamp()).expect("a server that could answer has left a stamp");
    let aged = text.trim().split_once(' ').and_then(|(boot, written)| {
        // The stamp counts from boot, so an earlier stamp requires that the machine booted early
        // enough.
        Some(format!("{boot} {}", written.parse::<u64>().ok()?.checked_sub(seconds)?))
    });
    fs::write(node.stamp(), aged.expect("the machine was started earlier"))
        .expect("it is the test's own");
}

#[test]
fn where_everything_is_there_an_add_could_succeed() {
    let outcome = Healthy::new().status();
    outcome.success();
    assert!(outcome.duration < SOON, "{outcome:?}");
}

#[test]
fn where_nothing_is_there_every_part_is_named_at_once() {
    let node = Node::new();
    let outcome = node.call("STATUS").run();
    let message = outcome.refused(Code::NotAvailableLimited);
    for place in [
        node.server_socket(),
        node.ovsdb_socket(),
        node.ovs_run_dir().join("ovs-vswitchd.pid"),
        node.ovn_run_dir().join("ovn-controller.pid"),
    ] {
        assert!(message.contains(place.to_str().unwrap()), "{}: {message}", place.display());
    }
    assert!(outcome.duration < SOON, "{outcome:?}");
}

#[test]
fn a_server_that_is_down_is_named_and_running_pods_are_not_affected() {
    let Healthy { node, server, daemons: _daemons, database: _database } = Healthy::new();
    server.stop();
    // For a minute, a missing server counts as one that is being replaced.
    node.call("STATUS").run().success();
    age_stamp(&node, 50);
    node.call("STATUS").run().success();
    age_stamp(&node, 11);
    let outcome = node.call("STATUS").run();
    let message = outcome.refused(Code::NotAvailable);
    assert!(
        message.contains("node-local server")
            && message.contains(node.server_socket().to_str().unwrap()),
        "{message}"
    );
    assert!(!message.contains("ovn-controller") && !message.contains("ovs-vswitchd"), "{message}");
    assert!(outcome.duration < SOON, "{outcome:?}");
}

#[test]
fn a_server_that_was_killed_is_forgiven_like_one_that_was_stopped_and_one_of_an_earlier_boot_is_not()
 {
    let mut healthy = Healthy::new();
    healthy.server.process.signal(Signal::SIGKILL);
    healthy.server.process.end();
    healthy.status().success();
    let file = healthy.node.stamp();
    let text = fs::read_to_string(&file).unwrap();
    let (_, seconds) = text.trim().split_once(' ').unwrap();
    fs::write(&file, format!("00000000-0000-0000-0000-000000000000 {seconds}")).unwrap();
    healthy.status().refused(Code::NotAvailable);
}

#[test]
fn a_server_that_hangs_is_named() {
    let healthy = Healthy::new();
    healthy.server.process.pause();
    // The stamp is recent: the server may be about to be replaced.
    healthy.status().success();
    remove_stamp(&healthy.node);
    let outcome = healthy.status();
    let message = outcome.refused(Code::NotAvailable);
    assert!(message.contains("server does not answer"), "{message}");
    assert!(outcome.duration < PATIENT, "{outcome:?}");
    healthy.server.process.signal(Signal::SIGCONT);
    healthy.status().success();
}

#[test]
fn a_server_that_has_lost_its_pods_says_why() {
    let healthy = Healthy::new();
    fs::rename(healthy.node.path("manifests"), healthy.node.path("elsewhere")).unwrap();
    healthy.server.wait_for_line("is lost");
    let message = healthy.status().refused(Code::NotAvailable);
    assert!(message.contains("pod manifests"), "{message}");
}

#[test]
fn ovn_controller_is_named_when_it_is_down() {
    let Healthy { node, server: _server, daemons, database: _database } = Healthy::new();
    let Daemons { ovn_controller, ovs_vswitchd: _ovs_vswitchd, southbound: _southbound } = daemons;
    ovn_controller.stop();
    let message = node.call("STATUS").run().refused(Code::NotAvailable);
    assert!(message.contains("ovn-controller does not answer"), "{message}");
}

#[test]
fn ovn_controller_that_was_killed_is_no_answer() {
    let mut healthy = Healthy::new();
    healthy.daemons.ovn_controller.signal(Signal::SIGKILL);
    healthy.daemons.ovn_controller.end();
    let message = healthy.status().refused(Code::NotAvailable);
    assert!(message.contains("ovn-controller does not answer"), "{message}");
}

#[test]
fn a_southbound_database_that_is_away_is_no_trouble_of_this_node_and_the_log_says_so() {
    let Healthy { node, server: _server, daemons, database: _database } = Healthy::new();
    let Daemons { ovn_controller: _ovn_controller, ovs_vswitchd: _ovs_vswitchd, southbound } =
        daemons;
    southbound.process.stop();
    testkit::eventually("ovn-controller notices", Duration::from_secs(5), || {
        node.call("STATUS").run().success();
        let said = node.log_lines("log/plugin.log");
        let words = "ovn-controller is \"not connected\" to the southbound database";
        if said
            .iter()
            .any(|line| line.contains(words) || line.contains(&words.replace('"', "\\\"")))
        {
            Ok(())
        } else {
            Err(format!("{said:?}"))
        }
    });
    node.call("STATUS").run().success();
}

#[test]
fn ovn_controller_that_is_out_of_sight_is_there_if_the_server_knows_so() {
    let node = Node::new();
    let database = node.start_database_with_bridge();
    let _daemons = Daemons::start(&node, &database);
    fs::remove_file(node.ovn_run_dir().join("ovn-controller.pid")).unwrap();
    let place = node.ovn_run_dir().join("ovn-controller.pid").display().to_string();
    for (answer, is_fine) in [
        (json!({"Partners": {}}), false),
        (json!({"Partners": {&place: "silent"}}), false),
        (json!({"Partners": {&place: "answers"}}), true),
        (json!({"Partners": {&place: "unknown"}, "ControllerElsewhere": true}), true),
    ] {
        let text = testkit::http::answer("200 OK", "application/json", &answer.to_string());
        let _server = ScriptedServer::start(&node.server_socket(), Answer::Bytes(text));
        let outcome = node.call("STATUS").run();
        if is_fine {
            outcome.success();
        } else {
            assert!(outcome.refused(Code::NotAvailable).contains(&place), "{answer}");
        }
        let _ = fs::remove_file(node.server_socket());
    }
}

/// A process in the place of the server, which answers everything with 200.
#[test]
fn a_peer_that_says_ok_in_other_words_than_the_servers_counted_as_a_server() {
    let node = Node::new();
    let database = node.start_database_with_bridge();
    let _daemons = Daemons::start(&node, &database);
    let said =
        |body: &str| Answer::Bytes(testkit::http::answer("200 OK", "application/json", body));
    let endless = |head: &str| {
        Answer::BytesThenSilence(format!("HTTP/1.1 200 OK\r\n{head}\r\n").into_bytes())
    };
    for answer in [
        said("{}"),
        said("[]"),
        said("OK"),
        said(r#"{"status":"ok"}"#),
        said(r#"{"Partners":7}"#),
        endless(""),
        endless("Content-Length: 2\r\n"),
        endless("Transfer-Encoding: chunked\r\n"),
        endless("Content-Length: 100\r\n"),
    ] {
        let _peer = ScriptedServer::start(&node.server_socket(), answer.clone());
        let outcome = node.call("STATUS").run();
        let message = outcome.refused(Code::NotAvailable);
        assert!(message.contains("node-local server"), "{answer:?}: {message}");
        assert!(outcome.duration < PATIENT, "{answer:?}: {outcome:?}");
        let _ = fs::remove_file(node.server_socket());
    }
}

#[test]
fn ovs_vswitchd_is_named_when_it_is_down_and_running_pods_are_affected() {
    let Healthy { node, server: _server, daemons, database: _database } = Healthy::new();
    let Daemons { ovn_controller: _ovn_controller, ovs_vswitchd, southbound: _southbound } =
        daemons;
    ovs_vswitchd.stop();
    let message = node.call("STATUS").run().refused(Code::NotAvailableLimited);
    assert!(message.contains("ovs-vswitchd does not answer"), "{message}");
}

#[test]
fn ovs_vswitchd_that_hangs_is_named_once_it_cannot_be_busy_and_nobody_waits_for_it() {
    let healthy = Healthy::new();
    healthy.daemons.ovs_vswitchd.signal(Signal::SIGSTOP);
    // A server that has just started does not know the daemon's state yet, and the plugin asks the
    // daemon itself.
    let message =
        testkit::eventually("the server has lost its patience", Duration::from_secs(12), || {
            let outcome = healthy.status();
            let knows = !outcome.status.success() && outcome.duration < SOON;
            if knows {
                Ok(outcome.refused(Code::NotAvailableLimited))
            } else {
                Err(format!("{outcome:?}"))
            }
        });
    assert!(message.contains("ovs-vswitchd does not answer"), "{message}");
    healthy.daemons.ovs_vswitchd.signal(Signal::SIGCONT);
}

#[test]
fn a_server_that_knows_nothing_of_others_makes_the_plugin_wait_for_them() {
    let node = Node::new();
    let database = node.start_database_with_bridge();
    let daemons = Daemons::start(&node, &database);
    let _older = ScriptedServer::start(
        &node.server_socket(),
        Answer::Bytes(testkit::http::answer("200 OK", "application/json", "")),
    );
    daemons.ovs_vswitchd.signal(Signal::SIGSTOP);
    let outcome = node.call("STATUS").run();
    let message = outcome.refused(Code::NotAvailableLimited);
    assert!(message.contains("ovs-vswitchd does not answer"), "{message}");
    assert!(outcome.duration > SOON && outcome.duration < PATIENT, "{outcome:?}");
    daemons.ovs_vswitchd.signal(Signal::SIGCONT);
}

#[test]
fn a_missing_bridge_is_named() {
    let healthy = Healthy::new();
    // Otherwise ovn-controller would recreate the bridge.
    healthy.daemons.ovn_controller.signal(Signal::SIGSTOP);
    healthy.database.vsctl(&["del-br", "br-int"]);
    let message = healthy.status().refused(Code::NotAvailableLimited);
    healthy.daemons.ovn_controller.signal(Signal::SIGCONT);
    assert!(message.contains("no bridge br-int"), "{message}");
}

#[test]
fn a_database_that_is_down_or_hangs_is_named() {
    let node = Node::new();
    node.make_dir("ovs");
    let message = node.call("STATUS").run().refused(Code::NotAvailableLimited);
    assert!(message.contains("database of Open vSwitch"), "{message}");
    let _silent = UnixListener::bind(node.ovsdb_socket()).unwrap();
    // Without a server the plugin does not wait for a silent database; with a server that does not
    // know better, it does.
    let outcome = node.call("STATUS").run();
    let message = outcome.refused(Code::NotAvailableLimited);
    assert!(
        !message.contains("database of Open vSwitch") && outcome.duration < SOON,
        "{outcome:?}"
    );
    let _older = ScriptedServer::start(
        &node.server_socket(),
        Answer::Bytes(testkit::http::answer("200 OK", "application/json", "")),
    );
    let outcome = node.call("STATUS").run();
    let message = outcome.refused(Code::NotAvailableLimited);
    assert!(message.contains("database of Open vSwitch"), "{message}");
    assert!(outcome.duration < PATIENT, "{outcome:?}");
}

#[test]
fn a_status_reports_nothing_to_the_server() {
    let node = Node::new();
    let server = ScriptedServer::start(
        &node.server_socket(),
        Answer::Bytes(testkit::http::answer("200 OK", "application/json", "")),
    );
    node.call("STATUS").run().error();
    assert_eq!(server.request().path(), "/");
    // A report of the first STATUS would have arrived before this request.
    node.call("STATUS").run().error();
    assert_eq!(server.request().json()["env"]["CNI_COMMAND"], "STATUS");
}

#[test]
fn a_control_socket_that_answers_nonsense_is_no_answer() {
    let node = Node::new();
    let _database = node.start_database_with_bridge();
    for pid in ["", "not a number", "../../etc", "999999999"] {
        fs::write(node.make_dir("ovn").join("ovn-controller.pid"), pid).unwrap();
        let message = node.call("STATUS").run().refused(Code::NotAvailableLimited);
        assert!(message.contains("ovn-controller does not answer"), "{pid}: {message}");
    }
}
