//! DEL with anything missing that may be missing, and with rows in the real database.

use std::{fs, os::unix::net::UnixListener, time::Duration};

use contract::{error::Code, spec_version::SpecVersion};
use serde_json::{Value, json};
use testkit::{Database, Node, Plugin, Port, plugin::new_sandbox};

/// A node with a database and the ports of one sandbox and of its neighbours.
struct Populated {
    database: Database,
    neighbour: String,
    node: Node,
}

impl Populated {
    fn new() -> Self {
        let node = Node::new();
        let populated =
            Self { database: node.start_database_with_bridge(), neighbour: new_sandbox(), node };
        Port::of(&populated.node.sandbox, "eth0", "ours").put(&populated.database);
        Port::of(&populated.neighbour, "eth0", "theirs").with_limit().put(&populated.database);
        Port::unowned("ovn-k8s-mp0").put(&populated.database);
        populated
    }

    fn del(&self) -> Plugin<'static> {
        self.node.call("DEL")
    }

    /// Our sandbox's port is gone, and every other row is still there.
    #[track_caller]
    fn assert_only_ours_is_gone(&self) {
        assert_eq!(self.database.ports(), ["ovn-k8s-mp0", "theirs"]);
        assert_eq!(self.database.column("QoS", "external_ids").len(), 1);
    }
}

#[test]
fn the_port_of_the_sandbox_goes_and_every_other_row_stays() {
    let populated = Populated::new();
    populated.del().run().success();
    populated.assert_only_ours_is_gone();
    assert_eq!(populated.database.column("Interface", "name"), ["br-int", "ovn-k8s-mp0", "theirs"]);
}

#[test]
fn a_sandbox_that_was_never_attached_is_deleted_already() {
    let populated = Populated::new();
    let before = populated.database.ports();
    populated.del().with("CNI_CONTAINERID", new_sandbox()).run().success();
    assert_eq!(populated.database.ports(), before);
}

#[test]
fn deleting_twice_is_as_good_as_once() {
    let populated = Populated::new();
    populated.del().run().success();
    populated.del().run().success();
    populated.assert_only_ours_is_gone();
}

#[test]
fn a_namespace_that_is_gone_or_was_never_one_does_not_matter() {
    for netns in [
        Some("/var/run/netns/gone"),
        Some(""),
        None,
        Some("FILE"),
        Some("/"),
        Some("/proc/self/ns/net"),
        Some("/dev/null"),
    ] {
        let populated = Populated::new();
        let file = populated.node.path("file");
        fs::write(&file, "").unwrap();
        let del = match netns {
            None => populated.del().without("CNI_NETNS"),
            Some("FILE") => populated.del().with("CNI_NETNS", &file),
            Some(path) => populated.del().with("CNI_NETNS", path),
        };
        del.run().success();
        populated.assert_only_ours_is_gone();
    }
}

#[test]
fn a_server_that_is_down_or_hangs_does_not_matter() {
    let populated = Populated::new();
    populated.node.make_dir("cni");
    let _silent = UnixListener::bind(populated.node.server_socket()).unwrap();
    let outcome = populated.del().run();
    outcome.success();
    assert!(outcome.duration < Duration::from_secs(2), "{outcome:?}");
    populated.assert_only_ours_is_gone();
}

#[test]
fn a_prev_result_that_is_missing_or_garbage_does_not_matter() {
    let good = json!({"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/n"}], "ips": [{"address": "10.244.1.5/24", "interface": 0}]});
    for prev in [
        Value::Null,
        json!({}),
        json!([]),
        json!("text"),
        json!(7),
        json!({"ips": "none", "interfaces": {}}),
        json!({"ips": [{"address": "x"}]}),
        good,
    ] {
        let populated = Populated::new();
        populated
            .del()
            .conf(&populated.node.conf_with(json!({"prevResult": prev})))
            .run()
            .success();
        populated.assert_only_ours_is_gone();
    }
}

#[test]
fn every_version_of_the_specification_deletes_alike() {
    for version in
        SpecVersion::ALL.map(|version| json!(version.as_str())).into_iter().chain([Value::Null])
    {
        let populated = Populated::new();
        populated
            .del()
            .conf(&populated.node.conf_with(json!({"cniVersion": version})))
            .run()
            .success();
        populated.assert_only_ours_is_gone();
    }
}

#[test]
fn a_port_of_upstream_goes_although_it_does_not_name_the_pods_interface() {
    let node = Node::new();
    let database = node.start_database_with_bridge();
    let neighbour = new_sandbox();
    Port::of_upstream(&node.sandbox, "ours").with_limit().put(&database);
    Port::of_upstream(&neighbour, "theirs").with_limit().put(&database);
    node.call("DEL").run().success();
    assert_eq!(database.ports(), ["theirs"]);
    assert_eq!(database.column("QoS", "external_ids"), [format!("sandbox={neighbour}")]);
}

#[test]
fn rate_limits_go_with_their_port() {
    let node = Node::new();
    let database = node.start_database_with_bridge();
    Port::of(&node.sandbox, "eth0", "ours").with_limit().put(&database);
    Port::of(&node.sandbox, "net1", "other").with_limit().put(&database);
    node.call("DEL").run().success();
    assert_eq!(database.ports(), ["other"]);
    let left = database.column("QoS", "external_ids");
    assert!(left.len() == 1 && left[0].contains("pod-if-name=net1"), "{left:?}");
}

/// Upstream's plugin creates a QoS row and uses it in separate transactions. It died in between, or
/// removed only the port.
#[test]
fn rate_limits_without_a_port_go_too() {
    let node = Node::new();
    let database = node.start_database_with_bridge();
    let limit = |ids: &[&str]| {
        database.vsctl(&[&["create", "QoS", "type=linux-htb"], ids].concat());
    };
    let (ours, theirs) = (
        format!("external_ids:sandbox={}", node.sandbox),
        format!("external_ids:sandbox={}", new_sandbox()),
    );
    limit(&[&ours, "external_ids:pod-if-name=eth0"]);
    limit(&[&theirs, "external_ids:pod-if-name=eth0"]);
    node.call("DEL").run().success();
    assert_eq!(database.column("QoS", "external_ids").len(), 1);
}

#[test]
fn only_the_interface_that_is_named_goes() {
    let node = Node::new();
    let database = node.start_database_with_bridge();
    Port::of(&node.sandbox, "eth0", "first").put(&database);
    Port::of(&node.sandbox, "net1", "second").on_network("blue", "shop/blue").put(&database);
    Port::of_upstream(&node.sandbox, "third").on_network("red", "shop/red").put(&database);
    node.call("DEL").run().success();
    assert_eq!(database.ports(), ["second", "third"]);
}

#[test]
fn of_another_network_only_its_own_interface_goes() {
    let node = Node::new();
    let database = node.start_database_with_bridge();
    Port::of(&node.sandbox, "eth0", "first").put(&database);
    Port::of(&node.sandbox, "net1", "second").on_network("blue", "shop/blue").put(&database);
    Port::of_upstream(&node.sandbox, "third").on_network("red", "shop/red").put(&database);
    let blue = node
        .conf_with(json!({"name": "blue", "topology": "layer2", "netAttachDefName": "shop/blue"}));
    node.call("DEL").conf(&blue).with("CNI_IFNAME", "net1").run().success();
    assert_eq!(database.ports(), ["first", "third"]);
    let red = node
        .conf_with(json!({"name": "red", "topology": "layer2", "netAttachDefName": "shop/red"}));
    node.call("DEL").conf(&red).with("CNI_IFNAME", "net2").run().success();
    assert_eq!(database.ports(), ["first"]);
}

#[test]
fn sandboxes_with_the_same_first_fifteen_characters_are_not_confused() {
    let node = Node::new();
    let database = node.start_database_with_bridge();
    let (sandbox, twin) =
        (format!("{}a", &node.sandbox[..15]), format!("{}b", &node.sandbox[..15]));
    Port::of(&twin, "eth0", &node.sandbox[..15]).put(&database);
    node.call("DEL").with("CNI_CONTAINERID", &sandbox).run().success();
    assert_eq!(database.ports(), [&node.sandbox[..15]]);
}

#[test]
fn a_port_that_became_an_administrators_bond_goes_as_a_whole() {
    let node = Node::new();
    let database = node.start_database_with_bridge();
    database.vsctl(&[
        "add-bond",
        "br-int",
        "bond",
        "one",
        "two",
        "--",
        "set",
        "Interface",
        "one",
        &format!("external_ids:sandbox={}", node.sandbox),
    ]);
    node.call("DEL").run().success();
    assert_eq!(database.ports(), [""; 0]);
}

#[test]
fn without_the_database_a_del_must_be_tried_again() {
    let node = Node::new();
    let outcome = node.call("DEL").run();
    let message = outcome.refused(Code::TryAgain);
    assert!(message.contains(node.ovsdb_socket().to_str().unwrap()), "{message}");
    assert!(outcome.duration < Duration::from_secs(2), "{outcome:?}");
}

#[test]
fn a_del_that_was_tried_again_once_the_database_is_back_leaves_nothing() {
    let populated = Populated::new();
    populated.database.process.pause();
    let del = populated.del().start();
    populated.database.process.signal(nix::sys::signal::Signal::SIGCONT);
    del.end().success();
    populated.assert_only_ours_is_gone();
}

#[test]
fn without_br_int_there_is_nothing_to_delete() {
    let node = Node::new();
    let _database = node.start_database();
    node.call("DEL").run().success();
}
