//! A compromised node of another zone: all that zones know of each other are annotations of nodes,
//! and it writes its own as it likes. The bystander has a node in each of two zones; the node that
//! does not exist is of a third one.

use std::{sync::atomic::AtomicU64, time::Duration};

use anyhow::{Context as _, Result, ensure};
use contract::node_annotation::{
    ALL, CHASSIS_ID, ENCAP_IPS, NEXT_ZONE, NODE_ID, NODE_SUBNETS, PRIMARY_ADDRESSES,
    TRANSIT_ADDRESSES, ZONE,
};
use integration::{Families, Lab, Pod, central::Central, eventually, let_pass, tenants};
use serde_json::{Value, json};

use crate::{
    support::{api::Api, managed, two_zones::TwoZones},
    tenants::{
        objects::Played,
        site::{Body, EVIL, SOON, Site},
    },
};

pub(crate) const ROWS: &[(u8, Body)] = &[
    (102, subnets_outside_of_the_cluster),
    (103, anothers_subnet),
    (104, anothers_tunnels),
    (105, special_addresses),
    (106, moves_without_end),
    (107, junk),
    (108, half_of_the_cluster),
];

const MALLORY: &str = "mallory";
/// Its zone.
const THIRD: &str = "c";
/// The beginning of its chassis: each row has one of its own, since one that came and went often
/// rests.
const CHASSIS: &str = "11111111-2222-4333-8444-555555555";
const OWN_ADDRESS: &str = "172.30.0.66";
/// A claim of a chassis is believed after three seconds.
const BELIEVED: Duration = Duration::from_secs(4);

/// Two zones with a node each; the control plane that is watched is the first zone's controller.
pub(crate) fn try_rows(rows: &[(u8, Body)]) -> Result<()> {
    let selected: Vec<(u8, Body)> =
        rows.iter().copied().filter(|(number, _)| tenants::is_to_run(*number)).collect();
    if selected.is_empty() {
        return Ok(());
    }
    let lab = Lab::of_nodes(2).families(Families::Dual).empty().build()?;
    let api = Api::start()?;
    let of_b = Central::of_zone("b")?;
    let zones = TwoZones::start(&lab, &of_b, &api)?;
    lab.nodes.iter().try_for_each(managed::ready)?;
    let objects = Box::new(Played { api: &api, uids: AtomicU64::new(1) });
    Site::new(&lab, objects, &zones.a.controller).try_all(&selected)
}

/// The node, which has joined as an honest one does. Each row has one of another name: what a node
/// had is kept for its name.
struct Mallory<'s, 'l> {
    site: &'s Site<'l>,
    name: String,
    chassis: String,
}

impl<'s, 'l> Mallory<'s, 'l> {
    /// Waits until this zone has a way to it.
    fn joins(site: &'s Site<'l>, row: u8) -> Result<Self> {
        let (name, chassis) = (format!("{MALLORY}-{row}"), format!("{CHASSIS}{row:03}"));
        let mallory = Self { site, name, chassis };
        let mut object = mallory.object();
        object["metadata"]["annotations"] = json!({
            ZONE: THIRD, CHASSIS_ID: mallory.chassis, ENCAP_IPS: json!([OWN_ADDRESS]).to_string(),
            PRIMARY_ADDRESSES: json!({"ipv4": format!("{OWN_ADDRESS}/24")}).to_string(),
        });
        site.put(&object)?;
        eventually("this zone has a way to it", SOON, || {
            let routes = mallory.routes()?;
            ensure!(routes.len() >= 2, "{routes:?}");
            let chassis =
                site.lab.central.sbctl(["get", "Chassis", &mallory.chassis, "hostname"])?;
            ensure!(chassis.contains(&mallory.name), "{chassis}");
            Ok(())
        })?;
        Ok(mallory)
    }

    fn object(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}})
    }

    /// It changes these annotations; null removes one.
    fn says(&self, annotations: &Value) -> Result<()> {
        let patch = json!({"metadata": {"annotations": annotations}});
        self.site.objects.patch(&self.object(), &patch).map(drop)
    }

    /// This zone's routes to it.
    fn routes(&self) -> Result<Vec<String>> {
        let of = format!("external_ids:ic-node={}", self.name);
        let find = ["--bare", "--columns=ip_prefix", "find", "Logical_Router_Static_Route", &of];
        let routes = self.site.lab.central.nbctl(find)?;
        Ok(routes.split_whitespace().map(str::to_owned).collect())
    }

    /// No route leads to one of these.
    fn leads_to_none(&self, of: &[String]) -> Result<()> {
        let led: Vec<String> =
            self.routes()?.into_iter().filter(|route| of.contains(route)).collect();
        ensure!(led.is_empty(), "routes lead to {led:?}");
        Ok(())
    }

    /// It says each of these after the other; others' rows must be as before.
    fn tries(&self, all: &[Value]) -> Result<String> {
        let site = self.site;
        let before = others(site)?;
        for annotations in all {
            self.says(annotations)?;
            site.settled()?;
            are_as_before(site, &before).with_context(|| annotations.to_string())?;
        }
        let_pass(BELIEVED);
        site.settled()?;
        are_as_before(site, &before)?;
        Ok(format!("others' rows as before; events: {}", site.news()?))
    }
}

fn annotation(site: &Site<'_>, node: &str, key: &str) -> Result<String> {
    let node = site.objects.read(&json!({"kind": "Node", "metadata": {"name": node}}))?;
    let text = node["metadata"]["annotations"][key].as_str();
    text.map(str::to_owned).with_context(|| format!("there is no {key}"))
}

/// What this zone's databases have of others than the node.
fn others(site: &Site<'_>) -> Result<Vec<String>> {
    let central = &site.lab.central;
    let list = |columns: &str, table: &str| {
        let columns = format!("--columns={columns}");
        ["--format=csv", "--no-headings", &columns, "list", table].map(str::to_owned)
    };
    let mut text = central.nbctl(list("name,addresses,type,options", "Logical_Switch_Port"))?;
    text += &central.nbctl(list("name,networks,mac", "Logical_Router_Port"))?;
    text +=
        &central.nbctl(list("ip_prefix,nexthop,external_ids", "Logical_Router_Static_Route"))?;
    text += &central.sbctl(list("name,hostname", "Chassis"))?;
    text += &central.sbctl(list("ip,type,chassis_name", "Encap"))?;
    let own = [MALLORY, CHASSIS, EVIL];
    let is_anothers = |line: &&str| own.iter().all(|own| !line.contains(own));
    let mut lines: Vec<String> = text.lines().filter(is_anothers).map(str::to_owned).collect();
    lines.sort();
    Ok(lines)
}

fn are_as_before(site: &Site<'_>, before: &[String]) -> Result<()> {
    let after = others(site)?;
    let gone: Vec<&String> = before.iter().filter(|line| !after.contains(line)).collect();
    let came: Vec<&String> = after.iter().filter(|line| !before.contains(line)).collect();
    ensure!(gone.is_empty() && came.is_empty(), "of others' rows went {gone:?} and came {came:?}");
    Ok(())
}

fn subnets(subnets: &[&str]) -> Value {
    json!({NODE_SUBNETS: json!({"default": subnets}).to_string()})
}

fn subnets_outside_of_the_cluster(site: &Site<'_>) -> Result<String> {
    let mallory = Mallory::joins(site, 102)?;
    let wrong = ["198.18.0.0/16", "172.30.0.0/24", "10.96.0.0/16", "0.0.0.0/0", "10.0.0.0/8"];
    let seen = mallory.tries(&wrong.map(|subnet| subnets(&[subnet])))?;
    mallory.leads_to_none(&wrong.map(str::to_owned))?;
    Ok(seen)
}

fn anothers_subnet(site: &Site<'_>) -> Result<String> {
    let mallory = Mallory::joins(site, 103)?;
    let of = |pod: &Pod| -> Vec<String> {
        pod.addresses.iter().map(|net| net.trunc().to_string()).collect()
    };
    let (here, there) = (of(&site.bystander().here), of(&site.bystander().there));
    let claims =
        [&here, &there].map(|of| subnets(&of.iter().map(String::as_str).collect::<Vec<_>>()));
    let seen = mallory.tries(&claims)?;
    mallory.leads_to_none(&[here, there].concat())?;
    Ok(seen)
}

fn anothers_tunnels(site: &Site<'_>) -> Result<String> {
    let mallory = Mallory::joins(site, 104)?;
    let mut seen = String::new();
    for other in [site.first(), site.second()] {
        let encap_ips = annotation(site, &other.name, ENCAP_IPS)?;
        seen = mallory.tries(&[
            json!({CHASSIS_ID: mallory.chassis, ENCAP_IPS: encap_ips}),
            json!({CHASSIS_ID: other.name, ENCAP_IPS: json!([OWN_ADDRESS]).to_string()}),
        ])?;
        mallory.tries(&[json!({CHASSIS_ID: other.name, ENCAP_IPS: encap_ips})])?;
    }
    Ok(seen)
}

fn special_addresses(site: &Site<'_>) -> Result<String> {
    let special = [
        "127.0.0.1",
        "169.254.169.254",
        "224.0.0.1",
        "255.255.255.255",
        "0.0.0.0",
        "::1",
        "::",
        "fe80::1",
        "ff02::1",
        "::ffff:172.30.0.1",
    ];
    let of_tunnels = special.iter().map(|ip| json!({ENCAP_IPS: json!([ip]).to_string()}));
    let transit =
        |ip: &str| json!({TRANSIT_ADDRESSES: json!({"ipv4": format!("{ip}/16")}).to_string()});
    let of_first =
        json!({TRANSIT_ADDRESSES: annotation(site, &site.first().name, TRANSIT_ADDRESSES)?});
    let numbers = ["0", "1", "6000", "65535"].map(|id| json!({NODE_ID: id}));
    let ways = [transit("100.88.0.1"), transit("10.96.0.1"), transit("255.255.255.255"), of_first];
    let mallory = Mallory::joins(site, 105)?;
    let before = others(site)?;
    for annotations in of_tunnels.chain(ways).chain(numbers) {
        mallory.says(&annotations)?;
        site.settled()?;
        let encaps = site.lab.central.sbctl(["--bare", "--columns=ip", "list", "Encap"])?;
        let wrong = encaps.split_whitespace().find(|ip| special.contains(ip));
        ensure!(wrong.is_none(), "{annotations}: a tunnel ends at {wrong:?}");
        let key = "Logical_Switch_Port";
        let port = format!("tstor-{}", mallory.name);
        let addresses = site.lab.central.nbctl(["get", key, &port, "addresses"])?;
        let is_own = ["100.88.0.1/", "10.96.0.1", "255.255.255.255"]
            .iter()
            .all(|ip| !addresses.contains(ip));
        ensure!(is_own, "{annotations}: its port has {addresses}");
    }
    let_pass(BELIEVED);
    site.settled()?;
    are_as_before(site, &before)?;
    Ok(format!("no row has them; events: {}", site.news()?))
}

fn moves_without_end(site: &Site<'_>) -> Result<String> {
    let mallory = Mallory::joins(site, 106)?;
    let before = others(site)?;
    let transactions = || anyhow::Ok(site.lab.central.transactions()?[0]);
    let written = transactions()?;
    let times = if tenants::long_forms() { 1000 } else { 200 };
    for _ in 0..times {
        for next in [json!("a"), Value::Null] {
            mallory.says(&json!({NEXT_ZONE: next}))?;
            let_pass(Duration::from_millis(5));
        }
    }
    let written = transactions()? - written;
    // Fifteen times there and away again, each in a few transactions, and what else goes on.
    ensure!(written <= 100, "{written} transactions");
    let events = eventually("an event tells of it", SOON, || {
        let news = site.news()?;
        ensure!(news.contains("ZoneChangesOften"), "{news}");
        Ok(news)
    })?;
    site.settled()?;
    are_as_before(site, &before)?;
    Ok(format!("{times} times in {written} transactions; events: {events}"))
}

fn junk(site: &Site<'_>) -> Result<String> {
    let mallory = Mallory::joins(site, 107)?;
    let before = others(site)?;
    // Just what an API server takes in all annotations of an object.
    let size = 250_000 / ALL.len() - 100;
    let texts = [
        "9".repeat(size),
        "[".repeat(size),
        format!("{{\"default\":[\"{}\"]}}", "10.244.0.0/24".repeat(size / 14)),
        format!("[{}\"172.30.0.1\"]", "\"172.30.0.66\",".repeat(size / 15)),
    ];
    let values: usize = if tenants::long_forms() { 10_000 } else { 1_000 };
    let writes = values.div_ceil(ALL.len());
    for text in texts.iter().cycle().take(writes) {
        let all: serde_json::Map<String, Value> =
            ALL.iter().map(|key| ((*key).to_owned(), json!(text))).collect();
        mallory.says(&Value::Object(all))?;
        let_pass(Duration::from_millis(25));
    }
    site.settled()?;
    are_as_before(site, &before)?;
    Ok(format!("{} values of {size} bytes; events: {}", writes * ALL.len(), site.news()?))
}

fn half_of_the_cluster(site: &Site<'_>) -> Result<String> {
    let mallory = Mallory::joins(site, 108)?;
    let given = annotation(site, &mallory.name, NODE_SUBNETS)?;
    let led = mallory.routes()?;
    mallory.says(&subnets(&["10.244.128.0/17"]))?;
    eventually("it has what it was given", SOON, || {
        let now = annotation(site, &mallory.name, NODE_SUBNETS)?;
        ensure!(now == given, "{now} instead of {given}");
        Ok(())
    })?;
    site.settled()?;
    ensure!(mallory.routes()? == led, "routes {:?}, and before {led:?}", mallory.routes()?);
    let newcomer = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "newcomer"}});
    site.put(&newcomer)?;
    let new =
        eventually("a new node has subnets", SOON, || annotation(site, "newcomer", NODE_SUBNETS))?;
    Ok(format!("it has {given}, and a new node {new}; events: {}", site.news()?))
}
