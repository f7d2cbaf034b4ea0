//! Marks on what pods send, by packets: EgressQoSes.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, ensure};
use integration::{eventually, traffic::End};
use serde_json::{Value, json};

use crate::support::site::{Gateway, SOON, Site, blueprint};

/// Beginnings of packets with this DSCP, behind the Ethernet header's addresses: type of frame,
/// version, and the first bits of the traffic class. Those of IPv6 behind these are its flow label's.
fn marks(dscp: u8) -> [Vec<u8>; 2] {
    let class = dscp << 2;
    [vec![0x08, 0x00, 0x45, class], vec![0x86, 0xdd, 0x60 | class >> 4]]
}

/// How many packets with this DSCP the server gets of each family, while the client asks it.
fn marked(site: &Site<'_>, dscp: u8) -> Result<[u64; 2]> {
    let (client, server) = (&site.here, &site.there);
    let at = End::Pod(server);
    let backend: Vec<IpAddr> = Site::of_pod(server);
    let to: Vec<_> = backend.iter().map(|ip| (SocketAddr::new(*ip, 8080), *ip)).collect();
    let [v4, v6] = marks(dscp);
    let counters = [site.lab.sniffing(&at, "eth0", &v4)?, site.lab.sniffing(&at, "eth0", &v6)?];
    site.answers("the server answers", &End::Pod(client), &to)?;
    let [v4, v6] = counters;
    Ok([v4.end()?, v6.end()?])
}

fn put(site: &Site<'_>, egress: Value) {
    site.api.put(json!({
        "apiVersion": "k8s.ovn.org/v1",
        "kind": "EgressQoS",
        "metadata": {"namespace": "lab", "name": "default", "uid": "qos"},
        "spec": {"egress": egress},
    }));
}

fn becomes(site: &Site<'_>, what: &str, dscp: u8, are_marked: [bool; 2]) -> Result<()> {
    eventually(what, SOON, || {
        let seen = marked(site, dscp)?;
        ensure!(seen.map(|count| count > 0) == are_marked, "packets with DSCP {dscp}: {seen:?}");
        Ok(())
    })
}

fn the_first_rule_that_fits_marks(site: &Site<'_>) -> Result<()> {
    becomes(site, "without a rule nothing is marked", 42, [false, false])?;

    put(site, json!([{"dscp": 42}]));
    becomes(site, "a rule marks all that pods send", 42, [true, true])?;
    eventually("the status says so", SOON, || {
        let status = site.api.status("EgressQoS", "lab", "default").unwrap_or_default();
        ensure!(status["status"] == "EgressQoS Rules applied", "{status}");
        ensure!(status["conditions"][0]["type"] == "Ready-In-Zone-global", "{status}");
        Ok(())
    })?;

    let server = Site::of_pod(&site.there);
    let to = |family: usize| format!("{}/{}", server[family], [32, 128][family]);
    put(site, json!([{"dscp": 64}, {"dscp": 7, "dstCIDR": to(0)}, {"dscp": 21}]));
    becomes(site, "the rule of the destination is the first that fits", 7, [true, false])?;
    becomes(site, "other destinations have the mark of the next one", 21, [false, true])?;
    eventually("an event names the rule that is ignored", SOON, || {
        let events = site.api.events();
        ensure!(events.iter().any(|reason| reason == "UnusableDSCP"), "{events:?}");
        Ok(())
    })?;

    put(site, json!([{"dscp": 9, "podSelector": {"matchLabels": {"no": "such"}}}]));
    becomes(site, "a rule about other pods marks nothing", 9, [false, false])?;

    site.api.replace("EgressQoS", Vec::new());
    becomes(site, "without the object nothing is marked", 21, [false, false])
}

#[test]
fn the_first_rule_of_an_egress_qos_that_fits_marks_what_pods_send() {
    blueprint().test(|lab| the_first_rule_that_fits_marks(&Site::start(lab, Gateway::Local)?));
}
