//! Whoever runs a DNS zone that an EgressFirewall of somebody else names: what its answers may
//! open.

use std::{
    net::{IpAddr, SocketAddr},
    sync::OnceLock,
};

use anyhow::{Context as _, Result, ensure};
use integration::{eventually, tenants::long_forms, traffic::End, world::Machine};
use serde_json::{Value, json};

use crate::support::dns::Dns;
use crate::tenants::site::{Body, EVIL, SOON, Site};

pub(crate) const ROWS: &[(u8, Body)] = &[
    (50, answers_with_a_host),
    (51, answers_with_the_api_server),
    (52, answers_with_link_local_addresses),
    (53, answers_with_pods_and_services),
    (54, silence_about_many_names),
    (55, answers_that_rotate),
];

/// One name server for all rows: it ends with the process.
static SERVER: OnceLock<Dns> = OnceLock::new();

/// The name server, which says this of a name.
fn answering(name: &str, addresses: Vec<IpAddr>) -> Result<&'static Dns> {
    if SERVER.get().is_none() {
        let server = Dns::start(name, addresses.clone())?;
        ensure!(SERVER.set(server).is_ok(), "there is one name server");
    }
    let server = SERVER.get().context("it was started")?;
    server.says(name, addresses);
    Ok(server)
}

/// Has the tenant's pods reach only what these names have.
fn only(site: &Site<'_>, names: &[String]) -> Result<()> {
    let allow = names.iter().map(|name| json!({"type": "Allow", "to": {"dnsName": name}}));
    let deny =
        ["0.0.0.0/0", "::/0"].map(|net| json!({"type": "Deny", "to": {"cidrSelector": net}}));
    let rules: Vec<Value> = allow.chain(deny).collect();
    let firewall = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "EgressFirewall", "metadata": {"namespace": EVIL, "name": "default"},
        "spec": {"egress": rules},
    });
    site.put(&firewall).map(drop)
}

/// A name with these addresses and one that is the zone's own, which has to open, and nothing of
/// `closed`.
fn opens_no_more(
    site: &Site<'_>,
    name: &str,
    addresses: &[IpAddr],
    closed: &[SocketAddr],
) -> Result<String> {
    let own = site.lab.world().addresses(Machine::Web)[0];
    let pod = site.attached(EVIL, "client", 0)?;
    let from = End::Pod(&pod);
    site.hold(site.lab.answering_at(&End::World(Machine::Web), &[SocketAddr::new(own, 80)])?);
    let open = |expected: usize| {
        eventually(&format!("{expected} of what is asked answers"), SOON, || {
            let answered = site.answered(&from, closed)?;
            ensure!(answered == expected, "{answered} of {} questions", 2 * closed.len());
            Ok(())
        })
    };
    // Without rules all that can answer does.
    let before = site.answered(&from, closed)?;
    answering(name, addresses.iter().copied().chain([own]).collect())?;
    only(site, &[name.to_owned()])?;
    site.lab.answers(
        "the zone's own address is open",
        &from,
        &[(SocketAddr::new(own, 80), own)],
        SOON,
    )?;
    open(0).with_context(|| format!("{before} of {} answered without rules", 2 * closed.len()))?;
    Ok(format!(
        "0 of {} questions answered ({before} without rules); events: {}",
        2 * closed.len(),
        site.news()?
    ))
}

fn answers_with_a_host(site: &Site<'_>) -> Result<String> {
    let nodes: Vec<IpAddr> =
        site.lab.nodes.iter().map(|node| site.lab.world().of_node(node)[0]).collect();
    let to: Vec<SocketAddr> = nodes.iter().map(|node| SocketAddr::new(*node, 2222)).collect();
    for (node, to) in site.lab.nodes.iter().zip(&to) {
        site.hold(site.lab.answering_at(&End::Node(node), &[*to])?);
    }
    opens_no_more(site, "hosts.example.net", &nodes, &to)
}

fn answers_with_the_api_server(site: &Site<'_>) -> Result<String> {
    let api = site.objects.address().ip();
    // Another server of its machine, which answers as the others do.
    let beside = SocketAddr::new(api, 2223);
    site.hold(site.lab.answering_at(&End::Lab, &[beside])?);
    opens_no_more(site, "api.example.net", &[api], &[beside])
}

fn answers_with_link_local_addresses(site: &Site<'_>) -> Result<String> {
    let metadata: IpAddr = [169, 254, 169, 254].into();
    site.first().shell("ip addr replace 169.254.169.254/32 dev lo")?;
    let to = SocketAddr::new(metadata, 8099);
    site.hold(site.lab.answering_at(&End::Node(site.first()), &[to])?);
    let seen = opens_no_more(
        site,
        "links.example.net",
        &[metadata, [127, 0, 0, 1].into(), [169, 254, 169, 2].into()],
        &[to],
    );
    site.first().shell("ip addr del 169.254.169.254/32 dev lo")?;
    seen
}

fn answers_with_pods_and_services(site: &Site<'_>) -> Result<String> {
    let bystander = site.bystander();
    opens_no_more(
        site,
        "pods.example.net",
        &[bystander.closed.address(), [10, 96, 0, 1].into()],
        &[bystander.shut()],
    )
}

fn silence_about_many_names(site: &Site<'_>) -> Result<String> {
    let silent = if long_forms() { 500 } else { 100 };
    let own = site.lab.world().addresses(Machine::Web)[0];
    answering("z.example.org", vec![own])?.is_silent("black.example");
    let names: Vec<String> = (0..silent).map(|number| format!("a{number}.black.example")).collect();
    only(site, &names)?;
    site.settled()?;
    // Another tenant's first name.
    site.namespace("shop")?;
    let pod = site.attached("shop", "client", 0)?;
    site.hold(site.lab.answering_at(&End::World(Machine::Web), &[SocketAddr::new(own, 80)])?);
    let rules = json!([{"type": "Allow", "to": {"dnsName": "z.example.org"}}, {"type": "Deny", "to": {"cidrSelector": "0.0.0.0/0"}}]);
    let asked = std::time::Instant::now();
    site.put(&json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "EgressFirewall", "metadata": {"namespace": "shop", "name": "default"},
        "spec": {"egress": rules},
    }))?;
    eventually("another tenant's name has its first answer", SOON, || {
        let sets =
            site.lab.central.nbctl(["--bare", "--columns=addresses", "list", "Address_Set"])?;
        ensure!(sets.contains(&own.to_string()), "no set has {own}");
        Ok(())
    })?;
    let took = asked.elapsed();
    site.lab.answers("it is open", &End::Pod(&pod), &[(SocketAddr::new(own, 80), own)], SOON)?;
    ensure!(took.as_secs() < 15, "the first answer took {took:.1?}");
    Ok(format!("{silent} silent names; another's first answer after {took:.1?}"))
}

fn answers_that_rotate(site: &Site<'_>) -> Result<String> {
    const NAME: &str = "rotating.example.net";
    // Names are asked for again after five seconds at the earliest (their TTL), and thirty at the
    // latest.
    let rounds = if long_forms() { 12 } else { 3 };
    let own = site.lab.world().addresses(Machine::Web)[0];
    let pod = site.attached(EVIL, "client", 0)?;
    let of_zone =
        |round: u8| -> Vec<IpAddr> { (1..=20).map(|host| [198, 19, round, host].into()).collect() };
    let dns = answering(NAME, of_zone(0).into_iter().chain([own]).collect())?;
    only(site, &[NAME.to_owned()])?;
    // The first answer has the address: a later one would not let the connection out.
    eventually("the first answer is there", SOON, || {
        let sets = "external_ids:k8s.ovn.org/owner-type=EgressFirewallDNS";
        let sets = site.lab.central.nbctl([
            "--bare",
            "--columns=addresses",
            "find",
            "Address_Set",
            sets,
        ])?;
        ensure!(sets.contains(&own.to_string()), "{sets}");
        Ok(())
    })?;
    let to = SocketAddr::new(own, 7);
    let lasting = site.lab.lasting(End::Pod(&pod), End::World(Machine::Web), [to])?;
    for round in 1..=rounds {
        // Without the address to which the connection goes.
        dns.says(NAME, of_zone(round));
        integration::let_pass(std::time::Duration::from_secs(13));
    }
    lasting.end().context("a connection that had been let out")?;
    Ok(format!("{rounds} answers with other addresses; the connection goes on"))
}
