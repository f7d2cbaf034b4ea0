//! STATUS: whether an ADD could succeed now, with the real daemons; each of them missing in turn.

use std::{fs, os::unix::net::UnixListener, time::Duration};

use contract::error::Code;
use nix::sys::signal::Signal;
use tests::{Answer, Daemons, Database, Node, NodeServer, Outcome, ScriptedServer};

/// A runtime asks every few seconds and waits for the answer.
const SOON: Duration = Duration::from_secs(1);
/// Longer than the plugin waits for a partner that is there and says nothing.
const PATIENT: Duration = Duration::from_secs(4);

/// A node on which an ADD could succeed. Where a test takes it apart, the node comes first: its directory has to go last.
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
        let healthy = Self { server: node.start_server(), daemons: Daemons::start(&node, &database), database, node };
        healthy.status().success();
        healthy
    }

    #[track_caller]
    fn status(&self) -> Outcome {
        self.node.call("STATUS").run()
    }
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
    let outcome = node.call("STATUS").run();
    let message = outcome.refused(Code::NotAvailable);
    assert!(message.contains("node-local server") && message.contains(node.server_socket().to_str().unwrap()), "{message}");
    assert!(!message.contains("ovn-controller") && !message.contains("ovs-vswitchd"), "{message}");
    assert!(outcome.duration < SOON, "{outcome:?}");
}

#[test]
fn a_server_that_hangs_is_named() {
    let healthy = Healthy::new();
    healthy.server.process.signal(Signal::SIGSTOP);
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
fn ovn_controller_without_its_database_is_named() {
    let Healthy { node, server: _server, daemons, database: _database } = Healthy::new();
    let Daemons { ovn_controller: _ovn_controller, ovs_vswitchd: _ovs_vswitchd, southbound } = daemons;
    southbound.process.stop();
    let message = tests::eventually("ovn-controller notices", Duration::from_secs(5), || {
        let outcome = node.call("STATUS").run();
        if outcome.status.success() { Err(format!("{outcome:?}")) } else { Ok(outcome.refused(Code::NotAvailable)) }
    });
    assert!(message.contains("ovn-controller is \"not connected\""), "{message}");
}

#[test]
fn ovs_vswitchd_is_named_when_it_is_down_and_running_pods_are_affected() {
    let Healthy { node, server: _server, daemons, database: _database } = Healthy::new();
    let Daemons { ovn_controller: _ovn_controller, ovs_vswitchd, southbound: _southbound } = daemons;
    ovs_vswitchd.stop();
    let message = node.call("STATUS").run().refused(Code::NotAvailableLimited);
    assert!(message.contains("ovs-vswitchd does not answer"), "{message}");
}

#[test]
fn ovs_vswitchd_that_hangs_is_named_once_it_cannot_be_busy_and_nobody_waits_for_it() {
    let healthy = Healthy::new();
    healthy.daemons.ovs_vswitchd.signal(Signal::SIGSTOP);
    let message = tests::eventually("the server has lost its patience", Duration::from_secs(8), || {
        let outcome = healthy.status();
        assert!(outcome.duration < SOON, "{outcome:?}");
        if outcome.status.success() { Err(format!("{outcome:?}")) } else { Ok(outcome.refused(Code::NotAvailableLimited)) }
    });
    assert!(message.contains("ovs-vswitchd does not answer"), "{message}");
    healthy.daemons.ovs_vswitchd.signal(Signal::SIGCONT);
}

#[test]
fn a_server_that_knows_nothing_of_others_makes_the_plugin_wait_for_them() {
    let node = Node::new();
    let database = node.start_database_with_bridge();
    let daemons = Daemons::start(&node, &database);
    let _older = ScriptedServer::start(&node.server_socket(), Answer::Bytes(tests::http::answer("200 OK", "application/json", "")));
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
    // Nobody may make it again meanwhile.
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
    // Without a server that knows better, silence is waited for; without any server, it makes no difference.
    let outcome = node.call("STATUS").run();
    let message = outcome.refused(Code::NotAvailableLimited);
    assert!(!message.contains("database of Open vSwitch") && outcome.duration < SOON, "{outcome:?}");
    let _older = ScriptedServer::start(&node.server_socket(), Answer::Bytes(tests::http::answer("200 OK", "application/json", "")));
    let outcome = node.call("STATUS").run();
    let message = outcome.refused(Code::NotAvailableLimited);
    assert!(message.contains("database of Open vSwitch"), "{message}");
    assert!(outcome.duration < PATIENT, "{outcome:?}");
}

#[test]
fn a_status_reports_nothing_to_the_server() {
    let node = Node::new();
    let server = ScriptedServer::start(&node.server_socket(), Answer::Bytes(tests::http::answer("200 OK", "application/json", "")));
    node.call("STATUS").run().error();
    assert_eq!(server.request().path(), "/");
    // What a STATUS before had sent would have arrived before this.
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
