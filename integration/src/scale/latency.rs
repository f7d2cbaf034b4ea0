//! Waiting times of pods for their network when they are created at a steady rate.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use integration::central::Central;
use tokio::{task::JoinSet, time::interval};

use super::{
    calls,
    figures::Latency,
    objects::{self, Name},
    process::Usage,
    run::Run,
};
use crate::report::percentiles::Percentiles;

/// Duration of a phase: long enough for the rate to be steady, short enough for three rates in one
/// run.
const SECONDS: usize = 10;
/// Fewest pods of a phase: with 200 pods the 99th percentile is not just the slowest one.
const AT_LEAST: usize = 200;

/// Number of pods of the phase with `rate` pods a second.
pub(crate) fn pods_at(rate: usize) -> usize {
    AT_LEAST.max(rate * SECONDS)
}

/// Creates pods at `rate` a second without waiting for their network, and deletes them at the end.
pub(crate) async fn measure(run: &Run<'_>, rate: usize) -> Result<Latency> {
    let count = pods_at(rate);
    let before = (Usage::of(&run.site.controller)?.cpu, Central::northbound_transactions()?);
    let probe = |number: usize| {
        let namespace = run.plan.namespace_of(number % run.plan.pods);
        Name::of_probe(namespace, &rate.to_string(), number)
    };
    let probes: Vec<Name> = (0..count).map(probe).collect();
    let answered = create(run, rate, &probes).await?;
    run.until_served(run.plan.pods + count).await?;
    let after = (Usage::of(&run.site.controller)?.cpu, Central::northbound_transactions()?);
    let latency = {
        let (pods, northbound) = (run.pods.now(), run.northbound.now());
        let mut waits = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        for (probe, answered) in probes.iter().zip(answered) {
            let pod = pods.pods.get(&probe.key()).context("a pod is gone")?;
            // The watch may report a pod before its creator reads the answer to the POST: the
            // earlier time counts.
            let created = answered.min(pod.added);
            let annotation = pod.annotated.context("an annotation is gone")? - created;
            let there = northbound
                .ports
                .get(&probe.port())
                .with_context(|| format!("there is no port {}", probe.port()))?;
            let port = there.seen - created;
            // With policies, the port alone serves nobody.
            let isolated = match run.plan.policies {
                0 => port,
                _ => (northbound.isolated(there).context("a pod is open")? - created).max(port),
            };
            for (waits, wait) in
                waits.iter_mut().zip([port, isolated, annotation, isolated.max(annotation)])
            {
                waits.push(wait.as_secs_f64() * 1e3);
            }
        }
        let [port, isolated, annotation, served] = waits.map(Percentiles::of);
        let (cpu, transactions) = ((after.0 - before.0) * 1e3 / count as f64, after.1 - before.1);
        Latency { rate, pods: count, port, isolated, annotation, served, cpu, transactions }
    };
    calls::all(&probes, |probe| calls::delete(run.client(), probe)).await?;
    run.until_served(run.plan.pods).await?;
    Ok(latency)
}

/// Creates `probes` at a steady rate. Returns the time of each answer.
async fn create(run: &Run<'_>, rate: usize, probes: &[Name]) -> Result<Vec<Instant>> {
    let mut beat = interval(Duration::from_secs(1) / u32::try_from(rate)?);
    let mut creations = JoinSet::new();
    for (number, probe) in probes.iter().enumerate() {
        beat.tick().await;
        let (client, collection) = (run.client().clone(), probe.collection());
        // 7,919 is a prime: consecutive pods go to nodes that are far apart.
        let place = run.plan.place_of(number % run.plan.pods);
        let pod = objects::pod(probe, &objects::node_name(number * 7_919 % run.plan.nodes), place);
        creations.spawn(async move {
            calls::create(&client, &collection, &pod).await?;
            anyhow::Ok((number, Instant::now()))
        });
    }
    let mut answered = vec![Instant::now(); probes.len()];
    while let Some(creation) = creations.join_next().await {
        let (number, instant) = creation??;
        answered[number] = instant;
    }
    Ok(answered)
}
