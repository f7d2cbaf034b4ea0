//! Whoever probes health checks and reads metrics: idle connections, slow requests.

use std::{
    net::{IpAddr, SocketAddr},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{command, eventually, traffic::End, world::Machine};
use serde_json::json;

use crate::tenants::{
    bystander::PORT,
    services::{both, service, slice},
    site::{Body, EVIL, METRICS, METRICS_OF_CONTROL_PLANE, SOON, Site},
};

pub(crate) const ROWS: &[(u8, Body)] = &[
    (45, idle_health_checks),
    (46, slow_health_checks),
    (47, idle_scrapes_of_a_node),
    (48, idle_scrapes_of_the_control_plane),
    (49, long_requests),
];

/// How soon a true prober must have its answer.
const PROMPT: Duration = Duration::from_secs(1);

/// The status line that a true prober gets, and how long it takes.
fn asks(mut from: Command, to: SocketAddr, path: &str) -> Result<(String, Duration)> {
    let (ip, port) = (to.ip(), to.port());
    let script = format!(
        "exec 3<>/dev/tcp/{ip}/{port}; printf 'GET {path} HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n' >&3; IFS= read -r -t 8 line <&3; echo \"$line\""
    );
    let began = Instant::now();
    let said = command::output(from.args(["-c", &script]))?;
    Ok((said.trim().to_owned(), began.elapsed()))
}

/// A true prober asks ten times meanwhile.
fn is_answered(site: &Site<'_>, from: &End<'_>, to: SocketAddr, path: &str) -> Result<String> {
    let mut slowest = Duration::ZERO;
    for _ in 0..10 {
        let (said, took) = asks(site.lab.command_at(from, "bash"), to, path)?;
        ensure!(
            said.starts_with("HTTP/1.") && said.contains("200"),
            "{to}{path}: {said:?} after {took:.2?}"
        );
        slowest = slowest.max(took);
    }
    ensure!(slowest <= PROMPT, "an answer took {slowest:.2?}");
    Ok(format!("10 of 10 answered, the slowest after {slowest:.2?}"))
}

const CHECK: u16 = 31_999;

/// A Service whose health check the nodes answer. Its endpoint is on the second node.
fn checked(site: &Site<'_>) -> Result<SocketAddr> {
    let there = &site.bystander().there;
    let ports = {
        let mut ports = both(80);
        ports[0]["nodePort"] = json!(30_940);
        ports[1]["nodePort"] = json!(30_940);
        ports
    };
    let more = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": CHECK});
    site.put(&service(EVIL, "checked", "10.96.63.1", &ports, &more))?;
    let mut endpoints = slice(EVIL, "checked", &[there.address()], PORT);
    endpoints["endpoints"][0]["nodeName"] = json!(there.node);
    site.put(&endpoints)?;
    let to = SocketAddr::new(site.lab.world().of_node(site.second())[0], CHECK);
    eventually("the health check is answered", SOON, || {
        let (said, _) = asks(site.lab.command_at(&End::World(Machine::Client), "bash"), to, "/")?;
        ensure!(said.contains("200"), "{said:?}");
        Ok(())
    })?;
    Ok(to)
}

fn idle_health_checks(site: &Site<'_>) -> Result<String> {
    let to = checked(site)?;
    site.keeps(&End::World(Machine::Web), to, 100, "")?;
    is_answered(site, &End::World(Machine::Client), to, "/")
}

fn slow_health_checks(site: &Site<'_>) -> Result<String> {
    let to = checked(site)?;
    site.keeps(&End::World(Machine::Web), to, 100, "GET / HTT")?;
    is_answered(site, &End::World(Machine::Client), to, "/")
}

fn idle_scrapes_of_a_node(site: &Site<'_>) -> Result<String> {
    let to = SocketAddr::new(site.lab.world().of_node(site.first())[0], METRICS);
    let pod = site.attached(EVIL, "scraper", 1)?;
    site.keeps(&End::Pod(&pod), to, 300, "")?;
    is_answered(site, &End::World(Machine::Client), to, "/metrics")
}

fn control_plane() -> SocketAddr {
    let lab: IpAddr = integration::fabric::LAB_ADDRESS.parse().expect("an address");
    SocketAddr::new(lab, METRICS_OF_CONTROL_PLANE)
}

fn idle_scrapes_of_the_control_plane(site: &Site<'_>) -> Result<String> {
    let node = End::Node(site.first());
    site.keeps(&node, control_plane(), 300, "GET /met")?;
    is_answered(site, &End::Node(site.second()), control_plane(), "/metrics")
}

fn long_requests(site: &Site<'_>) -> Result<String> {
    let node = SocketAddr::new(site.lab.world().of_node(site.first())[0], METRICS);
    for to in [node, control_plane()] {
        let (ip, port) = (to.ip(), to.port());
        let script = format!(
            "exec 3<>/dev/tcp/{ip}/{port}; head -c 50000000 /dev/zero | tr '\\0' a >&3 2>/dev/null; true"
        );
        let mut bash = site.lab.command_at(&End::Node(site.second()), "bash");
        command::output(bash.args(["-c", &script]))?;
        is_answered(site, &End::Node(site.second()), to, "/metrics")
            .with_context(|| to.to_string())?;
    }
    Ok("a line of 50 MB ends a connection, and the next one is answered".to_owned())
}
