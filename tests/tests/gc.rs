//! GC on the rows of a real database: attachments that the runtime does not list are removed, all
//! else stays.

use contract::error::Code;
use serde_json::{Value, json};
use testkit::{Database, Node, Outcome, Port, plugin::new_sandbox};

/// A node with ports of every kind of owner.
struct Populated {
    database: Database,
    valid: String,
    node: Node,
}

impl Populated {
    fn new() -> Self {
        let node = Node::new();
        let populated =
            Self { database: node.start_database_with_bridge(), valid: new_sandbox(), node };
        let Self { database, valid, .. } = &populated;
        Port::of(valid, "eth0", "valid").with_limit().put(database);
        Port::of(&new_sandbox(), "eth0", "stale").with_limit().put(database);
        Port::of_upstream(&new_sandbox(), "stale-upstream").with_limit().put(database);
        Port::of(&new_sandbox(), "net1", "blue").on_network("blue", "shop/blue").put(database);
        Port::unowned("ovn-k8s-mp0").put(database);
        populated
    }

    #[track_caller]
    fn gc(&self, valid: &Value) -> Outcome {
        self.gc_with(json!({"cni.dev/valid-attachments": valid}))
    }

    #[track_caller]
    fn gc_with(&self, changes: Value) -> Outcome {
        self.node.call("GC").conf(&self.node.conf_with(changes)).run()
    }
}

#[test]
fn what_is_not_valid_goes_and_all_else_stays() {
    let populated = Populated::new();
    populated.gc(&json!([{"containerID": populated.valid, "ifname": "eth0"}])).success();
    assert_eq!(populated.database.ports(), ["blue", "ovn-k8s-mp0", "valid"]);
    assert_eq!(populated.database.column("QoS", "external_ids").len(), 1);
}

#[test]
fn an_empty_list_means_that_nothing_of_this_network_is_valid() {
    let populated = Populated::new();
    populated.gc(&json!([])).success();
    assert_eq!(populated.database.ports(), ["blue", "ovn-k8s-mp0"]);
    assert_eq!(populated.database.column("QoS", "external_ids"), [""; 0]);
}

#[test]
fn without_a_list_nothing_is_removed() {
    let populated = Populated::new();
    let before = populated.database.content();
    for list in [json!({}), json!({"cni.dev/valid-attachments": null})] {
        populated.gc_with(list).success();
    }
    assert_eq!(populated.database.content(), before);
}

#[test]
fn the_list_under_its_older_name_means_the_same() {
    let populated = Populated::new();
    populated.gc_with(json!({"cni.dev/attachments": []})).success();
    assert_eq!(populated.database.ports(), ["blue", "ovn-k8s-mp0"]);
}

#[test]
fn a_list_with_one_bad_name_removes_nothing() {
    let populated = Populated::new();
    let before = populated.database.content();
    populated
        .gc(&json!([{"containerID": populated.valid, "ifname": "a/b"}]))
        .refused(Code::InvalidConfig);
    populated.gc(&json!([{"containerID": "../x", "ifname": "eth0"}])).refused(Code::InvalidConfig);
    populated.gc(&json!([{"containerID": populated.valid}])).refused(Code::Decode);
    assert_eq!(populated.database.content(), before);
}

#[test]
fn entries_that_nobody_has_do_no_harm() {
    let populated = Populated::new();
    let valid = json!([{"containerID": new_sandbox(), "ifname": "eth0"}, {"containerID": populated.valid, "ifname": "eth0"}]);
    populated.gc(&valid).success();
    assert_eq!(populated.database.ports(), ["blue", "ovn-k8s-mp0", "valid"]);
}

#[test]
fn another_interface_of_a_valid_sandbox_is_not_valid() {
    let populated = Populated::new();
    Port::of(&populated.valid, "eth1", "second").put(&populated.database);
    populated.gc(&json!([{"containerID": populated.valid, "ifname": "eth0"}])).success();
    assert_eq!(populated.database.ports(), ["blue", "ovn-k8s-mp0", "valid"]);
}

#[test]
fn a_valid_port_of_upstream_stays_whatever_its_interface_is_called() {
    let populated = Populated::new();
    let sandbox = new_sandbox();
    Port::of_upstream(&sandbox, "upstream").put(&populated.database);
    populated.gc(&json!([{"containerID": sandbox, "ifname": "ethernet7"}])).success();
    assert_eq!(populated.database.ports(), ["blue", "ovn-k8s-mp0", "upstream"]);
}

#[test]
fn each_network_has_its_own_gc() {
    let populated = Populated::new();
    let before = populated.database.ports();
    let network = |name: &str| json!({"name": name, "topology": "layer2", "netAttachDefName": format!("shop/{name}"), "cni.dev/valid-attachments": []});
    populated.gc_with(network("red")).success();
    assert_eq!(populated.database.ports(), before);
    populated.gc_with(network("blue")).success();
    assert_eq!(populated.database.ports(), ["ovn-k8s-mp0", "stale", "stale-upstream", "valid"]);
}

#[test]
fn sixty_ports_of_which_ten_are_stale() {
    let node = Node::new();
    let database = node.start_database_with_bridge();
    let sandboxes: Vec<String> = (0..60).map(|_| new_sandbox()).collect();
    for (index, sandbox) in sandboxes.iter().enumerate() {
        Port::of(sandbox, "eth0", &format!("port{index:02}")).put(&database);
    }
    let valid: Vec<Value> =
        sandboxes[10..].iter().map(|id| json!({"containerID": id, "ifname": "eth0"})).collect();
    node.call("GC")
        .conf(&node.conf_with(json!({"cni.dev/valid-attachments": valid})))
        .run()
        .success();
    assert_eq!(
        database.ports(),
        (10..60).map(|index| format!("port{index:02}")).collect::<Vec<_>>()
    );
}

#[test]
fn rows_with_an_owner_that_can_be_none_are_left_to_their_maker() {
    let node = Node::new();
    let database = node.start_database_with_bridge();
    Port::of("../x", "eth0", "bad-sandbox").put(&database);
    Port::of(&new_sandbox(), "a/b", "bad-interface").put(&database);
    node.call("GC").conf(&node.conf_with(json!({"cni.dev/valid-attachments": []}))).run().success();
    assert_eq!(database.ports(), ["bad-interface", "bad-sandbox"]);
}

#[test]
fn without_the_database_a_gc_must_be_tried_again() {
    let node = Node::new();
    node.call("GC")
        .conf(&node.conf_with(json!({"cni.dev/valid-attachments": []})))
        .run()
        .refused(Code::TryAgain);
}
