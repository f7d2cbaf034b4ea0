//! A database that upstream wrote, and the objects that it was written for. Knows the form of the
//! files, not what rows mean.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::IpAddr,
    path::PathBuf,
    sync::Arc,
};

use contract::{
    names::PodKey,
    namespace_annotation::{AclLogging, Multicast, Severity},
    node_annotation::{GATEWAY_CONFIG, HOST_CIDRS},
    ovn::hash,
};
use controller::{
    config::{ClusterConfig, ClusterSubnet, Interconnect, Templates, Zone},
    key::{NodeName, SetId},
    kinds::{
        egress_firewall::object::EgressFirewall,
        egress_qos::object::EgressQos,
        namespace::object::Namespace,
        network_policy::wire::PolicyObject,
        node::wire::NodeObject,
        pod::{
            object::{Annotated, Pod},
            wire::PodObject,
        },
        service::template_use::TemplateUse,
    },
    watch_event::{Seen, WatchEvent},
    world::Store,
};
use kubeapi::services::{ServiceObject, SliceObject};
use kubeapi::watch::Watched;
use ovsdb::{Atom, Datum};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;

/// Columns of a row that do not hold their default.
pub(crate) type Columns = BTreeMap<String, Datum>;

/// One of the folders of `upstream/`.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) name: &'static str,
    pub(crate) config: ClusterConfig,
    /// Rows of each table, under the names that references use.
    pub(crate) rows: BTreeMap<String, BTreeMap<String, Columns>>,
    pub(crate) nodes: Vec<NodeObject>,
    pub(crate) pods: Vec<PodObject>,
    pub(crate) services: Vec<ServiceObject>,
    pub(crate) slices: Vec<SliceObject>,
    pub(crate) policies: Vec<PolicyObject>,
    /// Of all namespaces.
    pub(crate) logging: AclLogging,
    /// Of the namespace `shop`.
    pub(crate) multicast: Multicast,
    /// Of the namespace `shop`.
    pub(crate) firewall: Option<EgressFirewall>,
    /// Of the namespace `shop`.
    pub(crate) qos: Option<EgressQos>,
}

#[derive(Deserialize)]
struct Northbound {
    rows: BTreeMap<String, BTreeMap<String, BTreeMap<String, serde_json::Value>>>,
}

#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
}

/// The nodes' addresses that the EgressFirewall of [`Fixture::firewall_v4`] lists.
const NODES: [&str; 3] = ["172.30.0.11", "172.30.0.12", "172.30.0.13"];

impl Fixture {
    pub(crate) fn all() -> Vec<Self> {
        vec![
            Self::central_v4(),
            Self::central_v6(),
            Self::central_dual(),
            Self::shared_v4(),
            Self::local_v4(),
            Self::shared_2026(),
            Self::zone_v4(),
            Self::central_2024(),
            Self::templates_v4(),
            Self::templates_of_hosts_v4(),
            Self::logged_v4(),
            Self::each_pod_v4(),
            Self::firewall_v4(),
            Self::qos_v4(),
            Self::multicast_v4(),
        ]
    }

    pub(crate) fn central_v4() -> Self {
        Self::read("central-v4", v4())
    }

    pub(crate) fn central_v6() -> Self {
        Self::read("central-v6", v6())
    }

    pub(crate) fn central_dual() -> Self {
        Self::read("central-dual", dual())
    }

    pub(crate) fn central_2024() -> Self {
        Self::read("central-2024", v4())
    }

    pub(crate) fn shared_v4() -> Self {
        Self::read("shared-v4", v4())
    }

    /// `shared-v4` as with `--gateway-mode local`: upstream writes only the routes by source
    /// differently, to the management port and not to the gateway router, and no policies for
    /// further addresses of a node.
    pub(crate) fn local_v4() -> Self {
        let mut fixture = Self { name: "shared-v4 as local", ..Self::shared_v4() };
        for route in fixture.rows.get_mut("Logical_Router_Static_Route").unwrap().values_mut() {
            let text = |column: &str| Some(route.get(column)?.scalar()?.as_str()?.to_owned());
            if text("policy").as_deref() == Some("src-ip") {
                let via = text("ip_prefix").unwrap().replace(".0/24", ".2");
                route.insert("nexthop".to_owned(), Datum::set([via]));
            }
        }
        for node in &mut fixture.nodes {
            let annotations = node.metadata.annotations.as_mut().unwrap();
            let gateway = annotations.get_mut(GATEWAY_CONFIG).unwrap();
            *gateway = gateway.replace("shared", "local");
            let hosts = annotations.get_mut(HOST_CIDRS).unwrap();
            *hosts = hosts.replace(']', ",\"192.0.2.9/24\"]");
        }
        // Node ports are served at such an address, too.
        for balancer in fixture.rows.get_mut("Load_Balancer").unwrap().values_mut() {
            let Some(Datum::Map(vips)) = balancer.get_mut("vips") else { continue };
            let further = vips.iter().filter_map(|(at, to)| {
                let port = at.as_str()?.strip_prefix("172.30.0.")?.split_once(':')?.1;
                Some((Atom::String(format!("192.0.2.9:{port}")), to.clone()))
            });
            let further: Vec<_> = further.collect();
            vips.extend(further);
        }
        fixture
    }

    /// `shared-v4` as upstream's programs for one node per database write it: their gateway routers
    /// have few neighbours, and know them.
    pub(crate) fn shared_2026() -> Self {
        let mut fixture = Self { name: "shared-v4 with known neighbours", ..Self::shared_v4() };
        for router in fixture.rows.get_mut("Logical_Router").unwrap().values_mut() {
            let Some(Datum::Map(options)) = router.get_mut("options") else { continue };
            for (_, value) in
                options.iter_mut().filter(|(key, _)| key.as_str() == Some("dynamic_neigh_routers"))
            {
                *value = Atom::String("false".to_owned());
            }
        }
        fixture
    }

    /// `shared-v4` as with `--disable-snat-multiple-gws`: upstream translates the address of each
    /// pod that has a port, at its own node, instead of those of all pods at each node.
    pub(crate) fn each_pod_v4() -> Self {
        let mut fixture =
            Self { name: "shared-v4 with a translation for each pod", ..Self::shared_v4() };
        fixture.config.snat_per_pod = true;
        let text = |row: &Columns, column: &str| {
            row[column].scalar().unwrap().as_str().unwrap().to_owned()
        };
        let nats = fixture.rows.get_mut("NAT").unwrap();
        let of_all: Vec<(String, Columns)> = nats
            .iter()
            .filter(|(_, row)| text(row, "logical_ip") == "10.244.0.0/16")
            .map(|(name, row)| (name.clone(), row.clone()))
            .collect();
        nats.retain(|name, _| of_all.iter().all(|(of_all, _)| of_all != name));
        let mut of_each = Vec::new();
        let switches = fixture.rows["Logical_Switch"].clone();
        let ports = &fixture.rows["Logical_Switch_Port"].clone();
        for router in fixture.rows.get_mut("Logical_Router").unwrap().values_mut() {
            let Some(Datum::Set(translations)) = router.get("nat").cloned() else { continue };
            let name = text(router, "name");
            let node = name.strip_prefix("GR_").unwrap();
            let is_of_all = |atom: &Atom| {
                of_all.iter().find(|(name, _)| *atom == Atom::NamedUuid(name.clone()))
            };
            let (_, row) = translations.iter().find_map(is_of_all).unwrap();
            let mut now: Vec<Atom> =
                translations.iter().filter(|atom| is_of_all(atom).is_none()).cloned().collect();
            let switch = switches.values().find(|switch| text(switch, "name") == node).unwrap();
            let Datum::Set(of_switch) = &switch["ports"] else { panic!("a set of ports") };
            let is_of_switch =
                |port: &&String| of_switch.contains(&Atom::NamedUuid((*port).clone()));
            for port in ports.keys().filter(is_of_switch) {
                let row_of_port = &ports[port];
                let of_pod = row_of_port.get("external_ids").is_some_and(|ids| {
                    ids.pairs().iter().any(|(key, _)| key.as_str() == Some("pod"))
                });
                if !of_pod {
                    continue;
                }
                let addresses = text(row_of_port, "addresses");
                let mut row = row.clone();
                row.insert(
                    "logical_ip".to_owned(),
                    Datum::set([addresses.split(' ').nth(1).unwrap()]),
                );
                let name = format!("NAT_of_{port}");
                now.push(Atom::NamedUuid(name.clone()));
                of_each.push((name, row));
            }
            router.insert("nat".to_owned(), Datum::Set(now));
        }
        fixture.rows.get_mut("NAT").unwrap().extend(of_each);
        fixture
    }

    /// `shared-v4` as with the annotation `k8s.ovn.org/acl-logging` on the namespace of its policy,
    /// and with a stateless policy: upstream sets `log` and `severity` of all ACLs but those that
    /// let ARP pass.
    pub(crate) fn logged_v4() -> Self {
        let mut fixture = Self { name: "shared-v4 with logging", ..Self::shared_v4() };
        fixture.logging = AclLogging { allow: Some(Severity::Info), deny: Some(Severity::Alert) };
        fixture.config.stateless_policies = true;
        for policy in &mut fixture.policies {
            let annotation = ("k8s.ovn.org/acl-stateless".to_owned(), "true".to_owned());
            policy.metadata.annotations = Some([annotation].into());
        }
        for (name, row) in fixture.rows.get_mut("ACL").unwrap() {
            let severity = match name.strip_prefix("ACL_default_network_controller_Net") {
                Some(rest)
                    if rest.starts_with("polNamespace_") && rest.ends_with("defaultDeny") =>
                {
                    "alert"
                }
                Some(rest) if rest.starts_with("workPolicy_") => {
                    row.insert("action".to_owned(), Datum::set(["allow-stateless"]));
                    "info"
                }
                _ => continue,
            };
            row.insert("log".to_owned(), Datum::set([true]));
            row.insert("severity".to_owned(), Datum::set([severity]));
        }
        fixture
    }

    /// `shared-v4` as with `--enable-egress-firewall` and an EgressFirewall: upstream has a group
    /// of the pods of each namespace then, and the rules in that of their own.
    pub(crate) fn firewall_v4() -> Self {
        let mut fixture = Self { name: "shared-v4 with an egress firewall", ..Self::shared_v4() };
        let group = group_of("shop");
        let name = "www.example.org";
        let id = format!("default-network-controller:EgressFirewallDNS:{name}:v4");
        let set = hash(&id);
        let mut of_set = ids("EgressFirewallDNS", name, None).pairs().to_vec();
        of_set.retain(|(key, _)| key.as_str() != Some("k8s.ovn.org/id"));
        of_set
            .extend([("k8s.ovn.org/id", id.as_str()), ("ip-family", "v4")].map(|(key, value)| {
                (Atom::String(key.to_owned()), Atom::String(value.to_owned()))
            }));
        let row = Columns::from([
            ("name".to_owned(), Datum::set([set.clone()])),
            ("external_ids".to_owned(), Datum::Map(of_set)),
            ("addresses".to_owned(), Datum::set(["203.0.113.5"])),
        ]);
        fixture
            .rows
            .entry("Address_Set".to_owned())
            .or_default()
            .insert("Address_Set_of_name".to_owned(), row);
        let of_name = format!("(ip4.dst == ${set})");
        let of_nodes = NODES.map(|address| format!("ip4.dst == {address}")).join(" || ");
        let of_nodes = format!("({of_nodes})");
        let rules = [
            ("allow", of_name.as_str(), ""),
            ("allow", "(ip4.dst == 192.0.2.0/24)", " && ((udp && ( udp.dst == 53 )) || (tcp))"),
            ("allow", of_nodes.as_str(), ""),
            ("drop", "(ip4.dst == 0.0.0.0/0 && ip4.dst != 10.244.0.0/16)", ""),
        ];
        let mut names = Vec::new();
        for (index, (action, addresses, ports)) in rules.into_iter().enumerate() {
            let index = index.to_string();
            let matching = format!("{addresses} && inport == @{group}{ports}");
            let texts = [("action", action), ("direction", "to-lport"), ("meter", "acl-logging")];
            let mut row: Columns = texts
                .into_iter()
                .map(|(column, text)| (column.to_owned(), Datum::set([text])))
                .collect();
            row.insert("match".to_owned(), Datum::set([matching]));
            row.insert("name".to_owned(), Datum::set([format!("EF:shop:{index}")]));
            row.insert("external_ids".to_owned(), ids("EgressFirewall", "shop", Some(&index)));
            let priority = 10_000 - index.parse::<i64>().unwrap();
            row.insert("priority".to_owned(), Datum::set([priority]));
            row.insert("tier".to_owned(), Datum::set([2]));
            let name = format!("ACL_default_network_controller_EgressFirewall_shop_{index}");
            fixture.rows.get_mut("ACL").unwrap().insert(name.clone(), row);
            names.push(Atom::NamedUuid(name));
        }
        fixture.add_groups(&names);
        let to = |kind: &str, to: serde_json::Value| json!({"type": kind, "to": to});
        let mut some = to("Allow", json!({"cidrSelector": "192.0.2.0/24"}));
        some["ports"] = json!([{"protocol": "TCP"}, {"protocol": "UDP", "port": 53}]);
        let applied = "EgressFirewall Rules applied";
        let status = json!({"status": applied, "messages": [format!("global: {applied}")]});
        let nodes = to("Allow", json!({"nodeSelector": {}}));
        let all = to("Deny", json!({"cidrSelector": "0.0.0.0/0"}));
        let of_name = to("Allow", json!({"dnsName": name}));
        // Upstream writes no row of a rule that selects no node.
        let no_nodes = to("Allow", json!({"nodeSelector": {"matchLabels": {"no": "such"}}}));
        let spec = json!({"egress": [of_name, some, nodes, all, no_nodes]});
        fixture.firewall = Some(EgressFirewall::new("uid", spec, status));
        fixture
    }

    /// `shared-v4` as with `--enable-egress-qos` and an EgressQoS. Derived from upstream's code: its
    /// program has not written these rows. All switches of nodes share the rows of the rules.
    pub(crate) fn qos_v4() -> Self {
        let mut fixture = Self { name: "shared-v4 with an egress QoS", ..Self::shared_v4() };
        let id = "default-network-controller:EgressQoS:shop:999:v4";
        let row = Columns::from([
            ("name".to_owned(), Datum::set([hash(id)])),
            (
                "external_ids".to_owned(),
                with_ids(id, "EgressQoS", "shop", &[("priority", "999"), ("ip-family", "v4")]),
            ),
        ]);
        let of_all = "default-network-controller:Namespace:shop:v4";
        let all = hash(of_all);
        // `MAC IP` of each port.
        let ports = fixture.rows["Logical_Switch_Port"].iter();
        let ports = ports.filter(|(name, _)| name.starts_with("Logical_Switch_Port_shop_"));
        let addresses = ports.map(|(_, row)| {
            let texts = row["addresses"].atoms()[0].as_str().unwrap().to_owned();
            texts.split(' ').nth(1).unwrap().to_owned()
        });
        let addresses: Vec<String> = addresses.collect();
        let own = Columns::from([
            ("name".to_owned(), Datum::set([all.clone()])),
            ("addresses".to_owned(), Datum::set(addresses)),
            (
                "external_ids".to_owned(),
                with_ids(of_all, "Namespace", "shop", &[("ip-family", "v4")]),
            ),
        ]);
        let sets = fixture.rows.get_mut("Address_Set").unwrap();
        sets.insert("Address_Set_of_rule".to_owned(), row);
        sets.insert("Address_Set_of_namespace".to_owned(), own);
        let everywhere = "ip4.dst == 0.0.0.0/0 || ip6.dst == ::/0";
        let mut names = Vec::new();
        for (priority, dscp, to, set) in [
            (1000_i64, 30_i64, "ip4.dst == 192.0.2.0/24", &all),
            (999, 42, everywhere, &hash(id)),
            (998, 0, everywhere, &all),
        ] {
            let text = priority.to_string();
            let id = format!("default-network-controller:EgressQoS:{text}:shop");
            let row = Columns::from([
                ("direction".to_owned(), Datum::set(["to-lport"])),
                ("priority".to_owned(), Datum::set([priority])),
                ("match".to_owned(), Datum::set([format!("({to}) && ip4.src == ${set}")])),
                ("action".to_owned(), Datum::map([("dscp", dscp)])),
                (
                    "external_ids".to_owned(),
                    with_ids(&id, "EgressQoS", "shop", &[("priority", &text)]),
                ),
            ]);
            let name = format!("QoS_default_network_controller_EgressQoS_{text}_shop");
            fixture.rows.entry("QoS".to_owned()).or_default().insert(name.clone(), row);
            names.push(Atom::NamedUuid(name));
        }
        for (name, row) in fixture.rows.get_mut("Logical_Switch").unwrap() {
            if ["n1", "n2", "n3_example_org"]
                .iter()
                .any(|node| name == &format!("Logical_Switch_{node}"))
            {
                row.insert("qos_rules".to_owned(), Datum::Set(names.clone()));
            }
        }
        let selector = json!({"matchLabels": {"no": "such"}});
        let spec = json!({"egress": [
            {"dscp": 30, "dstCIDR": "192.0.2.0/24"},
            {"dscp": 42, "podSelector": selector},
            {"dscp": 0},
        ]});
        fixture.qos = Some(EgressQos::new("shop", "uid", spec, json!({})));
        fixture
    }

    /// `central-2024` as with `--enable-multicast` and the annotation on `shop`. Derived from what
    /// upstream's code of that time and its page about multicast say: its program has not written
    /// these rows.
    pub(crate) fn multicast_v4() -> Self {
        let mut fixture = Self { name: "central-2024 with multicast", ..Self::central_2024() };
        fixture.config.multicast = Multicast::On;
        fixture.multicast = Multicast::On;
        let strings = |pairs: &[(&str, &str)]| Datum::map(pairs.iter().copied());
        for row in fixture.rows.get_mut("Logical_Switch").unwrap().values_mut() {
            let Some(config) = row.get_mut("other_config") else { continue };
            let text = |atom: &Atom| atom.as_str().unwrap().to_owned();
            let mut pairs: BTreeMap<String, String> =
                config.pairs().iter().map(|(key, value)| (text(key), text(value))).collect();
            let octets: Vec<u8> = pairs["subnet"]
                .split(['.', '/'])
                .take(3)
                .map(|octet| octet.parse().unwrap())
                .collect();
            let [a, b, c] = octets[..] else { panic!("{pairs:?}") };
            pairs.extend(
                [
                    ("mcast_snoop", "true".to_owned()),
                    ("mcast_querier", "true".to_owned()),
                    ("mcast_eth_src", format!("0a:58:{a:02x}:{b:02x}:{c:02x}:01")),
                    ("mcast_ip4_src", format!("{a}.{b}.{c}.1")),
                ]
                .map(|(key, value)| (key.to_owned(), value)),
            );
            *config = Datum::map(pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        }
        // Upstream's router then has no other option.
        let router = fixture
            .rows
            .get_mut("Logical_Router")
            .unwrap()
            .get_mut("Logical_Router_ovn_cluster_router");
        router.unwrap().insert("options".to_owned(), strings(&[("mcast_relay", "true")]));
        let all =
            "(ip4.mcast || mldv1 || mldv2 || (ip6.dst[120..127] == 0xff && ip6.dst[116] == 1))";
        let (of_routers, of_shop) = ("a4743249366342378346", group_of("shop"));
        let set = hash("default-network-controller:Namespace:shop:v4");
        let between = |port: &str| format!("{port} == @{of_routers} && {all}");
        let heard = format!("outport == @{of_shop} && (igmp || (ip4.src == ${set} && ip4.mcast))");
        let sent = format!("inport == @{of_shop} && ip4.mcast");
        let kinds = [
            ("type", "DefaultDeny", all.to_owned(), all.to_owned(), 1011, "drop"),
            ("type", "AllowInterNode", between("outport"), between("inport"), 1012, "allow"),
            ("k8s.ovn.org/name", "shop", heard, sent, 1012, "allow"),
        ];
        let mut acls = BTreeMap::<&str, Vec<Atom>>::new();
        for (key, value, to_port, from_port, priority, action) in kinds {
            let kind = if key == "type" { "MulticastCluster" } else { "MulticastNS" };
            for (direction, side, matching) in
                [("Ingress", "to-lport", to_port), ("Egress", "from-lport", from_port)]
            {
                let id = format!("default-network-controller:{kind}:{value}:{direction}");
                let ids = [
                    ("k8s.ovn.org/id", id.as_str()),
                    (key, value),
                    ("direction", direction),
                    ("k8s.ovn.org/owner-controller", "default-network-controller"),
                    ("k8s.ovn.org/owner-type", kind),
                ];
                let mut row = Columns::from([
                    ("action".to_owned(), Datum::set([action])),
                    ("direction".to_owned(), Datum::set([side])),
                    ("external_ids".to_owned(), strings(&ids)),
                    ("match".to_owned(), Datum::set([matching])),
                    ("meter".to_owned(), Datum::set(["acl-logging"])),
                    ("priority".to_owned(), Datum::set([priority])),
                    ("tier".to_owned(), Datum::set([2])),
                ]);
                if side == "from-lport" {
                    row.insert("options".to_owned(), strings(&[("apply-after-lb", "true")]));
                }
                let name = format!("ACL_multicast_{value}_{direction}");
                acls.entry(value).or_default().push(Atom::NamedUuid(name.clone()));
                fixture.rows.get_mut("ACL").unwrap().insert(name, row);
            }
        }
        fixture.add_groups(&acls["shop"]);
        let ports = fixture.rows["Logical_Switch_Port"]
            .keys()
            .filter(|port| port.starts_with("Logical_Switch_Port_stor_"));
        let ports: Vec<Atom> = ports.cloned().map(Atom::NamedUuid).collect();
        let groups = fixture.rows.get_mut("Port_Group").unwrap();
        let group = |name: &str| format!("Port_Group_default_network_controller_Cluster_{name}");
        let routers = groups.get_mut(&group("clusterRtrPortGroup")).unwrap();
        routers.insert("ports".to_owned(), Datum::Set(ports));
        routers.insert("acls".to_owned(), Datum::Set(acls["AllowInterNode"].clone()));
        let Some(Datum::Set(of_all)) =
            groups.get_mut(&group("clusterPortGroup")).unwrap().get_mut("acls")
        else {
            panic!("a set of ACLs")
        };
        of_all.extend(acls["DefaultDeny"].iter().cloned());
        fixture
    }

    /// Adds the groups of namespaces' pods that upstream has for EgressFirewalls and multicast,
    /// with rules in that of `shop`.
    fn add_groups(&mut self, acls: &[Atom]) {
        let ports = self.rows["Logical_Switch_Port"].keys().cloned().collect::<Vec<_>>();
        for namespace in ["bank", "default", "shop"] {
            let own = ports
                .iter()
                .filter(|port| port.starts_with(&format!("Logical_Switch_Port_{namespace}_")));
            let mut row = Columns::from([
                ("name".to_owned(), Datum::set([group_of(namespace)])),
                ("external_ids".to_owned(), ids("Namespace", namespace, None)),
                ("ports".to_owned(), Datum::Set(own.cloned().map(Atom::NamedUuid).collect())),
            ]);
            if namespace == "shop" {
                row.insert("acls".to_owned(), Datum::Set(acls.to_vec()));
            }
            let name = format!("Port_Group_default_network_controller_Namespace_{namespace}");
            self.rows.get_mut("Port_Group").unwrap().insert(name, row);
        }
    }

    /// `shared-v4` as with `--enable-svc-template-support`: the node port has a load balancer of
    /// all switches and one of all routers, and each chassis a variable with its node's address.
    pub(crate) fn templates_v4() -> Self {
        let mut fixture = Self { name: "shared-v4 with templates", ..Self::shared_v4() };
        let is_of_node =
            |name: &str| name.starts_with("Load_Balancer_Service_default_web_TCP_node_");
        let balancers = fixture.rows.get_mut("Load_Balancer").unwrap();
        let gone: Vec<String> = balancers.keys().filter(|name| is_of_node(name)).cloned().collect();
        let rows: Vec<Columns> = gone.iter().filter_map(|name| balancers.remove(name)).collect();
        let row = &rows[0];
        let backends = row["vips"].pairs()[0].1.clone();
        for (on, group) in [("switch", "clusterSwitchLBGroup"), ("router", "clusterRouterLBGroup")]
        {
            let mut row = row.clone();
            let name = format!("Service_default/web_TCP_node_{on}_template_IPv4");
            row.insert("name".to_owned(), Datum::set([name]));
            let mut options = row["options"].pairs().to_vec();
            for (key, value) in [("template", "true"), ("address-family", "ipv4")] {
                options.push((Atom::String(key.to_owned()), Atom::String(value.to_owned())));
            }
            row.insert("options".to_owned(), Datum::Map(options));
            let vip = Atom::String("^NODEIP_IPv4_0:30080".to_owned());
            row.insert("vips".to_owned(), Datum::Map(vec![(vip, backends.clone())]));
            let reference = format!("Load_Balancer_web_{on}_template");
            let groups = fixture.rows.get_mut("Load_Balancer_Group").unwrap();
            let group = groups.get_mut(&format!("Load_Balancer_Group_{group}")).unwrap();
            group.insert(
                "load_balancer".to_owned(),
                Datum::Set(vec![Atom::NamedUuid(reference.clone())]),
            );
            fixture.rows.get_mut("Load_Balancer").unwrap().insert(reference, row);
        }
        let is_gone = |atom: &Atom| matches!(atom, Atom::NamedUuid(name) if gone.contains(name));
        for table in ["Logical_Switch", "Logical_Router"] {
            for row in fixture.rows.get_mut(table).unwrap().values_mut() {
                if let Some(Datum::Set(balancers)) = row.get_mut("load_balancer") {
                    balancers.retain(|balancer| !is_gone(balancer));
                }
            }
        }
        let variables = fixture.nodes.iter().cloned().map(NodeObject::into_node).map(|node| {
            let address = node.host_addresses[0].to_string();
            let chassis = node.chassis.unwrap();
            let columns = [
                ("chassis".to_owned(), Datum::set([chassis.clone()])),
                ("variables".to_owned(), Datum::map([("NODEIP_IPv4_0", address.as_str())])),
            ];
            (format!("Chassis_Template_Var_{}", chassis.replace('-', "_")), Columns::from(columns))
        });
        let variables = variables.collect();
        fixture.rows.insert("Chassis_Template_Var".to_owned(), variables);
        fixture
    }

    /// `templates_v4`, where the host of `n2` and a machine outside of the cluster are the
    /// endpoints of the node port. Upstream has a variable for its backends on routers then, and
    /// the Service's own address is by node.
    pub(crate) fn templates_of_hosts_v4() -> Self {
        let mut fixture =
            Self { name: "shared-v4 with templates of hosts", ..Self::templates_v4() };
        let text = |text: &str| Atom::String(text.to_owned());
        let one = |vip: &str, backends: &str| Datum::Map(vec![(text(vip), text(backends))]);
        // In the order of texts, as upstream has them.
        let (everywhere, at_own_router) =
            ("172.30.0.12:8080,172.30.0.9:8080", "169.254.169.2:8080,172.30.0.9:8080");
        let mut slices =
            read_json::<List<serde_json::Value>>("shared-v4", "endpointslices.json").items;
        let slice =
            slices.iter_mut().find(|slice| slice["metadata"]["name"] == "web-x7k2p").unwrap();
        slice["endpoints"] = json!([
            {"addresses": ["172.30.0.12"], "conditions": {"ready": true}, "nodeName": "n2"},
            {"addresses": ["172.30.0.9"], "conditions": {"ready": true}},
        ]);
        fixture.slices =
            slices.into_iter().map(|slice| serde_json::from_value(slice).unwrap()).collect();

        let variable = "Service__default_web__TCP__30080__node__router__template__IPv4";
        let balancers = fixture.rows.get_mut("Load_Balancer").unwrap();
        let vip = "^NODEIP_IPv4_0:30080";
        for (on, backends) in [("switch", everywhere), ("router", &format!("^{variable}"))] {
            let row = balancers.get_mut(&format!("Load_Balancer_web_{on}_template")).unwrap();
            row.insert("vips".to_owned(), one(vip, backends));
        }
        for (chassis, row) in fixture.rows.get_mut("Chassis_Template_Var").unwrap() {
            let backends = if chassis.contains("7c0c5b52") { at_own_router } else { everywhere };
            let mut variables = row["variables"].pairs().to_vec();
            variables.push((text(variable), text(backends)));
            row.insert("variables".to_owned(), Datum::Map(variables));
        }

        let balancers = fixture.rows.get_mut("Load_Balancer").unwrap();
        let cluster = balancers.remove("Load_Balancer_Service_default_web_TCP_cluster").unwrap();
        let of_n2 = ["Logical_Router_GR_n2"].as_slice();
        let others = [
            "Logical_Switch_n1",
            "Logical_Switch_n2",
            "Logical_Switch_n3_example_org",
            "Logical_Router_GR_n1",
            "Logical_Router_GR_n3_example_org",
        ];
        for (name, backends, on) in [
            ("node_router+switch_n1_merged", everywhere, others.as_slice()),
            ("node_router_n2", at_own_router, of_n2),
        ] {
            let mut row = cluster.clone();
            row.insert("name".to_owned(), Datum::set([format!("Service_default/web_TCP_{name}")]));
            row.insert("vips".to_owned(), one("10.96.7.7:80", backends));
            let reference = format!("Load_Balancer_web_{}", name.replace('+', "_"));
            fixture.rows.get_mut("Load_Balancer").unwrap().insert(reference.clone(), row);
            for holder in on {
                let table = if holder.starts_with("Logical_Switch") {
                    "Logical_Switch"
                } else {
                    "Logical_Router"
                };
                let row = fixture.rows.get_mut(table).unwrap().get_mut(*holder).unwrap();
                let held =
                    row.entry("load_balancer".to_owned()).or_insert_with(|| Datum::Set(Vec::new()));
                let Datum::Set(held) = held else { panic!("a set: {held:?}") };
                held.push(Atom::NamedUuid(reference.clone()));
            }
        }
        let groups = fixture.rows.get_mut("Load_Balancer_Group").unwrap();
        groups.get_mut("Load_Balancer_Group_clusterLBGroup").unwrap().remove("load_balancer");
        fixture
    }

    pub(crate) fn zone_v4() -> Self {
        Self::read(
            "zone-v4",
            ClusterConfig { zone: Zone("n1".to_owned()), interconnect: Interconnect::On, ..v4() },
        )
    }

    fn read(name: &'static str, config: ClusterConfig) -> Self {
        let northbound: Northbound = read_json(name, "northbound.json");
        let columns = |row: BTreeMap<String, _>| {
            row.into_iter().map(|(column, value)| (column, datum(&value))).collect()
        };
        let table = |rows: BTreeMap<String, _>| {
            rows.into_iter().map(|(name, row)| (name, columns(row))).collect()
        };
        Self {
            name,
            config,
            rows: northbound.rows.into_iter().map(|(name, rows)| (name, table(rows))).collect(),
            nodes: read_json::<List<_>>(name, "nodes.json").items,
            pods: read_json::<List<_>>(name, "pods.json").items,
            services: read_json::<List<_>>(name, "services.json").items,
            slices: read_json::<List<_>>(name, "endpointslices.json").items,
            policies: match name {
                "shared-v4" => read_json::<List<_>>(name, "networkpolicies.json").items,
                _ => Vec::new(),
            },
            logging: AclLogging::default(),
            multicast: Multicast::Off,
            firewall: None,
            qos: None,
        }
    }

    /// The controller's store after it has read all objects.
    pub(crate) fn store(&self) -> Store {
        let mut store = Store::new(self.config.clone());
        let found = self.with_sets().into_iter().map(|name| (SetId::Namespace(name), Vec::new()));
        store.found_sets(found);
        if self.firewall.is_some() {
            store.found_list(("shop".into(), 2), NODES.map(|address| address.parse().unwrap()));
        }
        for observation in self.observations() {
            store.observe(observation, &mut |_, _| ());
        }
        store.gateway_routers(self.gateway_routers(), &mut |_, _| ());
        let has_variables = self.rows.contains_key("Chassis_Template_Var");
        store.use_templates(if has_variables {
            TemplateUse::FromTheStart
        } else {
            TemplateUse::Never
        });
        store
    }

    /// The first observations of a controller.
    pub(crate) fn observations(&self) -> Vec<WatchEvent> {
        let nodes = self.nodes.iter().cloned().map(NodeObject::into_node).collect();
        let services =
            self.services.iter().cloned().map(|object| object.value().unwrap()).collect();
        let slices = self.slices.iter().cloned().map(|object| object.value().unwrap()).collect();
        let namespaces = self.namespaces().into_iter().map(|name| {
            let multicast = if *name == *"shop" { self.multicast } else { Multicast::Off };
            (name, Namespace { logging: self.logging, multicast, ..Namespace::default() })
        });
        let policies = self.policies.iter().cloned().map(|object| object.value().unwrap());
        let lists = [
            WatchEvent::Nodes(Seen::All(nodes)),
            WatchEvent::Pods(Seen::All(self.all_pods())),
            WatchEvent::Services(Seen::All(services)),
            WatchEvent::Slices(Seen::All(slices)),
            WatchEvent::Namespaces(Seen::All(namespaces.collect())),
            WatchEvent::Policies(Seen::All(policies.collect())),
        ];
        let firewall = self.firewall.iter().map(|firewall| ("shop".into(), firewall.clone()));
        let firewalls = WatchEvent::custom(Seen::All(firewall.collect()));
        let others = WatchEvent::no_optional_kinds().into_iter();
        let qos = self.qos.iter().map(|qos| ("shop".into(), qos.clone()));
        let qos = WatchEvent::custom(Seen::All(qos.collect()));
        let others = others.filter(|list| !matches!(list, WatchEvent::Custom(_)));
        lists.into_iter().chain(others).chain([firewalls, qos]).collect()
    }

    /// The namespaces that upstream has made sets for.
    fn with_sets(&self) -> BTreeSet<Arc<str>> {
        let rows = self.rows.get("Address_Set").into_iter().flat_map(BTreeMap::values);
        let ids = rows.filter_map(|row| row.get("external_ids")).map(Datum::pairs);
        let names = ids.filter_map(|ids| {
            let id = |key: &str| ids.iter().find(|(own, _)| own.as_str() == Some(key))?.1.as_str();
            id("k8s.ovn.org/name").filter(|_| id("k8s.ovn.org/owner-type") == Some("Namespace"))
        });
        names.map(Into::into).collect()
    }

    /// These, and the namespaces of policies and pods.
    fn namespaces(&self) -> BTreeSet<Arc<str>> {
        let of_policies =
            self.policies.iter().filter_map(|policy| policy.metadata.namespace.as_deref());
        let of_pods = self.pods.iter().filter_map(|pod| pod.metadata.namespace.as_deref());
        of_policies.chain(of_pods).map(Into::into).chain(self.with_sets()).collect()
    }

    /// The nodes with gateway routers, which the controller finds in the database.
    fn gateway_routers(&self) -> BTreeSet<NodeName> {
        let routers =
            self.rows["Logical_Router"].values().filter_map(|row| row["name"].scalar()?.as_str());
        routers.filter_map(|name| name.strip_prefix("GR_")).map(Into::into).collect()
    }

    pub(crate) fn all_pods(&self) -> Vec<(PodKey, Pod)> {
        self.pods.iter().cloned().map(|pod| pod.into_pod().unwrap()).collect()
    }

    pub(crate) fn pod(&self, namespace: &str, name: &str) -> (PodKey, Pod) {
        self.all_pods()
            .into_iter()
            .find(|(key, _)| (key.namespace(), key.name()) == (namespace, name))
            .unwrap()
    }

    /// Addresses that pods have by upstream's annotations. Those of pods that have ended are free.
    pub(crate) fn addresses(&self) -> BTreeSet<IpAddr> {
        let pods = self.all_pods().into_iter().filter(|(_, pod)| pod.needs_network());
        let networks = pods.filter_map(|(_, pod)| match pod.annotated {
            Annotated::Network { network, .. } => Some(network),
            Annotated::Nothing | Annotated::Unusable(_) => None,
        });
        networks
            .flat_map(|network| network.addresses.clone())
            .map(|address| address.addr())
            .collect()
    }
}

/// The name of the group of a namespace's pods.
fn group_of(namespace: &str) -> String {
    hash(&format!("default-network-controller:Namespace:{namespace}"))
}

/// The ids of a row about an object, or about one of its rules.
fn ids(kind: &str, name: &str, rule: Option<&str>) -> Datum {
    let id = ["default-network-controller", kind, name].into_iter().chain(rule);
    let id = id.collect::<Vec<_>>().join(":");
    let pairs = [
        ("k8s.ovn.org/id", id.as_str()),
        ("k8s.ovn.org/name", name),
        ("k8s.ovn.org/owner-controller", "default-network-controller"),
        ("k8s.ovn.org/owner-type", kind),
    ];
    Datum::map(pairs.into_iter().chain(rule.map(|rule| ("rule-index", rule))))
}

/// The ids of a row with further keys.
fn with_ids(id: &str, kind: &str, name: &str, more: &[(&str, &str)]) -> Datum {
    let pairs = [
        ("k8s.ovn.org/id", id),
        ("k8s.ovn.org/name", name),
        ("k8s.ovn.org/owner-controller", "default-network-controller"),
        ("k8s.ovn.org/owner-type", kind),
    ];
    Datum::map(pairs.into_iter().chain(more.iter().copied()))
}

fn read_json<T: DeserializeOwned>(fixture: &str, file: &str) -> T {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/upstream").join(fixture).join(file);
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The options of `upstream/README.md`.
fn v4() -> ClusterConfig {
    ClusterConfig {
        cluster_subnets: vec![ClusterSubnet {
            cidr: "10.244.0.0/16".parse().unwrap(),
            host_length: 24,
        }],
        service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
        // As without an option.
        templates: Templates::AsFound,
        ..ClusterConfig::default()
    }
}

fn v6() -> ClusterConfig {
    ClusterConfig {
        cluster_subnets: vec![ClusterSubnet {
            cidr: "fd00:10:244::/48".parse().unwrap(),
            host_length: 64,
        }],
        service_cidrs: vec!["fd00:10:96::/112".parse().unwrap()],
        join_subnets: vec!["fd98::/64".parse().unwrap()],
        transit_subnets: vec!["fd97::/64".parse().unwrap()],
        hairpin_addresses: vec!["fd69::5".parse().unwrap()],
        ..v4()
    }
}

fn dual() -> ClusterConfig {
    let (v4, v6) = (v4(), v6());
    ClusterConfig {
        cluster_subnets: [v4.cluster_subnets, v6.cluster_subnets].concat(),
        service_cidrs: [v4.service_cidrs, v6.service_cidrs].concat(),
        join_subnets: [v4.join_subnets, v6.join_subnets].concat(),
        transit_subnets: [v4.transit_subnets, v6.transit_subnets].concat(),
        hairpin_addresses: [v4.hairpin_addresses, v6.hairpin_addresses].concat(),
        ..v6
    }
}

/// Parses a `<value>` of RFC 7047 §5.1.
fn datum(value: &serde_json::Value) -> Datum {
    let list = |value: &serde_json::Value| {
        value.as_array().unwrap_or_else(|| panic!("{value} is no list")).clone()
    };
    match value.as_array().map(Vec::as_slice) {
        Some([kind, elements]) if kind == "set" => {
            Datum::Set(list(elements).iter().map(atom).collect())
        }
        Some([kind, pairs]) if kind == "map" => Datum::Map(
            list(pairs).iter().map(list).map(|pair| (atom(&pair[0]), atom(&pair[1]))).collect(),
        ),
        _ => Datum::Set(vec![atom(value)]),
    }
}

fn atom(value: &serde_json::Value) -> Atom {
    match value {
        serde_json::Value::String(text) => Atom::String(text.clone()),
        serde_json::Value::Bool(truth) => Atom::Boolean(*truth),
        serde_json::Value::Number(number) => Atom::Integer(number.as_i64().unwrap()),
        serde_json::Value::Array(reference) if reference[0] == "named-uuid" => {
            Atom::NamedUuid(reference[1].as_str().unwrap().to_owned())
        }
        other => panic!("{other} is no value of a column"),
    }
}
