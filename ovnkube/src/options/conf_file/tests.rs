use std::{collections::BTreeMap, fs};

use server::node::{NodeConfig, PodsFrom};

use super::super::{NodeOptions, tests::Place};

fn with(text: &str) -> (Place, NodeOptions) {
    let place = Place::new();
    place.file("ovn_k8s.conf", text);
    let options = place.node("--init-node n1 --pod-manifests /m").unwrap();
    (place, options)
}

fn config(text: &str) -> NodeConfig {
    with(text).1.config(&BTreeMap::new()).unwrap()
}

#[test]
fn the_go_programs_file_is_understood_in_any_case_and_with_underscores() {
    for text in [
        "[default]\nmtu=1300\n[cni]\nconf-dir=/c\n[logging]\nloglevel=5\n[ovnsouth]\naddress=tcp:1.2.3.4:6642",
        "[Default]\nMTU = 1300\n[CNI]\nConf_Dir = \"/c\"\n[Logging]\nLogLevel=5 ; \
         all\n[OvnSouth]\naddress=tcp://1.2.3.4:6642",
    ] {
        let config = config(text);
        assert_eq!(
            (config.add.mtu.bytes(), config.cni_conf.directory.to_str()),
            (1300, Some("/c"))
        );
        assert_eq!(
            (config.cni_conf.log_level.as_str(), config.open_vswitch.chassis.southbound.as_str()),
            ("5", "tcp:1.2.3.4:6642")
        );
    }
}

#[test]
fn the_python_programs_file_with_all_its_defaults_contradicts_nothing() {
    let (_place, options) = with(
        "\
[default]
mtu=1300
conntrack_zone=64000
ovn_mode='overlay'
log_path=\"/var/log/plugin.log\"
unix_socket=/var/run/openvswitch/ovnnb_db.sock
cni_conf_path=u'/c'
cni_link_path=/opt/other/bin/
cni_plugin=ovn-k8s-cni-overlay
private_key=/etc/openvswitch/ovncontroller-privkey.pem
certificate=/etc/openvswitch/ovncontroller-cert.pem
ca_cert=/etc/openvswitch/ovnnb-ca.cert
k8s_ca_certificate=/etc/openvswitch/k8s-ca.crt
rundir=/run/ovs
logdir=None
",
    );
    let config = options.config(&BTreeMap::new()).unwrap();
    assert_eq!(
        (config.add.mtu.bytes(), config.cni_conf.log_file.as_str()),
        (1300, "/var/log/plugin.log")
    );
    assert_eq!(
        (config.cni_conf.directory.to_str(), config.plugin.directory.to_str()),
        (Some("/c"), Some("/opt/other/bin/"))
    );
    assert_eq!(config.open_vswitch.endpoint.to_string(), "unix:/run/ovs/db.sock");
    assert!(options.notes().iter().all(|note| !note.contains("ignored")), "{:?}", options.notes());
}

#[test]
fn an_unknown_key_is_named_with_line_and_nearest_name() {
    let (place, options) =
        with("[default]\nmtuu=1\naddress=2\n[kubernets]\nx=3\n[cni \"x\"]\nplugin=4\n");
    let file = place.path("ovn_k8s.conf");
    let notes = options.notes();
    for (line, text) in [
        (2, "mtuu is ignored: there is no such key in [default] (is it mtu?)"),
        (3, "address is ignored: there is no such key in [default] (it is in [ovnsouth])"),
        (5, "x is ignored: there is no section [kubernets] (is it [kubernetes]?)"),
        (7, "[cni \"x\"] is ignored: no option is in a subsection"),
    ] {
        let note = format!("{}:{line}: {text}", file.display());
        assert!(notes.contains(&note), "{note}\n{notes:#?}");
    }
    assert_eq!(notes.len(), 4);
}

#[test]
fn a_bad_value_is_an_error_that_names_file_and_line() {
    let place = Place::new();
    let file = place.file(
        "ovn_k8s.conf",
        "[default]\nmtu=70000\nmonitor-all=perhaps\n\"\n[metrics]\nbind-address=9410",
    );
    let error = place.node("--init-node n1 --pod-manifests /m").unwrap_err();
    for text in [
        ":2: mtu: MTU 70000 is not between 576 and 65535",
        ":3: monitor-all \"perhaps\" is neither true nor false",
        ":4: neither key = value nor [section]",
        ":6: bind-address \"9410\" is no address and port",
    ] {
        assert!(error.contains(&format!("{}{text}", file.display())), "{text}\n{error}");
    }
}

#[test]
fn a_missing_file_is_fatal_only_where_it_was_asked_for() {
    let place = Place::new();
    assert!(place.node("--init-node n1 --pod-manifests /m").is_ok());
    let error = place
        .node("--init-node n1 --pod-manifests /m --config-file /nonexistent/x.conf")
        .unwrap_err();
    assert!(error.contains("--config-file /nonexistent/x.conf: No such file"), "{error}");
    let other = place.file("other.conf", "[default]\nmtu=900\n");
    let node = place
        .node(&format!("-init-node n1 -pod-manifests /m -config-file={}", other.display()))
        .unwrap();
    assert_eq!(node.config(&BTreeMap::new()).unwrap().add.mtu.bytes(), 900);
}

#[test]
fn a_file_that_is_no_text_or_endless_is_a_problem() {
    let place = Place::new();
    fs::write(place.path("ovn_k8s.conf"), b"[default]\nmtu=\xff\n").unwrap();
    assert!(
        place.node("--init-node n1 --pod-manifests /m").unwrap_err().contains("ovn_k8s.conf: ")
    );
    assert!(
        place
            .node("--init-node n1 --pod-manifests /m --config-file /dev/zero")
            .unwrap_err()
            .contains("larger than 1 MiB")
    );
}

#[test]
fn the_last_of_several_lines_counts_and_older_names_mean_the_same() {
    assert_eq!(config("[default]\nmtu=900\nmtu=1000").add.mtu.bytes(), 1000);
    let (_place, options) =
        with("[kubernetes]\npod-manifests=/other\nmetrics-bind-address=127.0.0.1:9410\n");
    let (early, config) = (options.early(), options.config(&BTreeMap::new()).unwrap());
    assert_eq!(early.endpoints.metrics, Some("127.0.0.1:9410".parse().unwrap()));
    assert!(
        matches!(config.pods, PodsFrom::Manifests(directory) if directory.to_str() == Some("/m"))
    );
}
