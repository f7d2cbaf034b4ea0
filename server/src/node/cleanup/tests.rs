use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::net::UnixListener,
    sync::{Arc, mpsc},
};

use contract::node_annotation::{CHASSIS_ID, ZONE};
use kubeapi::Cluster;
use serde_json::{Value, json};
use testkit::{
    Database, Scratch,
    scripted_server::{Answer, serve as answering},
};

use super::*;
use crate::{
    cni_conf::tests::conf,
    conditions::Conditions,
    metrics::Metrics,
    node::open_vswitch::{
        settings::{Settings, tests::chassis},
        switch::Written,
    },
};

/// The configuration of a node in a directory of its own.
fn place() -> (Scratch, CleanupConfig) {
    place_of("n1")
}

fn place_of(node: &str) -> (Scratch, CleanupConfig) {
    let scratch = Scratch::new();
    let config = CleanupConfig {
        name: node.to_owned(),
        ovsdb: Endpoint::Unix(scratch.join("db.sock")),
        cni_conf: conf(&scratch.join("net.d"), "10-ovn-kubernetes.conflist"),
        plugin: PluginInstall {
            source: Some("/bin/true".into()),
            directory: scratch.join("bin"),
            name: "ovn-k8s-cni-overlay".to_owned(),
        },
        socket: scratch.join("run/server.sock"),
        api_server: None,
        extent: Extent::Server,
    };
    (scratch, config)
}

/// Cleans up, but leaves the nftables rules of the namespace that tests run in.
fn clean_here(config: &CleanupConfig) -> Cleaned {
    clean(config, async { Ok(None) }).unwrap()
}

/// Writes the settings that a start leaves in the database.
async fn write_settings(config: &CleanupConfig) {
    let mut switch =
        Switch::connect(&config.ovsdb, Conditions::default(), Arc::new(Metrics::default()));
    let settings = Settings::new(&chassis(), "n1", Some("127.0.0.1".to_owned()), "n1".to_owned());
    let seen = switch.seen().await;
    assert_eq!(switch.write(&seen, &settings.differing(&seen)).await.unwrap(), Written::Done);
}

fn start(config: &CleanupConfig) {
    config.cni_conf.install().unwrap();
    config.plugin.install().unwrap();
    fs::create_dir_all(config.socket.parent().unwrap()).unwrap();
    // A killed server leaves its socket.
    drop(UnixListener::bind(&config.socket).unwrap());
    tokio::runtime::Runtime::new().unwrap().block_on(write_settings(config));
}

#[test]
fn everything_that_the_server_made_is_removed_and_named_and_a_second_time_it_is_missing() {
    let (scratch, config) = place();
    let database = Database::start(scratch.path());
    database.vsctl(&[
        "set",
        "Open_vSwitch",
        ".",
        "external_ids:system-id=chassis-1",
        "external_ids:ovn-encap-type=geneve",
    ]);
    start(&config);
    for name in ["ovn-k8s-mp0", "k8s-n1"] {
        database.vsctl(&["--may-exist", "add-br", "br-int", "--", "add-port", "br-int", name]);
    }

    let text = clean_here(&config).to_string();
    assert_eq!(database.ports(), [] as [&str; 0]);
    for line in [
        "removed the management port ovn-k8s-mp0, with its addresses and routes, from unix:",
        "there is no nftables table of ours",
        "removed the CNI configuration ",
        "removed the plugin ",
        "removed from unix:",
        "ovn-encap-ip",
        "removed the socket ",
        "removed the directory ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let ids = database.vsctl(&["get", "Open_vSwitch", ".", "external_ids"]);
    assert_eq!(ids, "{ovn-encap-type=geneve, system-id=chassis-1}", "what was there before stays");
    let left: Vec<_> = ["net.d/10-ovn-kubernetes.conflist", "bin/ovn-k8s-cni-overlay", "run"]
        .into_iter()
        .filter(|name| scratch.join(name).exists())
        .collect();
    assert!(left.is_empty(), "{left:?}");

    let text = clean_here(&config).to_string();
    assert!(
        text.lines().all(|line| [
            "there is no ",
            "there are no ",
            "warning: annotations of node n1 stay: "
        ]
        .iter()
        .any(|start| line.starts_with(start))),
        "{text}"
    );
}

/// Pods' interfaces and the bridge stayed, and the next network could not be installed without a
/// reboot.
#[test]
fn with_everything_the_ports_of_pods_and_the_integration_bridge_go_and_an_administrators_bridge_stays()
 {
    let (scratch, config) = place();
    let config = CleanupConfig { extent: Extent::All, ..config };
    let database = Database::start(scratch.path());
    start(&config);
    database.vsctl(&["add-br", "br-int", "--", "add-br", "br-ex"]);
    database.vsctl(&["set", "Bridge", "br-ex", "external_ids:bridge-uplink=eth7"]);
    for (name, sandbox) in
        [("0123456789abcde", "0123456789abcdef"), ("fedcba987654321", "fedcba9876543210")]
    {
        let ids = format!("external_ids:sandbox={sandbox}");
        database.vsctl(&["add-port", "br-int", name, "--", "set", "Interface", name, &ids]);
    }

    let cleaned = clean_here(&config);
    assert_eq!(cleaned.failures, [""; 0]);
    let text = cleaned.to_string();
    for line in [
        "removed the interfaces of pods: 2 ports and 0 links",
        "removed the bridge br-int",
        "removed the plugin ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_eq!(database.vsctl(&["list-br"]), "br-ex");
    let text = clean_here(&config).to_string();
    assert!(
        text.contains("there are no interfaces of pods")
            && text.contains("there is no bridge br-int"),
        "{text}"
    );
}

#[test]
fn what_is_anothers_stays_and_pods_are_named() {
    let (scratch, config) = place();
    let database = Database::start(scratch.path());
    start(&config);
    fs::write(config.plugin.target(), "another program").unwrap();
    fs::write(scratch.join("run/another.sock"), "").unwrap();
    let conf = scratch.join("net.d/10-ovn-kubernetes.conflist");
    fs::write(&conf, r#"{"cniVersion":"1.0.0","name":"mine","plugins":[]}"#).unwrap();
    database.vsctl(&["add-br", "br-int"]);
    database.vsctl(&[
        "add-port",
        "br-int",
        "0123456789abcde",
        "--",
        "set",
        "Interface",
        "0123456789abcde",
        "external_ids:sandbox=0123456789abcdef",
    ]);

    let cleaned = clean_here(&config);
    assert_eq!(cleaned.failures.len(), 1, "the configuration is another network's: {cleaned}");
    assert!(cleaned.failures[0].contains("its network is \"mine\""), "{cleaned}");
    let text = cleaned.to_string();
    assert!(text.contains("left the plugin ") && text.contains("left the directory "), "{text}");
    assert!(
        text.contains("1 interfaces of pods are still attached and stay: 0123456789abcde"),
        "{text}"
    );
    assert!(conf.exists() && config.plugin.target().exists());
    assert_eq!(database.ports(), ["0123456789abcde"]);
    assert!(text.contains("removed from unix:"), "the rest was done: {text}");
}

#[test]
fn without_open_vswitch_the_rest_is_done_and_the_failure_is_said() {
    let (_scratch, config) = place();
    config.cni_conf.install().unwrap();
    let text = clean_here(&config).to_string();
    assert!(
        text.contains("removed the CNI configuration ")
            && text.contains("failed: settings in unix:"),
        "{text}"
    );
    assert!(text.contains("start Open vSwitch and try again"), "{text}");
}

/// The kernel allows 15 characters for the name of an interface.
#[test]
fn the_management_port_under_a_name_that_was_cut_off_is_removed() {
    let (scratch, config) = place_of("kube-node-with-long-name");
    let database = Database::start(scratch.path());
    database.vsctl(&[
        "add-br",
        "br-int",
        "--",
        "add-port",
        "br-int",
        "k8s-kube-node-w",
        "--",
        "add-port",
        "br-int",
        "k8s-kube-node-x",
    ]);
    let cleaned = clean_here(&config);
    assert!(
        cleaned.lines.iter().any(|line| line.contains("removed the management port")),
        "{cleaned}"
    );
    assert_eq!(database.vsctl(&["list-ports", "br-int"]).trim(), "k8s-kube-node-x");
}

#[test]
fn the_plugin_stays_as_long_as_pods_are_attached_that_only_it_can_detach() {
    let (scratch, config) = place();
    let database = Database::start(scratch.path());
    start(&config);
    database.vsctl(&[
        "add-br",
        "br-int",
        "--",
        "add-port",
        "br-int",
        "c1",
        "--",
        "set",
        "Interface",
        "c1",
        "external_ids:sandbox=c1",
    ]);
    let text = clean_here(&config).to_string();
    assert!(
        text.contains("left the plugin ") && text.contains("1 interfaces of pods are attached"),
        "{text}"
    );
    assert!(config.plugin.target().exists());

    database.vsctl(&["del-port", "br-int", "c1"]);
    let text = clean_here(&config).to_string();
    assert!(text.contains("removed the plugin ") && !config.plugin.target().exists(), "{text}");
}

/// An API server with this node `n1`, and the patches that it gets.
fn api_server(address: Option<&str>, chassis: Option<&str>) -> (ApiServer, mpsc::Receiver<Value>) {
    let addresses: Vec<_> = address
        .into_iter()
        .map(|address| json!({"type": "InternalIP", "address": address}))
        .collect();
    let mut annotations = json!({ZONE: "global", GATEWAY_CONFIG: "{}", "somebody/else": "x"});
    chassis.into_iter().for_each(|chassis| annotations[CHASSIS_ID] = chassis.into());
    let node = json!({
        "kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1", "annotations": annotations},
        "status": {"addresses": addresses},
    });
    let (sender, patches) = mpsc::channel();
    let listening = answering(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), move |request| {
        if request.first_line.starts_with("PATCH /api/v1/nodes/n1/status?") {
            sender.send(request.json()).unwrap();
        }
        match request.first_line.starts_with("GET /api/v1/nodes?") {
            true => Answer::json(&json!({"metadata": {"resourceVersion": "1"}, "items": [node]})),
            false => Answer::json(&node),
        }
    });
    let cluster = Cluster::Url { url: format!("http://{}", listening.unwrap()), authority: None };
    (ApiServer { cluster, credential: None }, patches)
}

/// A first run without an API server removed the gateway, and no later one its annotation.
#[test]
fn the_annotation_of_a_gateway_goes_if_no_program_has_a_gateway_here_any_more() {
    for (mappings, is_removed) in [(None, true), (Some("physnet:br-ex"), false)] {
        let (scratch, config) = place();
        let database = Database::start(scratch.path());
        database.vsctl(&["set", "Open_vSwitch", ".", "external_ids:system-id=chassis-1"]);
        start(&config);
        mappings.into_iter().for_each(|mappings| {
            database.vsctl(&[
                "set",
                "Open_vSwitch",
                ".",
                &format!("external_ids:ovn-bridge-mappings={mappings}"),
            ]);
        });
        let (api_server, patches) = api_server(None, Some("chassis-1"));
        let config = CleanupConfig { api_server: Some(api_server), ..config };

        let text = clean_here(&config).to_string();

        let patch = patches.recv().unwrap();
        let gone = &patch["metadata"]["annotations"];
        assert_eq!(gone.as_object().unwrap().contains_key(GATEWAY_CONFIG), is_removed, "{text}");
    }
}

/// `--cleanup-node` with the name of another host's node took that node's annotations, until its
/// server put them back.
#[test]
fn the_node_of_another_host_lost_its_annotations() {
    // None of this host's (RFC 5737).
    let elsewhere = Some("203.0.113.9");
    let gone =
        json!({"metadata": {"annotations": {ZONE: null, GATEWAY_CONFIG: null, CHASSIS_ID: null}}});
    for (address, chassis, is_removed) in [
        (elsewhere, Some("chassis-2"), false),
        // Nothing says whose it is.
        (elsewhere, None, false),
        (None, Some("chassis-2"), false),
        (None, None, false),
        // Its address is that of a cloud's NAT.
        (elsewhere, Some("chassis-1"), true),
    ] {
        let (scratch, config) = place();
        let database = Database::start(scratch.path());
        database.vsctl(&["set", "Open_vSwitch", ".", "external_ids:system-id=chassis-1"]);
        start(&config);
        let (api_server, patches) = api_server(address, chassis);
        let config = CleanupConfig { api_server: Some(api_server), ..config };

        let cleaned = clean_here(&config);

        let (patches, text) = (patches.try_iter().collect::<Vec<_>>(), cleaned.to_string());
        assert!(
            cleaned.failures.is_empty() && text.contains("removed the CNI configuration "),
            "{text}"
        );
        if is_removed {
            assert_eq!(patches, std::slice::from_ref(&gone), "{text}");
            assert!(
                text.contains("removed annotations of node n1: k8s.ovn.org/node-chassis-id"),
                "{text}"
            );
        } else {
            assert!(patches.is_empty(), "{address:?} {chassis:?}: {patches:?}");
            for words in [
                "warning: annotations of node n1 stay: node n1 has ",
                "this host's chassis-1: it may be another host's node",
            ] {
                assert!(text.contains(words), "{words}: {text}");
            }
        }
    }
}

/// Where Open vSwitch does not say which chassis this host is.
#[test]
fn a_node_of_which_nothing_is_known_keeps_its_annotations() {
    let (scratch, config) = place();
    let _database = Database::start(scratch.path());
    let (api_server, patches) = api_server(Some("203.0.113.9"), Some("n1"));
    let text = clean_here(&CleanupConfig { api_server: Some(api_server), ..config }).to_string();
    assert!(text.contains("its chassis is n1, this host's not known"), "{text}");
    assert_eq!(patches.try_iter().count(), 0);
}
