use std::{fs, os::unix::net::UnixListener, sync::Arc};

use testkit::{Database, Scratch};

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
    };
    (scratch, config)
}

/// Cleans up, but leaves the nftables rules of the namespace that tests run in.
fn clean_here(config: &CleanupConfig) -> Cleaned {
    clean(config, async { Ok(None) }).unwrap()
}

/// Writes the settings that a start leaves in the database.
async fn write_settings(config: &CleanupConfig) {
    let mut switch = Switch::connect(&config.ovsdb, Conditions::default(), Arc::new(Metrics::default()));
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
        text.lines().all(|line| line.starts_with("there is no ") || line.starts_with("there are no ")),
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
    assert!(text.contains("1 interfaces of pods are still attached and stay: 0123456789abcde"), "{text}");
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
        text.contains("removed the CNI configuration ") && text.contains("failed: settings in unix:"),
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
    assert!(cleaned.lines.iter().any(|line| line.contains("removed the management port")), "{cleaned}");
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
