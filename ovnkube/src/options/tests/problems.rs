//! All errors of the options are reported, without secrets.

use std::collections::BTreeMap;

use super::Place;

fn problems(place: &Place, line: &str) -> String {
    match place.node(line).map(|node| node.config(&BTreeMap::new())) {
        Ok(Ok(config)) => panic!("{line}: {config:?}"),
        Ok(Err(problems)) => problems.to_string(),
        Err(problems) => problems,
    }
}

#[test]
fn every_problem_of_every_place_is_said_at_once() {
    let mut place = Place::new();
    place.variable("K8S_APISERVER", "ftp://x");
    let file = place.file(
        "ovn_k8s.conf",
        "[default]\nencap-port=0\n[ovnsouth]\nclient-cert=/nonexistent/c.pem\n",
    );
    let line = "--init-node N1 --mtu 1 --nodeport=maybe --sb-address ssl:1.2.3.4:6642 --cni-socket s \
                --metrics-bind-address 1 --node-server-cert /nonexistent";
    let text = problems(&place, line);
    for expected in [
        "--init-node \"N1\" is no node's name",
        "--mtu: MTU 1 is not between",
        "--nodeport \"maybe\" is neither true nor false",
        "--cni-socket \"s\": give the whole path",
        "--metrics-bind-address \"1\" is no address and port",
        "--node-server-privkey and --node-server-cert: one is of no use without the other",
        "--node-server-cert \"/nonexistent\": No such file",
        "environment variable K8S_APISERVER \"ftp://x\" is not of the form https://HOST:PORT",
        &format!("{}:2: encap-port \"0\" is no number from 1 to 65535", file.display()),
        &format!("{}:4: client-cert \"/nonexistent/c.pem\": No such file", file.display()),
        "--sb-address \"ssl:1.2.3.4:6642\" needs --sb-client-privkey; \
         the usual file /etc/openvswitch/ovnsb-privkey.pem cannot be read",
    ] {
        assert_eq!(text.matches(expected).count(), 1, "{expected}\n{text}");
    }
    assert!(text.starts_with("12 problems with the options\n  "), "{text}");
}

#[test]
fn a_tunnel_that_linux_has_no_device_for_is_refused() {
    for value in ["stt", "geneve,stt"] {
        let text = problems(&Place::new(), &format!("--init-node n1 --encap-type {value}"));
        assert!(text.contains("--encap-type \"stt\" is none of geneve, vxlan"), "{text}");
    }
}

#[test]
fn every_unknown_option_is_named_with_the_nearest() {
    let text = problems(
        &Place::new(),
        "-mtuu=3 --k8s-tokn SECRET --loglvel=4 -nodeport true -xyzzy --init-node",
    );
    for expected in [
        "'--mtuu' (is it --mtu?)",
        "'--k8s-tokn' (is it --k8s-token?)",
        "'--loglvel' (is it --loglevel?)",
        "'true': the value",
        "'--xyzzy'",
        "'--init-node <NODE>'",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    assert!(!text.contains("SECRET") && !text.contains("say what to be"), "{text}");
}

#[test]
fn tls_needs_its_files_and_nothing_else_takes_them() {
    let place = Place::new();
    let [key, certificate, authority] =
        ["k", "c", "a"].map(|name| place.file(name, "").display().to_string());
    let files = format!(
        "--sb-client-privkey {key} --sb-client-cert {certificate} --sb-client-cacert {authority}"
    );
    let node = "--init-node n1 --pod-manifests /m";
    let config = place
        .node(&format!("{node} {files} --sb-address ssl://10.0.0.1:6642"))
        .unwrap()
        .config(&BTreeMap::new())
        .unwrap();
    let tls = config.open_vswitch.chassis.tls.unwrap();
    assert_eq!(
        (tls.private_key.to_str(), tls.authority.to_str()),
        (Some(key.as_str()), Some(authority.as_str()))
    );
    for address in ["--sb-address tcp:10.0.0.1:6642", "--sb-address unix:/x", ""] {
        let text = problems(&place, &format!("{node} {files} {address}"));
        assert_eq!(text.matches("is for ssl:, and the database's address is").count(), 3, "{text}");
    }
    let text = problems(
        &place,
        &format!("{node} --nb-address tcp:10.0.0.1:6641 --nb-client-cert {certificate}"),
    );
    assert!(text.contains("--nb-client-cert"), "{text}");
    // Newer programs use these files for the health checks of egress addresses.
    assert!(
        place
            .node(&format!("{node} --nb-client-cert {certificate}"))
            .unwrap()
            .config(&BTreeMap::new())
            .is_ok()
    );
    let text =
        problems(&place, &format!("{node} --sb-address ssl:10.0.0.1:6642,tcp:10.0.0.2:6642"));
    assert!(text.contains("mixes ssl and tcp"), "{text}");
}

#[test]
fn a_token_and_a_certificate_contradict_each_other() {
    let place = Place::new();
    let file = place.file("c.pem", "").display().to_string();
    let text = problems(
        &place,
        &format!(
            "--init-node n1 --k8s-apiserver https://a --k8s-token SECRET --k8s-client-cert {file}"
        ),
    );
    assert!(
        text.contains("--k8s-token and --k8s-client-cert: give a token or a certificate")
            && !text.contains("SECRET"),
        "{text}"
    );
    let text = problems(
        &place,
        "--init-node n1 --k8s-apiserver https://user:SECRET@a --k8s-cacert-data SECRET",
    );
    assert!(!text.contains("SECRET"), "{text}");
}

#[test]
fn open_vswitchs_database_over_tls_is_refused_because_the_plugin_could_not_reach_it() {
    let place = Place::new();
    let text =
        problems(&place, "--init-node n1 --pod-manifests /m --ovsdb-endpoint ssl:127.0.0.1:6640");
    assert!(
        text.contains("--ovsdb-endpoint \"ssl:127.0.0.1:6640\": the CNI plugin has no TLS"),
        "{text}"
    );
}

#[test]
fn the_plugin_is_told_where_things_are_on_the_host_and_the_server_looks_where_it_is_told() {
    let place = Place::new();
    let of = |more: &str| {
        let config = place
            .node(&format!("--init-node n1 --pod-manifests /m {more}"))
            .unwrap()
            .config(&BTreeMap::new())
            .unwrap();
        let places = config.cni_conf.places();
        let ovs = config.open_vswitch;
        (
            ovs.endpoint.to_string(),
            ovs.ovn_run_dir.display().to_string(),
            places.ovsdb_endpoint,
            places.ovn_run_dir,
        )
    };
    let some = |text: &str| Some(text.to_owned());
    let (usual, ovn) = ("unix:/var/run/openvswitch/db.sock".to_owned(), "/var/run/ovn".to_owned());
    assert_eq!(of(""), (usual.clone(), ovn.clone(), None, None));
    assert_eq!(
        of("--ovn-run-dir /var/run/ovn-ic"),
        (usual.clone(), "/var/run/ovn-ic".to_owned(), None, some("/var/run/ovn-ic"))
    );
    assert_eq!(
        of("--ovs-run-dir /ovs --host-ovs-run-dir /run/host-ovs --host-ovn-run-dir /run/host-ovn"),
        (
            "unix:/ovs/db.sock".to_owned(),
            ovn,
            some("unix:/run/host-ovs/db.sock"),
            some("/run/host-ovn")
        )
    );
    let (_, _, endpoint, run_dir) = of(
        "--ovs-run-dir /ovs --host-ovs-run-dir /var/run/openvswitch --ovn-run-dir /o --host-ovn-run-dir /var/run/ovn",
    );
    assert_eq!((endpoint, run_dir), (None, None), "the plugin's usual places need not be told");
    let text = problems(&place, "--init-node n1 --pod-manifests /m --ovn-run-dir ovn");
    assert!(text.contains("--ovn-run-dir \"ovn\": give the whole path"), "{text}");
}

#[test]
fn a_secret_is_in_no_debug_text() {
    let place = Place::new();
    let node = place.node("--init-node n1 --k8s-apiserver https://a --k8s-token SECRET").unwrap();
    let config = node.config(&BTreeMap::new()).unwrap();
    assert!(!format!("{node:?} {config:?}").contains("SECRET"));
}

#[test]
fn what_only_open_vswitchs_database_can_say_is_no_problem_before_it_is_asked() {
    let node = Place::new().node("--init-node n1").expect("it may be in external_ids");
    assert_eq!(node.early().name, "n1");
    let external_ids = [("k8s-api-server".to_owned(), "10.0.0.1:8080".to_owned())].into();
    assert!(node.config(&external_ids).is_ok());
    assert!(
        node.config(&BTreeMap::new())
            .unwrap_err()
            .to_string()
            .contains("say where pods are known from")
    );
}
