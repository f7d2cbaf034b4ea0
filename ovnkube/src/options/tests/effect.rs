//! Options without effect for the roles of the process are reported, and no others.

use std::collections::BTreeMap;

use super::{
    super::{
        Program,
        kind::Kind,
        spec::{Effect, Group, Spec},
        table::{self, gateway, open_vswitch},
    },
    Place,
};

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
    let of_controller = "--nb-address tcp:10.0.0.1:6641 --acl-logging-rate-limit 7";
    let of_manager = "--cluster-manager-ha-election-retry-period 3";
    let listed = "--encap-ip, --encap-port";
    // The MTU is that of gateway routers, too.
    let cni = "--cni-conf-dir, --cni-bin-dir";
    for (line, expected) in [
        (
            format!("--init-node a {API} {of_node} {of_controller} --encap-port 6081"),
            vec!["without effect with --init-node: --nb-address, --acl-logging-rate-limit".to_owned()],
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
            Vec::new(),
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
        assert_eq!(
            notes(&format!("{line} --ovn-empty-lb-events=false")),
            Vec::<String>::new(),
            "for chassis"
        );
        let without_address = format!("{role} {API} --sb-cert-common-name ovn");
        let named = role.split_once(' ').unwrap().0;
        assert_eq!(
            notes(&without_address),
            [format!("without effect with {named}: --sb-cert-common-name")],
        );
    }
    // The cluster manager alone knows nothing of Services.
    let manager =
        notes(&format!("--init-cluster-manager a {API} {southbound} --ovn-empty-lb-events"));
    assert!(manager[0].contains("--sb-address, --sb-cert-common-name"), "{manager:?}");
}

#[test]
fn what_a_file_says_for_another_role_is_named_with_its_place() {
    let place = Place::new();
    let file =
        place.file("ovn_k8s.conf", "[default]\nmtu=1300\n[ovnnorth]\naddress=tcp:10.0.0.1:6641\n");
    let file = file.display();
    assert_eq!(
        notes_at(&place, &format!("--init-node a {API}")),
        [format!("without effect with --init-node: {file}:4: address")]
    );
    assert_eq!(notes_at(&place, &format!("--init-master a {API}")), Vec::<String>::new());
    assert_eq!(
        notes_at(&place, &format!("--init-cluster-manager a {API}")),
        [format!("without effect with --init-cluster-manager: {file}:2: mtu, {file}:4: address")]
    );
    // Files of the Python programs give every default.
    place.file("ovn_k8s.conf", "[default]\nprivate_key=/k\nk8s_ca_certificate=/c\n");
    assert_eq!(notes_at(&place, &format!("--init-node a {API}")), Vec::<String>::new());
}

/// An option that the node or the controller used was named as one without effect, and others that
/// none used were not named.
#[test]
fn what_a_node_or_a_controller_uses_is_not_named_and_what_nobody_uses_is() {
    let of_both =
        "--mtu 1300 --disable-snat-multiple-gws --gateway-v4-masquerade-subnet 169.254.0.0/17";
    let gateway =
        "--gateway-interface e1 --gateway-nexthop 192.0.2.1 --nodeport --conntrack-zone 7";
    for (line, expected) in [
        (format!("--init-master a {API} {of_both}"), Vec::new()),
        (
            format!(
                "--init-node a {API} --gateway-mode shared {of_both} {gateway} --gateway-vlanid 4"
            ),
            Vec::new(),
        ),
        (
            format!("--init-node a {API} {of_both} {gateway} --gateway-vlanid 4"),
            vec![
                "without effect without a gateway mode: --gateway-interface, --gateway-nexthop, --gateway-vlanid, \
                 --nodeport, --conntrack-zone, --disable-snat-multiple-gws",
            ],
        ),
        (
            format!("--init-node a {API} --gateway-mode local --nodeport"),
            vec!["without effect in local mode: --nodeport"],
        ),
        (
            format!("--init-node a {API} --node-subnets 10.244.1.0/24"),
            vec!["without effect beside the API server: --node-subnets"],
        ),
        ("--init-node a --pod-manifests /m --node-subnets 10.244.1.0/24".to_owned(), Vec::new()),
        (
            format!(
                "--init-cluster-manager a {API} {of_both} --acl-logging-rate-limit 7 --enable-multicast \
                 --enable-svc-template-support --enable-stateless-netpol --ovn-empty-lb-events \
                 --gateway-v4-join-subnet 100.65.0.0/16 --zone z"
            ),
            vec!["without effect with --init-cluster-manager: "],
        ),
    ] {
        let mut notes = notes(&line);
        if line.contains("--init-cluster-manager") {
            let [note] = &notes[..] else { panic!("{notes:?}") };
            for unused in [
                "--mtu",
                "--disable-snat",
                "--gateway-v4-masquerade",
                "--acl-logging",
                "--enable-multicast",
                "--enable-svc-template",
                "--enable-stateless",
                "--ovn-empty-lb-events",
            ] {
                assert!(note.contains(unused), "{unused}: {note}");
            }
            assert!(!note.contains("join-subnet") && !note.contains("zone"), "{note}");
            notes = vec![expected[0].to_owned()];
        }
        assert_eq!(notes, expected, "{line}");
    }
}

/// A value of the option that is not its default, as far as its form tells one.
fn another_value(spec: &Spec) -> Option<String> {
    let numbers = |least: u64, most: u64| {
        [least, most, least + 1, 7].map(|number| number.to_string()).to_vec()
    };
    let values = match spec.kind {
        Kind::Switch => vec!["true".to_owned(), "false".to_owned()],
        Kind::Number { least, most } => numbers(least, most.min(u32::MAX.into())),
        Kind::Span => vec!["77s".to_owned()],
        Kind::Checked { value_name: "BYTES", .. } => vec!["1342".to_owned()],
        Kind::Checked { value_name: "CIDR", .. } => {
            vec!["192.168.0.0/17".to_owned(), "fd77::/64".to_owned()]
        }
        Kind::Checked { value_name: "IPS", .. } => vec!["192.0.2.9".to_owned()],
        Kind::Checked { value_name: "ID", .. } => vec!["7".to_owned()],
        Kind::Checked { .. } | Kind::Text | Kind::Path | Kind::Secret => Vec::new(),
    };
    values.into_iter().find(|value| *value != spec.default && spec.kind.check(value).is_ok())
}

/// What the roles of a process have made of its options, and its notes; none if they are not valid
/// together.
fn read(line: &str) -> Option<(String, Vec<String>)> {
    match Place::new().options(line).program().ok()? {
        Program::Node(options) => {
            let config = options.config(&BTreeMap::new()).ok()?;
            Some((format!("{:?} {config:?}", options.early()), options.notes()))
        }
        Program::ControlPlane(config, collected) => {
            Some((format!("{config:?}"), collected.notes()))
        }
        _ => None,
    }
}

/// The notes were a list that was kept by hand: an option that changed the configuration was named
/// as one without effect, and others that changed nothing were not.
#[test]
fn an_option_is_named_as_without_effect_if_and_only_if_it_changes_no_configuration() {
    let mut compared = 0;
    // Of both families: a range of a family that pods do not have changes nothing.
    let dual =
        "--cluster-subnets 10.1.0.0/16,fd01::/48 --k8s-service-cidrs 10.96.0.0/16,fd02::/112";
    for role in [
        "--init-node a",
        "--init-node a --gateway-mode shared",
        "--init-master a",
        "--init-ovnkube-controller a",
    ] {
        let line = format!("{role} {API} --k8s-token t {dual}");
        let (before, none) = read(&line).unwrap();
        assert_eq!(none, Vec::<String>::new(), "{line}");
        for spec in table::all().filter(|spec| spec.effect == Effect::Full) {
            let Some(value) = another_value(spec) else { continue };
            let Some((after, notes)) = read(&format!("{line} --{}={value}", spec.name)) else {
                continue;
            };
            let (is_used, is_named) = (before != after, !notes.is_empty());
            compared += 1;
            // The port is not that of tunnels, but of what the node checks.
            let is_tunnel_port = spec.name == open_vswitch::ENCAP_PORT.name;
            assert!(
                !(is_used && is_named) || is_tunnel_port,
                "{role}: --{} changes the configuration: {notes:?}",
                spec.name
            );
            // The former spelling of a gateway mode says nothing new beside the mode.
            let is_former = spec.name == gateway::INIT_GATEWAYS.name;
            if [Group::Gateway, Group::Cluster].contains(&spec.group) && !is_former {
                assert!(is_used || is_named, "{role}: --{}={value} changes nothing", spec.name);
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn an_address_beside_a_kubeconfig_is_without_effect() {
    let mut place = Place::new();
    let (kubeconfig, ca) = (place.file("kubeconfig", ""), place.file("ca", ""));
    let line = format!(
        "--k8s-kubeconfig {} --k8s-token t --k8s-cacert {}",
        kubeconfig.display(),
        ca.display()
    );
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
    // An address from a better source counts. The service account is not reported: every pod has
    // one.
    place.variable("KUBECONFIG", kubeconfig.to_str().unwrap());
    assert_eq!(notes_at(&place, &format!("--init-node a {API}")), Vec::<String>::new());
    place = place.service_account();
    assert_eq!(notes_at(&place, "--init-node a"), Vec::<String>::new());
}

#[test]
fn net_controller_is_named_where_it_opens_no_database() {
    let tcp = "--nb-address tcp:192.0.2.1:6631";
    let without = "--net-controller opens databases that have a tcp: address, and has no other \
                   effect since 2019";
    for (line, expected) in [
        (format!("--init-master a {API} --net-controller {tcp}"), Vec::new()),
        (format!("--init-master a {API} --net-controller"), vec![without]),
        (format!("--init-master a {API} --net-controller=false {tcp}"), vec![without]),
        (
            format!("--init-master a {API} --net-controller --open-databases=false {tcp}"),
            vec![without],
        ),
        (
            format!("--init-node a {API} --net-controller"),
            vec!["without effect with --init-node: --net-controller"],
        ),
    ] {
        assert_eq!(notes(&line), expected, "{line}");
    }
}

/// The files of a database's server were said to be "set where the server runs", without the
/// command that does it.
#[test]
fn a_file_of_a_databases_server_that_nobody_uses_is_named_with_the_command_in_its_place() {
    let place = Place::new();
    let files = ["privkey", "cert", "cacert"];
    let server = files.map(|file| format!("--nb-server-{file} /nb/{file}")).join(" ");
    let client = files
        .map(|file| format!("--nb-client-{file} {}", place.file(file, "").display()))
        .join(" ");
    let tls = format!("--nb-address ssl:192.0.2.1:6641 {client}");
    let without = "without effect: --nb-server-privkey, --nb-server-cert, --nb-server-cacert; a controller opens a \
                   database that has an ssl: address and all three files. Where the database runs: ovn-nbctl \
                   set-ssl PRIVKEY CERT CACERT -- set-connection pssl:PORT";
    for (line, expected) in [
        (format!("--init-master a {API} {server}"), vec![without.to_owned()]),
        (format!("--init-node a {API} {server}"), vec![without.to_owned()]),
        (format!("--init-master a {API} {tls} {server}"), Vec::new()),
    ] {
        assert_eq!(notes_at(&place, &line), expected, "{line}");
    }
    let southbound = notes(&format!("--init-master a {API} --sb-server-cert /sb/cert"));
    assert!(
        southbound[0].contains("--sb-server-cert;") && southbound[0].contains("ovn-sbctl set-ssl"),
        "{southbound:?}"
    );
}
