//! The run of one size, phase after phase, from an empty cluster to the last figure.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use integration::central::Central;
use kube::Client;
use serde_json::Value;

use super::{
    calls,
    figures::{Converged, Figures, Floor, Replaced, Restart, Rows},
    latency,
    northbound::{self, Northbound},
    objects::{self, Name},
    pods::{self, Pods},
    process::Usage,
    seen::Seen,
    services,
    site::Site,
};

/// Most patches that the floor is measured with: enough for some seconds.
const FLOOR: usize = 10_000;

/// The plan of a run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    /// Pods a second.
    pub(crate) rates: Vec<usize>,
    pub(crate) services: usize,
    /// Endpoints of each Service.
    pub(crate) backends: usize,
}

/// The running programs and their observers.
pub(crate) struct Run<'a> {
    pub(crate) site: &'a Site,
    pub(crate) plan: &'a Plan,
    pub(crate) pods: Seen<Pods>,
    pub(crate) northbound: Seen<Northbound>,
    /// Limit for one wait: far longer than any time that is worth measuring, and growing with the number of
    /// pods.
    pub(crate) patience: Duration,
}

/// Measures everything, and reports progress to `say`.
pub(crate) async fn run(site: &Site, plan: &Plan, say: &(dyn Fn(&str) + Sync)) -> Result<Figures> {
    let run = Run {
        site,
        plan,
        pods: pods::watch(site.client()),
        northbound: northbound::monitor()?,
        patience: Duration::from_secs(60)
            + Duration::from_millis(20) * u32::try_from(plan.pods + plan.services)?,
    };
    let &Plan { nodes, pods, services: count, .. } = plan;
    say(&format!("writing {nodes} nodes and {pods} pods to the API server"));
    let created = run.create().await?;
    let mut figures = Figures {
        nodes,
        pods,
        created_per_second: pods as f64 / created.as_secs_f64(),
        ..Figures::default()
    };
    say("annotating them with a plain client: the API server's floor");
    figures.floor = run.floor().await?;
    say(&format!("{:.0} a second; starting the control plane", figures.floor.per_second()));
    figures.converged = run.converge().await?;
    let memory = || Usage::of(&site.controller).map(|usage| format!("{:.1} MB", usage.rss));
    say(&format!("converged after {:.2} s, {}; starting it again", figures.converged.seconds(), memory()?));
    figures.restart = run.restart().await?;
    say(&format!(
        "ready after {:.2} s, {}; replacing the northbound database by an empty one",
        figures.restart.ready,
        memory()?
    ));
    figures.replaced = run.replace().await?;
    say(&format!("filled again after {:.2} s, {}", figures.replaced.seconds, memory()?));
    for rate in &plan.rates {
        say(&format!("creating {rate} pods a second"));
        figures.latencies.push(latency::measure(&run, *rate).await?);
        say(&format!("they came and went, {}", memory()?));
    }
    figures.steady = Usage::of(&site.controller)?;
    figures.rows = run.rows().await?;
    if count > 0 {
        say(&format!("creating {count} Services"));
        figures.services = Some(services::measure(&run, say).await?);
    }
    Ok(figures)
}

impl Run<'_> {
    pub(crate) fn client(&self) -> &Client {
        self.site.client()
    }

    /// Waits until each of `count` pods has its port and its annotation. Returns the times of the last
    /// annotation and of the last port.
    pub(crate) async fn until_served(&self, count: usize) -> Result<[Option<Instant>; 2]> {
        let annotated =
            self.pods.wait("every pod has its annotation", self.patience, |pods| pods.all_annotated(count));
        let ports = self
            .northbound
            .wait("every pod has its port", self.patience, |northbound| northbound.all_ports(count));
        let (annotated, ports) =
            self.site.while_running(async { tokio::try_join!(annotated, ports) }).await?;
        Ok([annotated, ports])
    }

    async fn create(&self) -> Result<Duration> {
        let client = self.client();
        let namespaces = objects::namespaces(self.plan.pods);
        calls::all(&namespaces, |object| calls::create(client, "/api/v1/namespaces", object)).await?;
        calls::all(0..self.plan.nodes, async |number| {
            calls::create(client, "/api/v1/nodes", &objects::node(number)).await
        })
        .await?;
        let create = async |number: usize| {
            let name = Name::of(number);
            let pod = objects::pod(&name, &objects::node_name(number % self.plan.nodes));
            calls::create(client, &name.collection(), &pod).await
        };
        let took = calls::all(0..self.plan.pods, create).await?;
        let count = self.plan.pods;
        self.pods.wait("every pod is seen", self.patience, |pods| pods.all_there(count)).await?;
        Ok(took)
    }

    /// Annotates pods with a plain client, while the watch goes on as it does while the control plane
    /// annotates.
    async fn floor(&self) -> Result<Floor> {
        let patches = self.plan.pods.min(FLOOR);
        let took =
            calls::all(0..patches, async |number| calls::annotate(self.client(), &Name::of(number)).await)
                .await?;
        Ok(Floor { patches, seconds: took.as_secs_f64() })
    }

    async fn converge(&self) -> Result<Converged> {
        let Site { kubernetes, central, controller, .. } = self.site;
        let others = [&kubernetes.api_server, &kubernetes.etcd, &central.northbound];
        let cpu = || -> Result<Vec<f64>> { others.iter().map(|daemon| Ok(Usage::of(daemon)?.cpu)).collect() };
        let (before, transactions) = (cpu()?, Central::northbound_transactions()?);
        let began = Instant::now();
        controller.spawn()?;
        let [annotated, ports] = self.until_served(self.plan.pods).await?;
        let used: Vec<f64> = cpu()?.iter().zip(before).map(|(now, before)| now - before).collect();
        let since = |instant: Option<Instant>| instant.map_or(0.0, |instant| (instant - began).as_secs_f64());
        Ok(Converged {
            annotated: since(annotated),
            ports: since(ports),
            transactions: Central::northbound_transactions()? - transactions,
            controller: Usage::of(controller)?,
            api_server_cpu: used[0],
            etcd_cpu: used[1],
            northbound_cpu: used[2],
        })
    }

    async fn restart(&self) -> Result<Restart> {
        let controller = &self.site.controller;
        tokio::task::block_in_place(|| self.site.until_ready(self.patience))?;
        // A clean stop after readiness: the restarted process finds nothing left to write.
        tokio::task::block_in_place(|| controller.stop())?;
        let (transactions, events) = (Central::northbound_transactions()?, self.pods.now().events);
        let began = Instant::now();
        controller.spawn()?;
        tokio::task::block_in_place(|| self.site.until_ready(self.patience))?;
        let ready = began.elapsed().as_secs_f64();
        let restart = Restart {
            ready,
            transactions: Central::northbound_transactions()? - transactions,
            pod_events: self.pods.now().events - events,
            cpu: Usage::of(controller)?.cpu,
            served: 0.0,
        };
        // Readiness is only the program's claim: a new pod must be served, too.
        let probe = Name::of_probe("restart", 0, 0);
        calls::create(self.client(), &probe.collection(), &objects::pod(&probe, &objects::node_name(0)))
            .await?;
        self.until_served(self.plan.pods + 1).await?;
        let served = began.elapsed().as_secs_f64();
        calls::delete(self.client(), &probe).await?;
        self.until_served(self.plan.pods).await?;
        Ok(Restart { served, ..restart })
    }

    async fn replace(&self) -> Result<Replaced> {
        let events = self.pods.now().events;
        tokio::task::block_in_place(|| self.site.central.replace_northbound())?;
        let began = Instant::now();
        let count = self.plan.pods;
        let filled = self.northbound.wait("every pod has its port again", self.patience, |northbound| {
            let last = northbound.all_ports(count)?.context("no port was seen")?;
            ensure!(last >= began, "the ports are those of before");
            Ok(last)
        });
        let filled = self.site.while_running(filled).await?;
        Ok(Replaced {
            seconds: (filled - began).as_secs_f64(),
            transactions: Central::northbound_transactions()?,
            pod_events: self.pods.now().events - events,
        })
    }

    async fn rows(&self) -> Result<Rows> {
        let nodes: Value =
            self.client().request(http::Request::get("/api/v1/nodes").body(Vec::new())?).await?;
        let has_subnet =
            |node: &&Value| node["metadata"]["annotations"]["k8s.ovn.org/node-subnets"].is_string();
        let nodes_with_subnets = nodes["items"].as_array().into_iter().flatten().filter(has_subnet).count();
        let northbound = self.northbound.now();
        Ok(Rows {
            pod_ports: northbound.ports.len(),
            other_ports: northbound.other_ports,
            switches: northbound.switches,
            nodes_with_subnets,
        })
    }
}
