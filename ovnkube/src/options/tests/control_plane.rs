//! The configuration of the control plane, except the cluster's network.

use std::{path::PathBuf, time::Duration};

use kube::core::SelectorExt as _;
use ovsdb::MissingAuthority;

use super::{super::Program, Place};
use crate::control_plane::{ControlPlaneConfig, Election, Probe, RemoveNodeConfig};

fn config_at(place: &Place, line: &str) -> Result<ControlPlaneConfig, String> {
    match place.options(&format!("{line} --k8s-apiserver https://a")).program() {
        Ok(Program::ControlPlane(config, _) | Program::Both(config, _)) => Ok(*config),
        Ok(other) => Err(format!("{other:?}")),
        Err(problems) => Err(problems.to_string()),
    }
}

fn config(line: &str) -> Result<ControlPlaneConfig, String> {
    config_at(&Place::new(), line)
}

fn election(line: &str) -> Option<Election> {
    config(line).expect(line).election
}

fn seconds(election: &Election) -> [u64; 3] {
    [election.duration, election.renew_deadline, election.retry_period].map(|time| time.as_secs())
}

/// A process of both roles took one Lease, and a controller alone another one: both wrote to one
/// database.
#[test]
fn each_role_has_its_lease_and_a_process_of_both_roles_has_both() {
    let leases =
        |line: &str| election(line).map(|election| (election.lease, election.second_lease));
    let one = |lease: &str| Some((lease.to_owned(), None));
    let both = |zone: &str| {
        Some(("ovn-kubernetes-master".to_owned(), Some(format!("ovn-kubernetes-master-{zone}"))))
    };
    assert_eq!(leases("--init-cluster-manager m"), one("ovn-kubernetes-master"));
    assert_eq!(leases("--init-ovnkube-controller m"), one("ovn-kubernetes-master-global"));
    assert_eq!(leases("--init-ovnkube-controller m --zone z1"), one("ovn-kubernetes-master-z1"));
    assert_eq!(leases("--init-master m"), both("global"));
    assert_eq!(leases("--init-cluster-manager m --init-ovnkube-controller m"), both("global"));
    assert_eq!(leases("--init-master m --zone z1"), both("z1"));
    assert_eq!(leases("--init-master m --init-node m"), both("global"));
    assert_eq!(
        leases("--init-ovnkube-controller m --init-node m --zone m"),
        None,
        "the node's own zone"
    );
    assert_eq!(
        leases("--init-ovnkube-controller m --init-node m"),
        one("ovn-kubernetes-master-global"),
        "the zone of all nodes"
    );
    let namespace = |line: &str| election(line).unwrap().namespace;
    assert_eq!(namespace("--init-master m"), "ovn-kubernetes");
    assert_eq!(namespace("--init-master m --ovn-config-namespace net"), "net");
}

/// API servers before 1.14 have no Leases.
#[test]
fn without_an_election_a_pidfile_keeps_a_second_control_plane_from_starting() {
    let line = "--init-master m --ha-election=false";
    assert_eq!(election(&format!("{line} --pidfile /run/m.pid")), None);
    assert!(election("--init-master m --ha-election --pidfile /run/m.pid").is_some());
    assert!(config(line).unwrap_err().contains("--ha-election=false needs --pidfile"));
}

#[test]
fn an_elections_times_are_those_of_its_role() {
    let line = "--ha-election-lease-duration 15 --ha-election-renew-deadline=10 --ha-election-retry-period 2";
    assert_eq!(seconds(&election("--init-master m").unwrap()), [137, 107, 26]);
    assert_eq!(seconds(&election(&format!("--init-master m {line}")).unwrap()), [15, 10, 2]);
    assert_eq!(
        seconds(&election(&format!("--init-cluster-manager m {line}")).unwrap()),
        [137, 107, 26]
    );
    let of_manager = line.replace("--ha-", "--cluster-manager-ha-");
    assert_eq!(
        seconds(&election(&format!("--init-cluster-manager m {of_manager}")).unwrap()),
        [15, 10, 2]
    );
}

#[test]
fn times_that_make_no_election_are_said_with_both_options() {
    let place = Place::new();
    let file = place.file("ovn_k8s.conf", "[masterha]\nelection-lease-duration=20\n");
    let text = config_at(
        &place,
        "--init-master m --ha-election-renew-deadline 20 --ha-election-retry-period 17",
    )
    .unwrap_err();
    for expected in [
        format!(
            "--ha-election-renew-deadline (20 s) has to be less than {}:2: election-lease-duration (20 s)",
            file.display()
        ),
        "--ha-election-renew-deadline (20 s) has to be more than 1.2 times --ha-election-retry-period (17 s)"
            .to_owned(),
    ] {
        assert_eq!(text.matches(&expected).count(), 1, "{expected}\n{text}");
    }
    let text = config("--init-master m --ha-election-retry-period 0 --ovn-config-namespace A")
        .unwrap_err();
    for expected in [
        "--ha-election-retry-period \"0\" is no number from 1",
        "--ovn-config-namespace \"A\" is no namespace",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}

#[test]
fn the_controller_alone_needs_the_northbound_database() {
    assert!(
        config("--init-cluster-manager m --nb-address ssl:1.2.3.4:6641")
            .unwrap()
            .northbound
            .is_none()
    );
    let northbound = config("--init-master m --nb-run-dir /run/x").unwrap().northbound.unwrap();
    assert_eq!(
        (northbound.endpoints.to_string(), northbound.ssl),
        ("unix:/run/x/ovnnb_db.sock".to_owned(), None)
    );
    let northbound = config("--init-master m -nb-address=tcp://10.0.0.1:6641,tcp://10.0.0.2:6641")
        .unwrap()
        .northbound
        .unwrap();
    assert_eq!(northbound.endpoints.to_string(), "tcp:10.0.0.1:6641,tcp:10.0.0.2:6641");
}

#[test]
fn the_northbound_database_is_probed_as_somebody_says_or_as_the_client_does_by_itself() {
    let probe = |more: &str| {
        config(&format!("--init-master m --nb-run-dir /run/x {more}"))
            .unwrap()
            .northbound
            .unwrap()
            .probe
    };
    assert_eq!(probe(""), None, "the option's default is ovn-controller's");
    assert_eq!(probe("--inactivity-probe 100000"), Some(Probe::After(Duration::from_secs(100))));
    assert_eq!(probe("--inactivity-probe=0"), Some(Probe::Never));
}

#[test]
fn tls_to_the_northbound_database_needs_its_files() {
    let text = config("--init-master m --nb-address ssl:10.0.0.1:6641").unwrap_err();
    for (option, usual) in [
        ("--nb-client-privkey", "ovnnb-privkey.pem"),
        ("--nb-client-cert", "ovnnb-cert.pem"),
        ("--nb-client-cacert", "ovnnb-ca.cert"),
    ] {
        let expected = format!(
            "--nb-address \"ssl:10.0.0.1:6641\" needs {option}; \
             the usual file /etc/openvswitch/{usual} cannot be read"
        );
        assert_eq!(text.matches(&expected).count(), 1, "{expected}\n{text}");
    }
    let place = Place::new();
    let [key, certificate, authority] =
        ["k", "c", "a"].map(|name| place.file(name, "").display().to_string());
    let files = format!("--nb-client-privkey {key} --nb-client-cert {certificate}");
    let line = format!(
        "--init-master m --nb-address ssl:10.0.0.1:6641 {files} --nb-client-cacert {authority} \
         --nb-cert-common-name ovn"
    );
    let tls = config_at(&place, &line).unwrap().northbound.unwrap().ssl.unwrap();
    assert_eq!(
        (tls.authority, tls.common_name.as_deref()),
        (PathBuf::from(authority), Some("ovn"))
    );
    assert_eq!(tls.missing_authority, MissingAuthority::Refuse);
    let text =
        config_at(&place, &format!("--init-master m --nb-address tcp:10.0.0.1:6641 {files}"))
            .unwrap_err();
    assert_eq!(
        text.matches("is for ssl:, and the database's address is tcp:10.0.0.1:6641").count(),
        2,
        "{text}"
    );
}

#[test]
fn an_authority_that_is_not_there_may_come_with_the_first_connection_on_request_only() {
    let place = Place::new();
    let [key, certificate] = ["k", "c"].map(|name| place.file(name, "").display().to_string());
    let absent = place.path("ca.pem");
    let line = format!(
        "--init-master m --nb-address ssl:10.0.0.1:6641 --nb-client-privkey {key} --nb-client-cert \
         {certificate} --nb-client-cacert {}",
        absent.display()
    );
    assert!(config_at(&place, &line).unwrap_err().contains("--nb-client-cacert"));
    let tls = config_at(&place, &format!("{line} --bootstrap-ca-cert"))
        .unwrap()
        .northbound
        .unwrap()
        .ssl
        .unwrap();
    assert_eq!((tls.authority, tls.missing_authority), (absent, MissingAuthority::Bootstrap));
}

#[test]
fn the_control_plane_needs_an_api_server() {
    let problems = Place::new()
        .options("--init-master m --pod-manifests /m")
        .program()
        .expect_err("there is none")
        .to_string();
    assert!(
        problems
            .contains("say how the control plane reaches the API server: --k8s-kubeconfig FILE"),
        "{problems}"
    );
}

#[test]
fn foreign_nodes_are_those_that_the_selector_selects() {
    let config = config("--init-master m --no-hostsubnet-nodes kubernetes.io/os=windows").unwrap();
    let labels =
        std::collections::BTreeMap::from([("kubernetes.io/os".to_owned(), "windows".to_owned())]);
    assert!(config.foreign_nodes.expect("a selector").matches(&labels));
    assert!(self::config("--init-master m").unwrap().foreign_nodes.is_none());
}

#[test]
fn a_node_is_removed_from_both_databases_and_the_api_server_may_be_asked() {
    let removed = |line: &str| -> RemoveNodeConfig {
        match Place::new().options(line).program() {
            Ok(Program::RemoveNode(config)) => *config,
            other => panic!("{line}: {other:?}"),
        }
    };
    let config =
        removed("--remove-node n2 --nb-address tcp:10.0.0.1:6641 --sb-address tcp:10.0.0.1:6642");
    assert_eq!(
        (config.node.as_str(), config.southbound.endpoints.to_string()),
        ("n2", "tcp:10.0.0.1:6642".to_owned())
    );
    assert!(config.api_server.is_none() && config.patience == Duration::from_secs(100));
    let none = Place::new()
        .options("--remove-node n2 --db-txn-timeout 0s")
        .program()
        .expect_err("no time")
        .to_string();
    assert!(none.contains("--db-txn-timeout \"0s\" leaves no time at all"), "{none}");
    assert!(removed("--remove-node n2 --k8s-apiserver https://a").api_server.is_some());
}

#[test]
fn what_parts_that_do_not_exist_yet_were_told_is_noted() {
    let Ok(Program::ControlPlane(_, options)) = Place::new()
        .options(
            "--init-master m --k8s-apiserver https://a --disable-pkt-mtu-check --enable-egress-ip",
        )
        .program()
    else {
        panic!("it can be used")
    };
    let notes = options.notes().join("\n");
    for (part, option) in [
        ("the node's gateway", "--disable-pkt-mtu-check"),
        ("how pods leave the cluster", "--enable-egress-ip"),
    ] {
        assert!(
            notes.contains(&format!("without effect in this version, for {part}: {option}")),
            "{part}\n{notes}"
        );
    }
}

#[test]
fn the_masters_of_2018() {
    let place = Place::new();
    let ca = place.file("ca.crt", "");
    let line = format!(
        "-k8s-cacert {} -k8s-token TOKEN -init-master m1 -net-controller -cluster-subnet=192.168.0.0/16 \
         -service-cluster-ip-range=172.16.1.0/24 -nodeport -nb-address=tcp://10.0.0.1:6631 \
         -sb-address=tcp://10.0.0.1:6632 -init-gateways -loglevel=4 \
         -logfile=/var/log/openvswitch/ovnkube.log -pidfile /var/run/openvswitch/ovnkube-master.pid",
        ca.display()
    );
    let config = config_at(&place, &line).unwrap();
    assert_eq!(
        (config.identity.as_str(), config.cluster.cluster_subnets[0].host_length),
        ("m1", 24)
    );
    assert!(!format!("{config:?}").contains("TOKEN"));
}

/// Where each database is opened, and with which key.
fn opened(line: &str) -> Result<Vec<(String, Option<String>)>, String> {
    let listeners = config(line)?.opened.into_iter();
    Ok(listeners
        .map(|listener| (listener.target, listener.tls.map(|files| files.private_key)))
        .collect())
}

#[test]
fn databases_are_opened_where_it_is_asked_for_and_on_the_ports_of_their_addresses() {
    let plain = |targets: [&str; 2]| targets.map(|target| (target.to_owned(), None)).to_vec();
    for (line, expected) in [
        ("--init-master m --nb-address tcp:192.0.2.1:6641", Vec::new()),
        ("--init-master m --open-databases", plain(["ptcp:6641", "ptcp:6642"])),
        (
            "--init-master m --open-databases --nb-address tcp:192.0.2.1:6631 --sb-address tcp:192.0.2.1:6632",
            plain(["ptcp:6631", "ptcp:6632"]),
        ),
        (
            "--init-ovnkube-controller m --open-databases --nb-address tcp:[fd00::1]:6641,tcp:[fd00::2]:6641",
            plain(["ptcp:6641:[::]", "ptcp:6642"]),
        ),
        ("--init-cluster-manager m --open-databases", Vec::new()),
    ] {
        assert_eq!(opened(line), Ok(expected), "{line}");
    }
    let ports = opened(
        "--init-master m --open-databases --nb-address tcp:192.0.2.1:6641,tcp:192.0.2.2:6651",
    );
    let problem = ports.unwrap_err();
    assert!(problem.contains("--nb-address has several ports"), "{problem}");
}

/// As the command lines of 2018 rely on it.
#[test]
fn net_controller_opens_the_databases_that_have_a_tcp_address_and_no_other() {
    let both = "-nb-address=tcp://192.0.2.1:6631 -sb-address=tcp://192.0.2.1:6632";
    for (line, expected) in [
        (format!("-init-master=m -net-controller {both}"), vec!["ptcp:6631", "ptcp:6632"]),
        (
            "--init-master m --net-controller --sb-address tcp:192.0.2.1:6642".to_owned(),
            vec!["ptcp:6642"],
        ),
        (format!("-init-master=m -net-controller=false {both}"), Vec::new()),
        ("-init-master=m -net-controller".to_owned(), Vec::new()),
        // Of this machine alone, and so it stays.
        ("-init-master=m -net-controller -nb-address=tcp:127.0.0.1:6641".to_owned(), Vec::new()),
        ("-init-master=m -net-controller -nb-address=tcp:[::1]:6641".to_owned(), Vec::new()),
        ("-init-master=m -net-controller -nb-address=unix:/nb.sock".to_owned(), Vec::new()),
        (format!("-init-cluster-manager=m -net-controller {both}"), Vec::new()),
        (format!("-init-master=m -net-controller -open-databases=false {both}"), Vec::new()),
    ] {
        let opened = opened(&line).unwrap().into_iter();
        let targets: Vec<String> = opened.map(|(target, _)| target).collect();
        assert_eq!(targets, expected, "{line}");
    }
}

#[test]
fn a_database_with_tls_is_opened_with_the_files_of_its_server() {
    let place = Place::new();
    let client = |side: &str| {
        let files = ["privkey", "cert", "cacert"].map(|file| {
            place.file(file, "");
            format!("--{side}-client-{file} {}", place.path(file).display())
        });
        format!(
            "--{side}-address ssl:192.0.2.1:{} {}",
            if side == "nb" { 6641 } else { 6642 },
            files.join(" ")
        )
    };
    let server = |side: &str| {
        ["privkey", "cert", "cacert"]
            .map(|file| format!("--{side}-server-{file} /{side}/{file}"))
            .join(" ")
    };
    let of = |target: &str, key: &str| (target.to_owned(), Some(key.to_owned()));
    let northbound = format!("--init-master m {} {}", client("nb"), server("nb"));
    assert_eq!(
        opened(&northbound),
        Ok(vec![of("pssl:6641", "/nb/privkey")]),
        "without further words"
    );
    let without_files = format!("--init-master m --net-controller {}", client("nb"));
    assert_eq!(opened(&without_files), Ok(Vec::new()), "as before");
    let both = format!("{northbound} --open-databases {} {}", client("sb"), server("sb"));
    let expected = vec![of("pssl:6641", "/nb/privkey"), of("pssl:6642", "/sb/privkey")];
    assert_eq!(opened(&both), Ok(expected));

    // What would be open to everybody by default, beside a database that is not.
    let problem = opened(&format!("{northbound} --open-databases")).unwrap_err();
    assert!(
        problem.contains("--sb-address is missing, and the other database has ssl:"),
        "{problem}"
    );
    let mixed = format!("{northbound} --open-databases --sb-address tcp:192.0.2.1:6642");
    assert_eq!(opened(&mixed).unwrap()[1], ("ptcp:6642".to_owned(), None), "it is said so");
    let problem =
        opened(&format!("--init-master m {} --open-databases", client("nb"))).unwrap_err();
    assert!(
        problem.contains(
            "ssl: in --nb-address needs --nb-server-privkey, --nb-server-cert, --nb-server-cacert"
        ),
        "{problem}"
    );
}
