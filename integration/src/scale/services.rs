//! The phase with Services: how long their rows take, what they add, and how fast a change of
//! endpoints is in the database.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use integration::central::Central;
use serde_json::json;
use tokio::{task::JoinSet, time::interval};

use super::{
    calls,
    figures::Services,
    northbound::MARKED,
    objects,
    process::Usage,
    run::{Plan, Run},
};
use crate::report::percentiles::Percentiles;

/// Changes of slices a second: the rate of the goal.
const RATE: usize = 100;
/// Most changes: ten seconds of them. Each slice changes once: on a busy machine a second change
/// may come before the first one is a row, which then never has the first one's address.
const CHANGES: usize = 1_000;

/// Creates the Services and measures.
pub(crate) async fn measure(run: &Run<'_>, say: &(dyn Fn(&str) + Sync)) -> Result<Services> {
    let &Plan { services, backends, .. } = run.plan;
    let before = Usage::of(&run.site.controller)?.rss;
    let (took, answered) = create(run).await?;
    let behind = answered.elapsed();
    let memory = Usage::of(&run.site.controller)?.rss - before;
    say(&format!("all are there, {memory:.1} MB more; replacing the northbound database"));
    let filled = replace(run).await?;
    let database = std::fs::metadata(Central::northbound_file())?.len() as f64 / 1e6;
    say(&format!("filled after {filled:.2} s; starting the control plane again"));
    let (ready, transactions, pod_events, cpu) = restart(run)?;
    say(&format!("ready after {ready:.2} s; changing {RATE} slices a second"));
    let changed = change(run).await?;
    Ok(Services {
        services,
        backends,
        created_per_second: services as f64 / took.as_secs_f64(),
        behind: behind.as_secs_f64(),
        memory,
        filled,
        ready,
        transactions,
        pod_events,
        cpu,
        changes: CHANGES.min(services),
        rate: RATE,
        changed,
        rows: run.northbound.now().balancers.len(),
        database,
    })
}

/// Creates all Services with their slices, and waits for their rows. Returns how long the API
/// server took, and when it gave the last answer.
async fn create(run: &Run<'_>) -> Result<(Duration, Instant)> {
    let &Plan { nodes, services, backends, .. } = run.plan;
    let client = run.client();
    let create = async |number: usize| {
        // The namespaces are those of the pods.
        let namespace = run.plan.namespace_of(number % run.plan.pods);
        let first = format!("10.254.{}.{}", number / 250, number % 250 + 1);
        let slice =
            objects::slice(&namespace, number, objects::endpoints(number, nodes, backends, &first));
        let [of_services, of_slices] = objects::service_collections(&namespace);
        calls::create(client, &of_services, &objects::service(&namespace, number)).await?;
        calls::create(client, &of_slices, &slice).await
    };
    let took = calls::all(0..services, create).await?;
    let answered = Instant::now();
    until_all(run).await?;
    Ok((took, answered))
}

/// Waits until each Service has a load balancer with backends.
async fn until_all(run: &Run<'_>) -> Result<()> {
    let count = run.plan.services;
    run.northbound
        .wait("every Service has its load balancer", run.patience, |northbound| {
            let there = northbound.balancers.values().filter(|has_backends| **has_backends).count();
            ensure!(there == count, "{there} of {count} are there");
            Ok(())
        })
        .await
}

async fn replace(run: &Run<'_>) -> Result<f64> {
    tokio::task::block_in_place(|| run.site.central.replace_northbound())?;
    let began = Instant::now();
    let count = run.plan.pods;
    run.northbound
        .wait("every pod has its port again", run.patience, |northbound| {
            let last = northbound.all_ports(count)?.context("no port was seen")?;
            ensure!(last >= began, "the ports are those of before");
            Ok(())
        })
        .await?;
    run.until_served(count).await?;
    run.until_in_sets().await?;
    until_all(run).await?;
    Ok(began.elapsed().as_secs_f64())
}

/// Seconds until the new process is ready, its transactions, the watch events of pods, and its
/// processor time.
fn restart(run: &Run<'_>) -> Result<(f64, u64, u64, f64)> {
    let controller = &run.site.controller;
    tokio::task::block_in_place(|| {
        run.site.until_ready(run.patience)?;
        controller.stop()?;
        let (transactions, events) = (Central::northbound_transactions()?, run.pods.now().events);
        let began = Instant::now();
        controller.spawn()?;
        run.site.until_ready(run.patience)?;
        let ready = began.elapsed().as_secs_f64();
        let transactions = Central::northbound_transactions()? - transactions;
        Ok((ready, transactions, run.pods.now().events - events, Usage::of(controller)?.cpu))
    })
}

/// Gives one slice after the other a new first endpoint, at a steady rate, and measures from each
/// answer to the row.
async fn change(run: &Run<'_>) -> Result<Percentiles> {
    let &Plan { nodes, services, backends, pods, .. } = run.plan;
    let count = CHANGES.min(services);
    let mut beat = interval(Duration::from_secs(1) / u32::try_from(RATE)?);
    let mut changes = JoinSet::new();
    for change in 0..count {
        beat.tick().await;
        let client = run.client().clone();
        // A prime: neighbours in time are not neighbours in the database.
        let number = change * 7_919 % services;
        let [_, of_slices] = objects::service_collections(&run.plan.namespace_of(number % pods));
        let marker = format!("{MARKED}{}.{}", change / 250, change % 250 + 1);
        changes.spawn(async move {
            let endpoints = objects::endpoints(number, nodes, backends, &marker);
            let path = format!("{of_slices}/web-{number:06}-x7k2p");
            calls::patch(&client, &path, &json!({"endpoints": endpoints})).await?;
            anyhow::Ok((format!("{marker}:8080"), Instant::now()))
        });
    }
    let mut answers = Vec::with_capacity(count);
    while let Some(change) = changes.join_next().await {
        answers.push(change??);
    }
    run.northbound
        .wait("every change is in the database", run.patience, |northbound| {
            let there = northbound.marked.len();
            ensure!(there == count, "{there} of {count} are there");
            Ok(())
        })
        .await?;
    let northbound = run.northbound.now();
    let waits = answers.into_iter().map(|(marker, answered)| {
        // The row may be there before the answer is read.
        Ok(northbound
            .marked
            .get(&marker)
            .context("a change is gone")?
            .saturating_duration_since(answered))
    });
    let waits: Vec<f64> =
        waits.map(|wait: Result<Duration>| Ok(wait?.as_secs_f64() * 1e3)).collect::<Result<_>>()?;
    Ok(Percentiles::of(waits))
}
