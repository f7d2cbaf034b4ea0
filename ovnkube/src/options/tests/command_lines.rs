//! Command lines from the documents and scripts of OVN-Kubernetes.

use std::collections::BTreeMap;

use kubeapi::{Cluster, Credential};
use server::node::{GatewayMode, NodeConfig, PodsFrom};

use super::{super::Early, Place};

/// The configuration and the notes.
fn node(place: &Place, line: &str) -> (NodeConfig, String) {
    let options = place.node(line).expect(line);
    (options.config(&BTreeMap::new()).expect(line), options.notes().join("\n"))
}

fn early(place: &Place, line: &str) -> Early {
    place.node(line).expect(line).early().clone()
}

fn url(config: &NodeConfig) -> &str {
    match &config.pods {
        PodsFrom::ApiServer(api) => match &api.cluster {
            Cluster::Url { url, .. } => url,
            Cluster::Kubeconfig(path) => path.to_str().unwrap(),
        },
        PodsFrom::Manifests(_) => "manifests",
    }
}

#[test]
fn the_handbooks_of_2018() {
    let place = Place::new();
    let kubeconfig = place.file("kubeconfig.yaml", "");
    let line = format!(
        "-k8s-kubeconfig {} -loglevel=4 -logfile=/var/log/openvswitch/ovnkube.log \
         -k8s-apiserver=http://10.0.0.1:8080 -init-node=node1 -nodeport -nb-address=tcp://10.0.0.1:6631 \
         -sb-address=tcp://10.0.0.1:6632 -k8s-token=TOKEN -init-gateways \
         -service-cluster-ip-range=172.16.1.0/24 -cluster-subnet=192.168.0.0/16",
        kubeconfig.display()
    );
    let (config, notes) = node(&place, &line);
    assert_eq!((config.name.as_str(), url(&config)), ("node1", kubeconfig.to_str().unwrap()));
    assert_eq!(config.open_vswitch.chassis.southbound, "tcp:10.0.0.1:6632");
    let gateway = config.gateway.expect("a gateway");
    assert_eq!((gateway.mode, gateway.node_ports), (GatewayMode::Shared, true));
    assert!(!notes.contains("gateway"), "{notes}");
    assert!(!notes.contains("TOKEN"));
}

#[test]
fn the_container_script_of_2018_with_an_empty_token() {
    let place = Place::new();
    let line = "--init-node node1 --cluster-subnet 10.128.0.0/14 --service-cluster-ip-range=172.30.0.0/16 \
                --k8s-token= --k8s-apiserver=http://10.0.0.1:8443 --nb-address=tcp://10.0.0.1:6641 \
                --sb-address=tcp://10.0.0.1:6642 --nodeport --init-gateways --gateway-localnet --pidfile \
                /var/run/openvswitch/ovnkube.pid --logfile /var/log/openvswitch/ovnkube.log";
    let (config, notes) = node(&place, line);
    assert_eq!(
        (url(&config), early(&place, line).pidfile.as_deref().and_then(|path| path.to_str())),
        ("http://10.0.0.1:8443", Some("/var/run/openvswitch/ovnkube.pid"))
    );
    assert_eq!(config.gateway.expect("a gateway").mode, GatewayMode::Local);
    assert!(!notes.contains("gateway"), "{notes}");
}

#[test]
fn the_containers_of_openshift_with_a_service_account() {
    let place = Place::new().service_account();
    let line = "--init-node node1 --k8s-cacert= --k8s-apiserver=https://10.0.0.1:8443 \
                --nb-address=tcp:10.0.0.1:6641 --sb-address=tcp:10.0.0.1:6642 --loglevel=5 --nodeport=true \
                --ha --net-controller=false --win-hnsnetwork-id x";
    let (config, notes) = node(&place, line);
    let PodsFrom::ApiServer(api) = &config.pods else { panic!("{config:?}") };
    assert!(
        matches!(&api.credential, Some(Credential::TokenFile(path)) if path.ends_with("token")),
        "{api:?}"
    );
    assert!(matches!(&api.cluster, Cluster::Url { authority: Some(_), .. }), "{api:?}");
    for option in ["--ha", "--net-controller", "--win-hnsnetwork-id"] {
        assert!(notes.contains(option), "{notes}");
    }
}

#[test]
fn the_controllers_readme() {
    let place = Place::new();
    let ca = place.file("ca.crt", "");
    let line = format!(
        "--init-node node1 --k8s-cacert {} --k8s-token TOKEN --k8s-apiserver https://10.11.12.13.8443",
        ca.display()
    );
    let (config, _) = node(&place, &line);
    assert_eq!(url(&config), "https://10.11.12.13.8443");
}

#[test]
fn the_container_script_of_2024_with_everything_on() {
    let place = Place::new();
    let line = "--init-node node1 --enable-admin-network-policy --disable-forwarding \
                --disable-ovn-iface-id-ver --disable-pkt-mtu-check --disable-snat-multiple-gws \
                --exgw-interface=eth2 --enable-egress-ip=true --egressip-node-healthcheck-port=9107 \
                --enable-egress-service=true --enable-lflow-cache=false --enable-hybrid-overlay \
                --no-hostsubnet-nodes=kubernetes.io/os=windows --ipfix-cache-active-timeout=60 \
                --ipfix-targets=10.0.0.2:4739 --lflow-cache-limit=1000 --lflow-cache-limit-kb=100000 \
                --monitor-all=false --enable-multicast --enable-multi-network --enable-network-segmentation \
                --enable-route-advertisements --netflow-targets=10.0.0.2:2056 \
                --ofctrl-wait-before-clear=8000 --nb-address=local --encap-ip=10.0.0.9 --encap-port=6082 \
                --conntrack-zone=64321 --enable-interconnect --enable-multi-external-gateway=true \
                --gateway-v4-masquerade-subnet=169.254.169.0/29 --ovnkube-node-mode=full --unprivileged-mode \
                --routable-mtu=1300 --sflow-targets=10.0.0.2:6343 --cluster-subnets 10.244.0.0/16/24 \
                --k8s-service-cidr=10.96.0.0/16 --export-ovs-metrics --gateway-mode=shared \
                --gateway-interface=eth0 --gateway-router-subnet= --host-network-namespace ovn-host-network \
                --inactivity-probe=180000 --logfile-maxage=5 --logfile-maxbackups=7 --logfile-maxsize=50 \
                --logfile /var/log/ovn-kubernetes/ovnkube.log --loglevel=4 --metrics-bind-address \
                10.0.0.9:9410 --metrics-enable-pprof --mtu=1400 --nodeport --ovn-config-namespace \
                ovn-kubernetes --ovn-metrics-bind-address [::]:9476 --pidfile /var/run/ovn/ovnkube.pid \
                --zone node1 --k8s-apiserver https://10.96.0.1:443"
        .replace("--nb-address=local ", "");
    let (config, notes) = node(&place, &line);
    let early = early(&place, &line);
    let chassis = &config.open_vswitch.chassis;
    assert_eq!(
        (chassis.encap_ip.as_deref(), chassis.inactivity_probe.as_millis()),
        (Some("10.0.0.9"), 180_000)
    );
    assert_eq!(
        (
            chassis.monitor_all,
            chassis.lflow_cache,
            chassis.lflow_cache_limit,
            chassis.lflow_cache_limit_kb
        ),
        (false, false, Some(1000), Some(100_000))
    );
    assert_eq!(chassis.ofctrl_wait_before_clear.map(|wait| wait.as_millis()), Some(8000));
    assert_eq!(
        (early.log.rotation.max_size, early.log.rotation.max_backups, early.log.rotation.max_age),
        (50, 7, 5)
    );
    assert_eq!(
        early.endpoints.metrics.map(|address| address.to_string()).as_deref(),
        Some("10.0.0.9:9410")
    );
    assert_eq!(config.add.routable_mtu.map(|mtu| mtu.bytes()), Some(1300));
    assert!(notes.contains("--unprivileged-mode says what is always so"), "{notes}");
    assert_eq!(
        notes.matches("without effect on this node: --encap-port; OVN has the port from").count(),
        1,
        "{notes}"
    );
    let gateway = config.gateway.expect("a gateway");
    assert_eq!(
        (gateway.interface.expect("an interface").as_str(), gateway.conntrack_zone),
        ("eth0", 64321)
    );
    assert!(!notes.contains("--mtu") && !notes.contains("--gateway-router-subnet"), "{notes}");
}
