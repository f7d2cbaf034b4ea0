//! A user with all rights in one namespace: NetworkPolicies, EgressFirewalls, annotations of the
//! namespace.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use integration::{Node, tenants::long_forms, traffic::End};
use serde_json::{Value, json};

use crate::tenants::site::{Body, EVIL, Site, at};

pub(crate) const ROWS: &[(u8, Body)] = &[
    (1, a_name_collides),
    (2, rules_without_number),
    (3, rules_that_differ),
    (4, blocks_without_number),
    (5, everything_but_five_networks),
    (62, namespaces_as_peers),
    (63, selectors_without_number),
    (64, ports_by_a_name),
    (65, policies_come_and_go),
    (66, policies_that_are_broken),
    (67, a_log_without_end),
    (68, groups_of_multicast),
    (69, a_firewall_about_nodes),
    (70, a_selector_that_reads_like_another),
    (71, a_firewall_is_dear),
    (100, a_set_collides),
];

/// Its port group is `a10810684934486818000`, as that of `shop/db` (FNV-1a, 64 bits).
const COLLIDING: &str = "h7e8tz2mm0z2o51eyoy3ujo8324wrukik56p9x6x39ocegdas2ejqqstp1mw89f2tpu3en33j9r2btjr670fuevozqosgegwl1d0\
    tt9xf03szfwwi6okilizqce3mg54zpqcviw1x73vu4tv10kpfxcgh4z232a9355sow9fnq041nxnvbm2";

/// The set of pods with this label in `evil` is `a10104312984753620406`, as that of pods with
/// `name: web` in `shop`.
const COLLIDING_LABEL: &str = "dpbdzcxgm6ghz2vb4kyhhbzcf9c7zbrxcr5js7";

pub(crate) fn policy(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"namespace": namespace, "name": name}, "spec": spec,
    })
}

/// About pods with the label `name`.
pub(crate) fn about(name: &str) -> Value {
    json!({"matchLabels": {"name": name}})
}

fn a_name_collides(site: &Site<'_>) -> Result<String> {
    site.namespace("shop")?;
    let db = site.attached("shop", "db", 0)?;
    site.hold(site.answering(&db, 8080)?);
    site.put(&policy("shop", "db", &json!({"podSelector": {}, "policyTypes": ["Ingress"]})))?;
    let client = site.attached(EVIL, "client", 1)?;
    let (from, to) = (End::Pod(&client), at(&db, 8080));
    site.is_closed(&from, &to)?;
    let thief = policy(
        EVIL,
        COLLIDING,
        &json!({"podSelector": about("none"), "policyTypes": ["Ingress"], "ingress": [{}]}),
    );
    site.put(&thief)?;
    site.settled()?;
    let beside = site.answered(&from, &to)?;
    site.objects.remove(&thief)?;
    site.settled()?;
    let after = site.answered(&from, &to)?;
    ensure!(beside + after == 0, "{beside} answers beside the policy, {after} after it");
    Ok("0 of 8 questions answered".to_owned())
}

fn a_set_collides(site: &Site<'_>) -> Result<String> {
    site.namespace("shop")?;
    let db = site.attached("shop", "db", 0)?;
    site.hold(site.answering(&db, 8080)?);
    let web = site.attached("shop", "web", 1)?;
    let ingress = |name: &str| json!([{"from": [{"podSelector": about(name)}]}]);
    let closes =
        json!({"podSelector": about("db"), "policyTypes": ["Ingress"], "ingress": ingress("web")});
    site.put(&policy("shop", "db", &closes))?;
    let client = site.attached(EVIL, COLLIDING_LABEL, 1)?;
    let (from, to) = (End::Pod(&client), at(&db, 8080));
    site.is_closed(&from, &to)?;
    let thief = policy(
        EVIL,
        "thief",
        &json!({"podSelector": about("none"), "ingress": ingress(COLLIDING_LABEL)}),
    );
    site.put(&thief)?;
    site.settled()?;
    let beside = site.answered(&from, &to)?;
    let own = SocketAddr::new(db.address(), 8080);
    site.answers_as(&End::Pod(&web), own, own.ip(), 5).context("who is let in")?;
    site.objects.remove(&thief)?;
    site.settled()?;
    let after = site.answered(&from, &to)?;
    ensure!(beside + after == 0, "{beside} answers beside the policy, {after} after it");
    site.answers_as(&End::Pod(&web), own, own.ip(), 5).context("who is let in, after it")?;
    Ok(format!(
        "0 of 8 questions answered, who is let in reaches the pod; events: {}",
        site.news()?
    ))
}

fn rules_without_number(site: &Site<'_>) -> Result<String> {
    let rules = if long_forms() { 400_000 } else { 50_000 };
    let spec =
        json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": vec![json!({}); rules]});
    site.put(&policy(EVIL, "many", &spec))?;
    site.settled()?;
    Ok(format!("{rules} rules; events: {}", site.news()?))
}

fn rules_that_differ(site: &Site<'_>) -> Result<String> {
    let victim = site.attached(EVIL, "selected", 0)?;
    site.hold(site.answering(&victim, 8080)?);
    let rule = |number: usize| {
        let cidr =
            format!("198.{}.{}.{}/32", 18 + number / 65536, number / 256 % 256, number % 256);
        json!({"from": [{"ipBlock": {"cidr": cidr}}], "ports": [{"port": 1 + number % 60_000}]})
    };
    // The last one would let everybody in.
    let rules: Vec<Value> = (0..20_000).map(rule).chain([json!({})]).collect();
    site.put(&policy(EVIL, "many", &json!({"podSelector": about("selected"), "ingress": rules})))?;
    site.settled()?;
    site.is_closed(&End::Pod(&site.bystander().here), &at(&victim, 8080))?;
    Ok(format!("{} rules; closed; events: {}", rules.len(), site.told()?))
}

fn blocks_without_number(site: &Site<'_>) -> Result<String> {
    site.attached(EVIL, "selected", 0)?;
    let block = |number: usize| json!({"ipBlock": {"cidr": format!("198.18.{}.{}/32", number / 256, number % 256)}});
    let peers: Vec<Value> = (0..10_000).map(block).collect();
    site.put(&policy(
        EVIL,
        "many",
        &json!({"podSelector": about("selected"), "ingress": [{"from": peers}]}),
    ))?;
    site.settled()?;
    Ok(format!("{} blocks; events: {}", peers.len(), site.news()?))
}

fn everything_but_five_networks(site: &Site<'_>) -> Result<String> {
    let pod = site.attached(EVIL, "selected", 0)?;
    site.settled()?;
    let before = flows(site.first())?;
    let except =
        ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"];
    let block = json!({"ipBlock": {"cidr": "0.0.0.0/0", "except": except}});
    site.put(&policy(
        EVIL,
        "world",
        &json!({"podSelector": about("selected"), "policyTypes": ["Egress"], "egress": [{"to": [block]}]}),
    ))?;
    let there = SocketAddr::new(site.bystander().there.address(), 8080);
    site.is_closed(&End::Pod(&pod), &[there])?;
    site.lab.central.sync()?;
    let more = flows(site.first())?.saturating_sub(before);
    ensure!(more <= 500, "{more} flows");
    Ok(format!("{more} flows"))
}

/// Flows of the node's integration bridge.
pub(crate) fn flows(node: &Node) -> Result<usize> {
    Ok(node
        .shell("ovs-ofctl -O OpenFlow14 dump-aggregate br-int | sed 's/.*flow_count=//'")?
        .trim()
        .parse()?)
}

fn namespaces_as_peers(site: &Site<'_>) -> Result<String> {
    let (namespaces, rules) = if long_forms() { (200, 3_000) } else { (40, 1_000) };
    for number in 0..namespaces {
        site.namespace(&format!("other-{number}"))?;
    }
    site.attached(EVIL, "selected", 0)?;
    let rule = |number: usize| json!({"from": [{"namespaceSelector": {}}], "ports": [{"port": 1 + number}]});
    let rules: Vec<Value> = (0..rules).map(rule).collect();
    site.put(&policy(EVIL, "all", &json!({"podSelector": about("selected"), "ingress": rules})))?;
    site.settled()?;
    // Each new namespace is another peer of all of them.
    site.namespace("one-more")?;
    site.settled()?;
    Ok(format!("{} rules about {namespaces} namespaces; events: {}", rules.len(), site.news()?))
}

fn selectors_without_number(site: &Site<'_>) -> Result<String> {
    let selectors = if long_forms() { 12_000 } else { 2_000 };
    site.attached(EVIL, "selected", 0)?;
    let peer = |number: usize| {
        let not = json!({"matchExpressions": [{"key": "n", "operator": "NotIn", "values": [format!("v{number}")]}]});
        json!({"namespaceSelector": {}, "podSelector": not})
    };
    let peers: Vec<Value> = (0..selectors).map(peer).collect();
    site.put(&policy(
        EVIL,
        "sets",
        &json!({"podSelector": about("selected"), "ingress": [{"from": peers}]}),
    ))?;
    site.settled()?;
    let sets = site.lab.central.nbctl(["--bare", "--columns=name", "list", "Address_Set"])?;
    Ok(format!(
        "{selectors} selectors, {} sets; events: {}",
        sets.split_whitespace().count(),
        site.news()?
    ))
}

fn ports_by_a_name(site: &Site<'_>) -> Result<String> {
    site.namespace("shop")?;
    site.attached("shop", "web", 1)?;
    let egress = json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"ports": [{"port": "http"}]}]});
    site.put(&policy("shop", "names", &egress))?;
    site.settled()?;
    let matches = || {
        let condition = "external_ids:k8s.ovn.org/owner-type=NetworkPolicy";
        anyhow::Ok(
            site.lab.central.nbctl(["--bare", "--columns=match", "find", "ACL", condition])?.len(),
        )
    };
    let before = matches()?;
    let mut object = site.pod_object(EVIL, "pending", 0);
    object["spec"]["nodeName"] = Value::Null;
    let container = |number: usize| json!({"name": format!("c{number}"), "image": "none", "ports": [{"name": "http", "containerPort": 1000 + number}]});
    object["spec"]["containers"] = json!((0..500).map(container).collect::<Vec<Value>>());
    site.put(&object)?;
    site.settled()?;
    let after = matches()?;
    ensure!(after <= before + 200, "others' rules had {before} bytes and have {after}");
    Ok(format!("others' rules {before} → {after} bytes"))
}

fn policies_come_and_go(site: &Site<'_>) -> Result<String> {
    const CHANGES: usize = 200;
    site.attached(EVIL, "selected", 0)?;
    for number in 0..CHANGES {
        let spec = json!({"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": format!("198.18.0.{number}/32")}}]}]});
        let object = policy(EVIL, &format!("p{}", number % 20), &spec);
        site.put(&object)?;
        if number % 2 == 1 {
            site.objects.remove(&object)?;
        }
    }
    site.settled()?;
    Ok(format!("{CHANGES} policies written, half of them deleted at once"))
}

fn policies_that_are_broken(site: &Site<'_>) -> Result<String> {
    const BROKEN: usize = 600;
    let spec = json!({"podSelector": {}, "ingress": [{"ports": [{"port": "no-pod-has-this-name"}], "from": [{"ipBlock": {"cidr": "10.0.0.0/99"}}]}]});
    for number in 0..BROKEN {
        // A real API server refuses what cannot be read.
        let _ = site.put(&policy(EVIL, &format!("broken-{number}"), &spec));
    }
    site.settled()?;
    // Another tenant's fault is still told.
    site.namespace("shop")?;
    let before = site.objects.events()?.len();
    let ports = json!([{"name": "t", "protocol": "TCP", "port": 80, "targetPort": 8080}]);
    let other = crate::tenants::services::service(
        "shop",
        "unusable",
        "10.96.64.1",
        &ports,
        &json!({"externalIPs": ["not-an-address"]}),
    );
    // The real API server would refuse it, and tells no event.
    if site.put(&other).is_err() {
        return Ok(format!("{BROKEN} policies; events: {}", site.news()?));
    }
    integration::eventually("another tenant's event", crate::tenants::site::SOON, || {
        let now = site.objects.events()?.len();
        ensure!(now > before, "still {before} events");
        Ok(())
    })?;
    Ok(format!("{BROKEN} broken policies, {before} events of them; another tenant's comes"))
}

fn a_log_without_end(site: &Site<'_>) -> Result<String> {
    let garbage = ["{", "[]", r#"{"deny":"loud","allow":7}"#, r#"{"deny":"info","allow":"info"}"#];
    for text in garbage {
        let mut object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": EVIL}});
        object["metadata"]["annotations"] = json!({"k8s.ovn.org/acl-logging": text});
        site.objects.patch(&object, &object)?;
    }
    let pod = site.attached(EVIL, "selected", 0)?;
    let client = site.attached(EVIL, "client", 0)?;
    site.put(&policy(
        EVIL,
        "logged",
        &json!({"podSelector": about("selected"), "policyTypes": ["Ingress"]}),
    ))?;
    site.is_closed(&End::Pod(&client), &at(&pod, 8080))?;
    let lines = || -> Result<usize> {
        let text = site.first().shell("grep -c acl_log /var/log/ovn/ovn-controller.log || true")?;
        Ok(text.trim().parse()?)
    };
    let (before, began) = (lines()?, std::time::Instant::now());
    let to = SocketAddr::new(pod.address(), 8080);
    for _ in 0..3 {
        site.lab.ask(&End::Pod(&client), &vec![to; 200], &vec![to; 200])?;
    }
    let (logged, took) = (lines()? - before, began.elapsed().as_secs_f64());
    let object = json!({"kind": "Namespace", "metadata": {"name": EVIL}});
    site.objects
        .patch(&object, &json!({"metadata": {"annotations": {"k8s.ovn.org/acl-logging": null}}}))?;
    let rate = logged as f64 / took;
    ensure!(rate <= 100.0, "{logged} lines in {took:.1} s");
    Ok(format!("1,200 questions refused, {logged} lines of the log in {took:.1} s"))
}

fn groups_of_multicast(site: &Site<'_>) -> Result<String> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": EVIL}});
    let annotate = |value: Value| {
        site.objects.patch(
            &object,
            &json!({"metadata": {"annotations": {"k8s.ovn.org/multicast-enabled": value}}}),
        )
    };
    annotate(json!("true"))?;
    let sender = site.attached(EVIL, "sender", 0)?;
    let member = site.attached(EVIL, "member", 0)?;
    site.settled()?;
    let group = "239.1.2.3:7007".parse()?;
    let join = |pod| site.lab.member(pod, group);
    let members = [join(&member)?, join(&site.bystander().here)?, join(&site.bystander().there)?];
    let mut round = 0;
    let heard = integration::eventually(
        "the tenant's own member hears the group",
        crate::tenants::site::SOON,
        || {
            round += 1;
            let heard = site.lab.heard_by(&sender, round, members.each_ref())?;
            ensure!(heard[0], "it hears nothing");
            Ok(heard)
        },
    );
    annotate(Value::Null)?;
    let heard = heard?;
    ensure!(!heard[1] && !heard[2], "members of another namespace hear it: {heard:?}");
    Ok(format!("heard by {heard:?}: its own, the bystander's"))
}

/// An EgressFirewall with these rules.
fn firewall(namespace: &str, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "EgressFirewall",
        "metadata": {"namespace": namespace, "name": "default"}, "spec": {"egress": rules},
    })
}

fn a_firewall_about_nodes(site: &Site<'_>) -> Result<String> {
    let rules = if long_forms() { 8_000 } else { 2_000 };
    let rule = |number: usize| json!({"type": "Deny", "to": {"nodeSelector": {}}, "ports": [{"protocol": "TCP", "port": 1 + number}]});
    let rules: Vec<Value> = (0..rules).map(rule).collect();
    site.attached(EVIL, "selected", 0)?;
    site.put(&firewall(EVIL, &rules))?;
    site.settled()?;
    Ok(format!("{} rules about every node; events: {}", rules.len(), site.news()?))
}

fn a_selector_that_reads_like_another(site: &Site<'_>) -> Result<String> {
    let node = json!({"kind": "Node", "metadata": {"name": site.second().name}});
    let of_node =
        |value: Value| site.objects.patch(&node, &json!({"metadata": {"labels": {"part": value}}}));
    let about = |values: &[&str]| {
        let selector =
            json!({"matchExpressions": [{"key": "part", "operator": "In", "values": values}]});
        [json!({"type": "Deny", "to": {"nodeSelector": selector}})]
    };
    let host = SocketAddr::new(site.lab.world().of_node(site.second())[0], 2224);
    site.hold(site.lab.answering_at(&End::Node(site.second()), &[host])?);
    site.put(&firewall(EVIL, &about(&["a,b"])))?;
    site.settled()?;
    of_node(json!("a"))?;
    site.namespace("shop")?;
    let pod = site.attached("shop", "client", 0)?;
    site.lab.answers(
        "a host answers without rules",
        &End::Pod(&pod),
        &[(host, host.ip())],
        crate::tenants::site::SOON,
    )?;
    site.put(&firewall("shop", &about(&["a", "b"])))?;
    let closed = site.is_closed(&End::Pod(&pod), &[host]);
    of_node(Value::Null)?;
    closed?;
    Ok("0 of 2 questions answered".to_owned())
}

fn a_firewall_is_dear(site: &Site<'_>) -> Result<String> {
    let rules = if long_forms() { 20_000 } else { 8_001 };
    let rule = |number: usize| json!({"type": "Allow", "to": {"cidrSelector": format!("198.{}.{}.{}/32", 18 + number / 65536, number / 256 % 256, number % 256)}});
    let rules: Vec<Value> = (0..rules)
        .map(rule)
        .chain([json!({"type": "Deny", "to": {"cidrSelector": "0.0.0.0/0"}})])
        .collect();
    let pod = site.attached(EVIL, "selected", 0)?;
    site.put(&firewall(EVIL, &rules))?;
    site.settled()?;
    let _ = pod;
    Ok(format!("{} rules; events: {}", rules.len(), site.news()?))
}
