//! The run of one size, phase after phase, from an empty cluster to the last figure.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use integration::central::Central;
use kube::Client;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::{
    calls,
    figures::{Converged, Figures, Floor, Replaced, Restart, Rows},
    latency,
    northbound::{self, Northbound},
    objects::{self, Name},
    pods::{self, Pods},
    policies,
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
    pub(crate) policies: usize,
    /// Policies in each namespace.
    pub(crate) together: usize,
    pub(crate) blocks: Blocks,
}

/// The blocks of addresses in policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Blocks {
    /// Without an exception.
    Whole,
    /// Each with an exception.
    Except,
}

impl Plan {
    pub(crate) fn namespaces(&self) -> usize {
        match self.policies {
            0 => self.pods.div_ceil(objects::TOGETHER).max(1),
            policies => policies.div_ceil(self.together),
        }
    }

    /// Pods of the largest namespace.
    pub(crate) fn places(&self) -> usize {
        self.pods.div_ceil(self.namespaces())
    }

    /// Pods of a namespace. The first ones are full.
    pub(crate) fn pods_in(&self, namespace: usize) -> usize {
        self.pods.saturating_sub(namespace * self.places()).min(self.places())
    }

    /// The namespace of the pod with this number.
    pub(crate) fn namespace_of(&self, pod: usize) -> String {
        objects::namespace_name(pod / self.places())
    }

    /// The number of a pod within its namespace.
    pub(crate) fn place_of(&self, pod: usize) -> usize {
        pod % self.places()
    }

    fn name(&self, pod: usize) -> Name {
        Name::of(self.namespace_of(pod), pod)
    }
}

/// The running programs and their observers.
pub(crate) struct Run<'a> {
    pub(crate) site: &'a Site,
    pub(crate) plan: &'a Plan,
    pub(crate) pods: Seen<Pods>,
    pub(crate) northbound: Seen<Northbound>,
    /// Limit for one wait: far longer than any time that is worth measuring, and growing with the
    /// number of pods.
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
            + Duration::from_millis(20) * u32::try_from(plan.pods + plan.services + plan.policies)?,
    };
    let &Plan { nodes, pods, services: count, policies, .. } = plan;
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
    say(&format!(
        "converged after {:.2} s, {}; starting it again",
        figures.converged.seconds(),
        memory()?
    ));
    figures.restart = run.restart().await?;
    say(&format!(
        "ready after {:.2} s, {}; replacing the northbound database by an empty one",
        figures.restart.ready,
        memory()?
    ));
    figures.replaced = run.replace().await?;
    say(&format!("filled again after {:.2} s, {}", figures.replaced.seconds, memory()?));
    for rate in &plan.rates {
        run.until_at_rest().await?;
        say(&format!("creating {rate} pods a second"));
        figures.latencies.push(latency::measure(&run, *rate).await?);
        say(&format!("they came and went, {}", memory()?));
    }
    figures.steady = Usage::of(&site.controller)?;
    figures.rows = run.rows().await?;
    if policies > 0 {
        figures.policies = Some(policies::measure(&run, say).await?);
    }
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

    /// Waits until each of `count` pods has its port and its annotation and, with policies, is
    /// isolated. Returns the times of the last annotation and of the last row.
    pub(crate) async fn until_served(&self, count: usize) -> Result<[Option<Instant>; 2]> {
        let [annotated, ports] = self.until_annotated_with_ports(count).await?;
        if self.plan.policies == 0 {
            return Ok([annotated, ports]);
        }
        let isolated = self.northbound.wait("every pod is isolated", self.patience, |northbound| {
            northbound.all_isolated(count)
        });
        let isolated = self.site.while_running(isolated).await?;
        Ok([annotated, ports.max(isolated)])
    }

    /// Waits until each of `count` pods has its port and its annotation. Returns the times of the
    /// last annotation and of the last port.
    pub(crate) async fn until_annotated_with_ports(
        &self,
        count: usize,
    ) -> Result<[Option<Instant>; 2]> {
        let annotated = self
            .pods
            .wait("every pod has its annotation", self.patience, |pods| pods.all_annotated(count));
        let ports = self.northbound.wait("every pod has its port", self.patience, |northbound| {
            northbound.all_ports(count)
        });
        let (annotated, ports) =
            self.site.while_running(async { tokio::try_join!(annotated, ports) }).await?;
        Ok([annotated, ports])
    }

    /// Waits until all sets of policies have their addresses, and returns the time of the last one.
    pub(crate) async fn until_in_sets(&self) -> Result<Option<Instant>> {
        if self.plan.policies == 0 {
            return Ok(None);
        }
        let count = policies::addresses(self.plan);
        let sets =
            self.northbound.wait("every set has its addresses", self.patience, |northbound| {
                northbound.all_addresses(count)
            });
        self.site.while_running(sets).await
    }

    /// Waits until no row has changed for a second: what follows is measured from rest.
    pub(crate) async fn until_at_rest(&self) -> Result<()> {
        let at_rest = async {
            let mut before = None;
            loop {
                let now = self.northbound.now().changes;
                if before.replace(now) == Some(now) {
                    return Ok(());
                }
                sleep(Duration::from_secs(1)).await;
            }
        };
        timeout(self.patience, self.site.while_running(at_rest))
            .await
            .context("rows change without an end")?
    }

    async fn create(&self) -> Result<Duration> {
        let client = self.client();
        calls::all(0..self.plan.namespaces(), async |number| {
            let object =
                objects::namespace(&objects::namespace_name(number), &policies::labels(number));
            calls::create(client, "/api/v1/namespaces", &object).await
        })
        .await?;
        calls::all(0..self.plan.nodes, async |number| {
            calls::create(client, "/api/v1/nodes", &objects::node(number)).await
        })
        .await?;
        let create = async |number: usize| {
            let name = self.plan.name(number);
            let node = objects::node_name(number % self.plan.nodes);
            let pod = objects::pod(&name, &node, self.plan.place_of(number));
            calls::create(client, &name.collection(), &pod).await
        };
        let took = calls::all(0..self.plan.pods, create).await?;
        let count = self.plan.pods;
        self.pods.wait("every pod is seen", self.patience, |pods| pods.all_there(count)).await?;
        policies::create(self).await?;
        Ok(took)
    }

    /// Annotates pods with a plain client, while the watch goes on as it does while the control
    /// plane annotates.
    async fn floor(&self) -> Result<Floor> {
        let patches = self.plan.pods.min(FLOOR);
        let took = calls::all(0..patches, async |number| {
            calls::annotate(self.client(), &self.plan.name(number)).await
        })
        .await?;
        Ok(Floor { patches, seconds: took.as_secs_f64() })
    }

    async fn converge(&self) -> Result<Converged> {
        let Site { kubernetes, central, controller, .. } = self.site;
        let others = [&kubernetes.api_server, &kubernetes.etcd, &central.northbound];
        let cpu = || -> Result<Vec<f64>> {
            others.iter().map(|daemon| Ok(Usage::of(daemon)?.cpu)).collect()
        };
        let (before, transactions) = (cpu()?, Central::northbound_transactions()?);
        let began = Instant::now();
        controller.spawn()?;
        let [annotated, ports] = self.until_served(self.plan.pods).await?;
        let sets = self.until_in_sets().await?;
        let used: Vec<f64> = cpu()?.iter().zip(before).map(|(now, before)| now - before).collect();
        let since = |instant: Option<Instant>| {
            instant.map_or(0.0, |instant| (instant - began).as_secs_f64())
        };
        Ok(Converged {
            annotated: since(annotated),
            ports: since(ports.max(sets)),
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
        let probe = Name::of_probe(objects::namespace_name(0), "restart", 0);
        let pod = objects::pod(&probe, &objects::node_name(0), 0);
        calls::create(self.client(), &probe.collection(), &pod).await?;
        self.until_served(self.plan.pods + 1).await?;
        let served = began.elapsed().as_secs_f64();
        calls::delete(self.client(), &probe).await?;
        self.until_served(self.plan.pods).await?;
        Ok(Restart { served, ..restart })
    }

    async fn replace(&self) -> Result<Replaced> {
        let (events, rows) = (self.pods.now().events, self.northbound.now().policies);
        tokio::task::block_in_place(|| self.site.central.replace_northbound())?;
        let began = Instant::now();
        let count = self.plan.pods;
        let filled =
            self.northbound.wait("every pod has its port again", self.patience, |northbound| {
                let last = northbound.all_ports(count)?.context("no port was seen")?;
                ensure!(last >= began, "the ports are those of before");
                Ok(last)
            });
        let filled = self.site.while_running(filled).await?;
        let [_, last] = self.until_served(count).await?;
        let filled = Some(filled).max(last).max(self.until_in_sets().await?).unwrap_or(filled);
        let rules =
            self.northbound.wait("every rule is there again", self.patience, |northbound| {
                let now = northbound.policies;
                ensure!(now == rows, "{now:?} instead of {rows:?}");
                Ok(northbound.last_rule)
            });
        let filled =
            self.site.while_running(rules).await?.map_or(filled, |rules| rules.max(filled));
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
        let nodes_with_subnets =
            nodes["items"].as_array().into_iter().flatten().filter(has_subnet).count();
        let northbound = self.northbound.now();
        Ok(Rows {
            pod_ports: northbound.ports.len(),
            other_ports: northbound.other_ports,
            switches: northbound.switches,
            nodes_with_subnets,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    impl Plan {
        /// Pods of one node, with policies and nothing else.
        pub(crate) fn of_pods(pods: usize, policies: usize) -> Self {
            Self {
                nodes: 1,
                pods,
                rates: Vec::new(),
                services: 0,
                backends: 0,
                policies,
                together: policies::TOGETHER,
                blocks: Blocks::Whole,
            }
        }
    }

    #[test]
    fn every_pod_has_a_name_of_its_own_in_one_of_the_namespaces() {
        for (pods, policies) in [(250, 0), (1, 0), (10_000, 4_800), (100, 40)] {
            let plan = Plan::of_pods(pods, policies);
            let listed: BTreeSet<String> =
                (0..plan.namespaces()).map(objects::namespace_name).collect();
            let names: BTreeSet<String> = (0..pods).map(|number| plan.name(number).key()).collect();
            assert_eq!(names.len(), pods);
            assert!((0..pods).all(|number| listed.contains(&plan.namespace_of(number))));
            assert_eq!(
                (0..plan.namespaces()).map(|number| plan.pods_in(number)).sum::<usize>(),
                pods
            );
        }
    }
}
