//! Ranges of addresses, and the rules between them.

use std::collections::BTreeMap;

use controller::config::{ClusterConfig, Interconnect, Multicast, Templates};

use super::{super::Program, Place};

fn cluster_at(place: &Place, line: &str) -> Result<ClusterConfig, String> {
    match place.options(&format!("--init-master m --k8s-apiserver https://a {line}")).program() {
        Ok(Program::ControlPlane(config, _)) => Ok(config.cluster),
        Ok(other) => Err(format!("{other:?}")),
        Err(problems) => Err(problems.to_string()),
    }
}

fn cluster(line: &str) -> Result<ClusterConfig, String> {
    cluster_at(&Place::new(), line)
}

fn texts<T: ToString>(list: &[T]) -> Vec<String> {
    list.iter().map(T::to_string).collect()
}

/// Upstream's programs since 2026 have no option for the zone: a node is one.
#[test]
fn a_controller_beside_a_nodes_server_has_the_nodes_zone_if_zones_are_connected() {
    let zone = |line: &str| {
        let line = format!("{line} --k8s-apiserver https://a --k8s-token t");
        match Place::new().options(&line).program() {
            Ok(Program::ControlPlane(config, _) | Program::Both(config, _)) => {
                (config.cluster.zone.0, config.cluster.interconnect, config.southbound.is_some())
            }
            other => panic!("{line}: {other:?}"),
        }
    };
    let both = "--init-ovnkube-controller n1 --init-node n1";
    let on = |zone: &str| (zone.to_owned(), Interconnect::On, true);
    assert_eq!(
        zone(&format!("{both} --enable-interconnect")),
        ("n1".to_owned(), Interconnect::NodeZones, true)
    );
    assert_eq!(zone(&format!("{both} --enable-interconnect --zone z")), on("z"));
    assert_eq!(zone("--init-ovnkube-controller n1 --enable-interconnect"), on("global"));
    assert_eq!(zone(both), ("global".to_owned(), Interconnect::Off, false));
}

/// A new database listens there before it is served to all.
#[test]
fn a_controller_of_a_zone_looks_beside_the_sockets_of_its_databases() {
    let endpoints = |line: &str| {
        let line =
            format!("--init-ovnkube-controller n1 --k8s-apiserver https://a --k8s-token t {line}");
        match Place::new().options(&line).program() {
            Ok(Program::ControlPlane(config, _)) => {
                let database = |of: Option<crate::control_plane::Database>| {
                    of.map(|database| database.endpoints.to_string())
                };
                (database(config.northbound), database(config.southbound))
            }
            other => panic!("{line}: {other:?}"),
        }
    };
    let places = "--nb-address unix:/n --sb-address tcp:10.0.0.1:6642";
    let south = || Some("tcp:10.0.0.1:6642".to_owned());
    assert_eq!(
        endpoints(&format!("{places} --enable-interconnect")),
        (Some("unix:/n.filling,unix:/n".to_owned()), south())
    );
    assert_eq!(endpoints(places), (Some("unix:/n".to_owned()), south()));
}

#[test]
fn the_other_zone_of_a_node_has_a_name_of_its_own_and_an_address() {
    let other = |line: &str| {
        let line = format!("--init-node n1 --k8s-apiserver https://a --k8s-token t {line}");
        let node = Place::new().node(&line)?;
        let config = node.config(&BTreeMap::new()).map_err(|error| error.to_string())?;
        Ok::<_, String>(config.other_zone.map(|other| (other.name, other.southbound)))
    };
    assert_eq!(other("--enable-interconnect"), Ok(None));
    let both = "--zone n1 --other-zone global --other-sb-address tcp:10.0.0.1:6642";
    let global = ("global".to_owned(), "tcp:10.0.0.1:6642".to_owned());
    assert_eq!(other(&format!("{both} --enable-interconnect")), Ok(Some(global)));
    for (line, why) in [
        (both, "--other-zone \"global\" needs --enable-interconnect"),
        ("--enable-interconnect --other-zone z", "--other-zone and --other-sb-address need each"),
        (
            "--enable-interconnect --other-zone global --other-sb-address unix:/s",
            "global is this node's zone already",
        ),
    ] {
        let refused = other(line).expect_err(line);
        assert!(refused.contains(why), "{line}: {refused}");
    }
}

#[test]
fn tunnels_between_zones_are_geneve() {
    let line = "--init-node n1 --k8s-apiserver https://a --k8s-token t --encap-type geneve,vxlan";
    assert!(Place::new().options(line).program().is_ok());
    let problems = Place::new().options(&format!("{line} --enable-interconnect")).program();
    let problems = problems.expect_err("keys of VXLAN are too short").to_string();
    assert!(problems.contains("--encap-type vxlan cannot be used with --enable-interconnect"));
}

#[test]
fn defaults_are_upstreams() {
    let cluster = cluster("").unwrap();
    let subnets: Vec<String> = cluster
        .cluster_subnets
        .iter()
        .map(|subnet| format!("{}/{}", subnet.cidr, subnet.host_length))
        .collect();
    assert_eq!(subnets, ["10.128.0.0/14/23"]);
    assert_eq!(texts(&cluster.service_cidrs), ["172.16.1.0/24"]);
    assert_eq!(
        (texts(&cluster.join_subnets), texts(&cluster.transit_subnets)),
        (vec!["100.64.0.0/16".into()], vec!["100.88.0.0/16".into()])
    );
    assert_eq!(texts(&cluster.hairpin_addresses), ["169.254.169.5"]);
    assert_eq!((cluster.zone.0.as_str(), cluster.acl_logging_rate_limit), ("global", 20));
    assert!(cluster.requested_chassis && !cluster.legacy_annotations);
    assert_eq!(
        cluster,
        ClusterConfig { templates: Templates::AsFound, ..ClusterConfig::default() }
    );
}

#[test]
fn templates_are_as_the_database_has_them_unless_the_option_is_given() {
    let templates = |text: &str| cluster(text).unwrap().templates;
    assert_eq!(templates(""), Templates::AsFound);
    assert_eq!(templates("--enable-svc-template-support"), Templates::Always);
    assert_eq!(templates("--enable-svc-template-support=false"), Templates::Never);
}

#[test]
fn multicast_is_off_unless_the_option_is_given() {
    let multicast = |text: &str| cluster(text).unwrap().multicast;
    assert_eq!(["", "--enable-multicast=false"].map(multicast), [Multicast::Off, Multicast::Off]);
    assert_eq!(multicast("--enable-multicast"), Multicast::On);
}

#[test]
fn both_families_bring_their_ranges() {
    let line = "--cluster-subnet 10.244.0.0/16,fd00:10:244::/48/64,10.245.0.0/16/24 \
                --service-cluster-ip-range 10.96.0.0/16,fd00:10:96::/112 --disable-requestedchassis \
                --legacy-annotations --zone n1 --acl-logging-rate-limit 7";
    let cluster = cluster(&line.replace(", ", ",")).unwrap();
    let subnets: Vec<String> = cluster
        .cluster_subnets
        .iter()
        .map(|subnet| format!("{}/{}", subnet.cidr, subnet.host_length))
        .collect();
    assert_eq!(subnets, ["10.244.0.0/16/24", "fd00:10:244::/48/64", "10.245.0.0/16/24"]);
    assert_eq!(texts(&cluster.join_subnets), ["100.64.0.0/16", "fd98::/64"]);
    assert_eq!(texts(&cluster.hairpin_addresses), ["169.254.169.5", "fd69::5"]);
    assert!(
        !cluster.requested_chassis
            && cluster.legacy_annotations
            && cluster.zone.0 == "n1"
            && cluster.acl_logging_rate_limit == 7
    );
}

#[test]
fn bits_behind_the_prefix_do_not_count() {
    assert_eq!(cluster("--cluster-subnets 10.129.3.4/14/23").unwrap(), cluster("").unwrap());
}

#[test]
fn what_is_no_range_is_said() {
    for (line, text) in [
        ("--cluster-subnets 10.0.0.0", "--cluster-subnets \"10.0.0.0\" is no network"),
        ("--cluster-subnets 10.0.0.0/8/24,", "--cluster-subnets \"\" is no network"),
        (
            "--cluster-subnets 10.0.0.0/8/8",
            "\"10.0.0.0/8/8\": a node's part, /8, has to be less than the whole, /8",
        ),
        (
            "--cluster-subnets 10.0.0.0/25",
            "\"10.0.0.0/25\": a node's part, /24, has to be less than the whole",
        ),
        ("--cluster-subnets 10.0.0.0/8/31", "a node's part of /31 has no room for pods"),
        ("--cluster-subnets 10.0.0.0/8/30", "a node's part of /30 has no room for pods"),
        ("--cluster-subnets 10.0.0.0/8/x", "\"x\" is no prefix length"),
        ("--cluster-subnets fd01::/48/72", "a node's part of an IPv6 network is always /64"),
        (
            "--cluster-subnets 10.0.0.0/16/24,10.1.0.0/16/23",
            "gives nodes an IPv4 part of /24 in one range and of /23 in another",
        ),
        (
            "--k8s-service-cidrs 10.96.0.0/16,10.97.0.0/16",
            "--k8s-service-cidrs \"10.96.0.0/16,10.97.0.0/16\" has several networks of one family",
        ),
        (
            "--gateway-v4-join-subnet fd98::/64",
            "--gateway-v4-join-subnet \"fd98::/64\" is no IPv4 network",
        ),
        (
            "--gateway-v6-masquerade-subnet 1.2.3.0/24",
            "--gateway-v6-masquerade-subnet \"1.2.3.0/24\" is no IPv6 network",
        ),
        (
            "--gateway-v4-masquerade-subnet 169.254.169.0/30",
            "--gateway-v4-masquerade-subnet: the network has to have at least 8 addresses",
        ),
        ("--zone a_b", "--zone \"a_b\" is no zone's name"),
        (
            "--acl-logging-rate-limit 4294967296",
            "--acl-logging-rate-limit \"4294967296\" is no number from 0",
        ),
        (
            "--no-hostsubnet-nodes a>b",
            "--no-hostsubnet-nodes \"a>b\" is not a requirement on labels",
        ),
    ] {
        let error = cluster(line).expect_err(line);
        assert!(error.contains(text), "{line}: {error}");
    }
}

#[test]
fn ranges_that_overlap_are_named_with_their_places() {
    let place = Place::new();
    let file = place.file(
        "ovn_k8s.conf",
        "[default]\ncluster-subnets=100.64.0.0/12\n[kubernetes]\nservice-cidrs=10.96.0.0/16\n",
    );
    let text = cluster_at(&place, "--gateway-v4-masquerade-subnet 10.96.128.0/29").unwrap_err();
    for expected in [
        &format!(
            "{}:2: cluster-subnets 100.64.0.0/12 and --gateway-v4-join-subnet (its default) 100.64.0.0/16 \
             overlap",
            file.display()
        ),
        &format!(
            "{}:4: service-cidrs 10.96.0.0/16 and --gateway-v4-masquerade-subnet 10.96.128.0/29 overlap",
            file.display()
        ),
    ] {
        assert_eq!(text.matches(expected.as_str()).count(), 1, "{expected}\n{text}");
    }
    let text = cluster("--cluster-subnets 10.0.0.0/8/24,10.1.0.0/16/24").unwrap_err();
    assert!(
        text.contains("--cluster-subnets 10.0.0.0/8 and --cluster-subnets 10.1.0.0/16 overlap"),
        "{text}"
    );
    // Ranges of a family that no pod has may overlap.
    let line = "--cluster-subnets fd01::/48 --k8s-service-cidrs fd02::/112 --gateway-v4-join-subnet \
                10.0.0.0/8 --gateway-v4-masquerade-subnet 10.0.0.0/8";
    assert_eq!(texts(&cluster(line).unwrap().join_subnets), ["fd98::/64"]);
}

#[test]
fn services_have_the_families_of_pods() {
    let text = cluster("--cluster-subnets 10.0.0.0/16,fd01::/48").unwrap_err();
    let expected = "--cluster-subnets gives pods IPv4 and IPv6, --k8s-service-cidrs (its default) gives \
                    services IPv4: give both the same families";
    assert!(text.contains(expected), "{text}");
    let text = cluster("--cluster-subnets fd01::/48").unwrap_err();
    assert!(text.contains("gives pods IPv6") && text.contains("gives services IPv4"), "{text}");
}

/// The mode of a node's gateway under these options.
fn gateway_mode(line: &str) -> Result<Option<server::node::GatewayMode>, String> {
    let line = format!("--init-node n1 --pod-manifests /x {line}");
    let options = Place::new().node(&line).map_err(|problems| problems.to_string())?;
    let config = options.config(&BTreeMap::new()).map_err(|problems| problems.to_string())?;
    Ok(config.gateway.map(|gateway| gateway.mode))
}

#[test]
fn the_older_options_of_gateways_mean_a_mode_and_contradictions_are_named() {
    use server::node::GatewayMode::{Local, Shared};

    for (line, mode) in [
        ("", None),
        ("--gateway-mode=", None),
        ("--gateway-mode disabled --gateway-interface eth0", None),
        ("--gateway-mode shared", Some(Shared)),
        ("--init-gateways", Some(Shared)),
        ("--init-gateways=false", None),
        ("--init-gateways --gateway-localnet", Some(Local)),
        ("--gateway-local --gateway-mode local", Some(Local)),
    ] {
        assert_eq!(gateway_mode(line), Ok(mode), "{line}");
    }
    let contradiction = gateway_mode("--gateway-mode shared --gateway-local").unwrap_err();
    assert!(
        contradiction.contains("--gateway-mode and --gateway-local contradict each other"),
        "{contradiction}"
    );
    let vlan = gateway_mode("--gateway-mode local --gateway-vlanid 5").unwrap_err();
    assert!(vlan.contains("--gateway-vlanid is for --gateway-mode shared"), "{vlan}");
}
