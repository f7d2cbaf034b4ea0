//! Options without effect for the roles of the process are reported, and no others.

use super::{super::Program, Place};

const API: &str = "--k8s-apiserver https://a:6443";

fn notes_at(place: &Place, line: &str) -> Vec<String> {
    match place.options(line).program() {
        Ok(Program::Node(options) | Program::Both(_, options)) => options.notes(),
        Ok(Program::ControlPlane(_, collected)) => collected.notes(),
        other => panic!("{line}: {other:?}"),
    }
}

fn notes(line: &str) -> Vec<String> {
    notes_at(&Place::new(), line)
}

#[test]
fn an_option_of_another_role_is_without_effect() {
    let of_node = "--sb-address tcp:10.0.0.1:6642 --mtu 1300 --cni-conf-dir /c --cni-bin-dir /b --encap-ip \
                   10.0.0.7 --encap-port 6082";
    let of_controller = "--nb-address tcp:10.0.0.1:6641 --gateway-v4-join-subnet 100.65.0.0/16";
    let of_manager = "--cluster-manager-ha-election-retry-period 3";
    let listed = "--encap-ip, --encap-port, --sb-address";
    let cni = "--mtu, --cni-conf-dir, --cni-bin-dir";
    for (line, expected) in [
        (
            format!("--init-node a {API} {of_node} {of_controller} --encap-port 6081"),
            vec!["without effect with --init-node: --nb-address, --gateway-v4-join-subnet".to_owned()],
        ),
        (
            format!("--init-master a {API} {of_node} {of_controller}"),
            vec![format!("without effect with --init-master: {cni}, {listed}")],
        ),
        (
            format!("--init-ovnkube-controller a {API} {of_manager} {of_controller}"),
            vec![
                "without effect with --init-ovnkube-controller: --cluster-manager-ha-election-retry-period"
                    .to_owned(),
            ],
        ),
        (
            format!("--init-cluster-manager a {API} {of_manager} --nb-address tcp:10.0.0.1:6641"),
            vec!["without effect with --init-cluster-manager: --nb-address".to_owned()],
        ),
        (
            format!("--init-cluster-manager a --init-ovnkube-controller a {API} {of_controller} --mtu 1300"),
            vec![
                "without effect with --init-cluster-manager and --init-ovnkube-controller: --mtu".to_owned(),
            ],
        ),
        // In one process with a node's server, one of the roles uses each of these options.
        (
            format!("--init-master a --init-node a {API} {of_node} {of_controller} --encap-port 6081"),
            Vec::new(),
        ),
        (
            format!(
                "--init-node a {API} --inactivity-probe 5 --zone z --cluster-subnets 10.0.0.0/16 --pidfile \
                 /p --loglevel 5"
            ),
            Vec::new(),
        ),
        (
            format!(
                "--init-master a {API} --inactivity-probe 5 --zone z --cluster-subnets 10.0.0.0/16 --pidfile \
                 /p --loglevel 5"
            ),
            Vec::new(),
        ),
    ] {
        assert_eq!(notes(&line), expected, "{line}");
    }
}

/// The address was used, and named as one without effect.
#[test]
fn the_southbound_database_of_a_controller_that_unidles_is_not_named_as_without_effect() {
    let southbound = "--sb-address tcp:10.0.0.1:6642 --sb-cert-common-name ovn";
    for role in ["--init-master a", "--init-ovnkube-controller a --zone z"] {
        let line = format!("{role} {API} {southbound}");
        assert_eq!(notes(&format!("{line} --ovn-empty-lb-events")), Vec::<String>::new(), "{role}");
        let named = role.split_once(' ').unwrap().0;
        for without in ["", "--ovn-empty-lb-events=false"] {
            assert_eq!(
                notes(&format!("{line} {without}")),
                [format!("without effect with {named}: --sb-address, --sb-cert-common-name")],
            );
        }
    }
    // The cluster manager alone knows nothing of Services.
    let manager = notes(&format!("--init-cluster-manager a {API} {southbound} --ovn-empty-lb-events"));
    assert!(manager[0].contains("--sb-address, --sb-cert-common-name"), "{manager:?}");
}

#[test]
fn what_a_file_says_for_another_role_is_named_with_its_place() {
    let place = Place::new();
    let file = place.file("ovn_k8s.conf", "[default]\nmtu=1300\n[ovnnorth]\naddress=tcp:10.0.0.1:6641\n");
    let file = file.display();
    assert_eq!(
        notes_at(&place, &format!("--init-node a {API}")),
        [format!("without effect with --init-node: {file}:4: address")]
    );
    assert_eq!(
        notes_at(&place, &format!("--init-master a {API}")),
        [format!("without effect with --init-master: {file}:2: mtu")]
    );
    // Files of the Python programs give every default.
    place.file("ovn_k8s.conf", "[default]\nprivate_key=/k\nk8s_ca_certificate=/c\n");
    assert_eq!(notes_at(&place, &format!("--init-node a {API}")), Vec::<String>::new());
}

#[test]
fn an_address_beside_a_kubeconfig_is_without_effect() {
    let mut place = Place::new();
    let (kubeconfig, ca) = (place.file("kubeconfig", ""), place.file("ca", ""));
    let line =
        format!("--k8s-kubeconfig {} --k8s-token t --k8s-cacert {}", kubeconfig.display(), ca.display());
    for role in ["--init-node a", "--init-master a"] {
        let expected = ["without effect beside --k8s-kubeconfig: --k8s-apiserver, --k8s-cacert"];
        assert_eq!(notes_at(&place, &format!("{role} {line} {API}")), expected);
    }
    let manifests = "without effect beside --pod-manifests: --k8s-apiserver";
    assert_eq!(notes(&format!("--init-node a --pod-manifests /m {API}")), [manifests]);
    assert_eq!(
        notes(&format!("--init-node a --init-master a --pod-manifests /m {API}")),
        Vec::<String>::new()
    );
    // An address from a better source counts. The service account is not reported: every pod has one.
    place.variable("KUBECONFIG", kubeconfig.to_str().unwrap());
    assert_eq!(notes_at(&place, &format!("--init-node a {API}")), Vec::<String>::new());
    place = place.service_account();
    assert_eq!(notes_at(&place, "--init-node a"), Vec::<String>::new());
}
