//! The server is told to end, or killed again and again, while pods come and go.

use std::{
    slice,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use contract::paths::{CNI_CONF_DIR, CNI_CONF_FILE};
use integration::{
    Lab, Node, Pod, Runtime,
    churn::soak::Soak,
    eventually,
    faults::{SHORTLY, Site, failed_with, long_forms, row},
    let_pass,
    runtime::Running,
    threads,
};
use serde_json::json;

/// How long the server lets ADDs finish after SIGTERM. The row demands it, and the unit's
/// `TimeoutStopSec` is longer.
const DRAIN: Duration = Duration::from_secs(20);

/// Pods without an annotation, each with an ADD that the server has received.
fn waiting_adds(site: &Site<'_>, count: usize) -> Result<Vec<(Pod, Running)>> {
    let pods: Vec<Pod> =
        (0..count).map(|_| site.new_pod_without_annotation()).collect::<Result<_>>()?;
    let adding = site.start_adds(&pods)?;
    site.are_waited_for(&pods)?;
    Ok(pods.into_iter().zip(adding).collect())
}

/// A runtime finds this network and no other.
fn no_other_network(node: &Node) -> Result<()> {
    let files = node.run(["ls", CNI_CONF_DIR])?;
    ensure!(files.trim() == CNI_CONF_FILE, "a runtime would choose from {files:?}");
    Ok(())
}

fn has_ended(site: &Site<'_>, within: Duration) -> Result<()> {
    eventually("the server has ended", within, || {
        ensure!(!site.node.server.is_running(), "it runs");
        Ok(())
    })
}

/// STATUS is 50 once the server's stamp is gone. Until then a server that ends counts as one that
/// restarts.
fn says_that_it_ends(site: &Site<'_>) -> Result<()> {
    eventually("STATUS says that it ends", SHORTLY, || {
        // The server may write the stamp once more meanwhile.
        let _ = site.node.forget_server();
        site.status_is(50, &["shutting down"])
    })
}

#[test]
fn row_60_adds_in_flight_are_finished_after_sigterm_and_runtimes_hear_that_no_more_can_come() {
    row(60).test(|site| {
        let node = site.node;
        eventually("the configuration is there", SHORTLY, || no_other_network(node))?;
        let waiting = waiting_adds(site, 8)?;
        node.server.signal(nix::sys::signal::Signal::SIGTERM)?;
        says_that_it_ends(site)?;
        ensure!(node.server.is_running(), "it has not waited for the ADDs");
        no_other_network(node)?;
        // A new ADD has to be retried later, and leaves nothing.
        let late = site.new_pod()?;
        let outcome = site.add_within(1, &late)?;
        site.failed(&late, &outcome, 11, &[])?;

        waiting.iter().try_for_each(|(pod, _)| node.write_manifest(pod))?;
        for (pod, add) in waiting {
            add.wait()?.success().with_context(|| pod.name.clone())?;
            site.has_network(&pod)?;
        }
        has_ended(site, SHORTLY)?;
        no_other_network(node)?;
        node.runtime().status()?.success().context("a server is expected again within a minute")?;
        node.forget_server()?;
        site.status_is(50, &[])?;
        node.start_server()
    });
}

/// The gap between two servers. A container needs more to start than the second for which an ADD
/// waits for a server that did not announce its end.
const GAP: Duration = Duration::from_secs(3);

/// As during the roll-out of a DaemonSet while pods come and go.
#[test]
fn row_60_adds_that_meet_a_server_which_ends_are_answered_by_the_next_one() {
    row(60).within(Duration::from_secs(60)).test(|site| {
        let node = site.node;
        let in_flight = waiting_adds(site, 1)?;
        // `early` ADDs meet the server before SIGTERM, `late` ones while it shuts down.
        let (late, early) = (site.new_pods(16)?, site.new_pods(8)?);
        let mut adds: Vec<_> = early.iter().zip(site.start_adds(&early)?).collect();
        node.server.signal(nix::sys::signal::Signal::SIGTERM)?;
        says_that_it_ends(site)?;
        adds.extend(late.iter().zip(site.start_adds(&late)?));
        eventually("each of the late ones was sent away", SHORTLY, || {
            let log = node.server_log()?;
            let sent_away = |pod: &&Pod| {
                log.lines().any(|line| line.contains(&pod.name) && line.contains("shutting down"))
            };
            let count = late.iter().filter(sent_away).count();
            ensure!(count == late.len(), "{count} of {}", late.len());
            Ok(())
        })?;
        for (pod, add) in in_flight {
            node.write_manifest(&pod)?;
            add.wait()?.success().with_context(|| pod.name.clone())?;
        }
        has_ended(site, SHORTLY)?;
        let_pass(GAP);
        node.start_server()?;
        for (pod, add) in adds {
            add.wait()?
                .success()
                .with_context(|| format!("pod {} has to be tried again", pod.name))?;
            site.one_port_of(pod)?;
            site.has_network(pod)?;
        }
        Ok(())
    });
}

/// The long form waits for the whole time in which an ADD may finish.
#[test]
fn row_60_adds_that_cannot_be_finished_are_told_to_try_again_within_twenty_seconds() {
    row(60).within(Duration::from_secs(60)).test(|site| {
        let waiting = waiting_adds(site, 4)?;
        let told = Instant::now();
        site.node.server.signal(nix::sys::signal::Signal::SIGTERM)?;
        says_that_it_ends(site)?;
        if !long_forms() {
            // A second SIGTERM ends the wait.
            site.node.server.signal(nix::sys::signal::Signal::SIGTERM)?;
        }
        has_ended(site, DRAIN + SHORTLY)?;
        let ended = told.elapsed();
        if long_forms() {
            ensure!(ended >= DRAIN, "it waited for {ended:?} only");
        }
        for (pod, add) in waiting {
            // The plugin looks for a restarted server, and gives up after a second.
            let outcome = add.wait()?;
            site.failed(&pod, &outcome, 11, &["stage annotation"])?;
        }
        let told_all = told.elapsed();
        ensure!(told_all < DRAIN + SHORTLY, "the last ADD ended {told_all:?} after SIGTERM");
        no_other_network(site.node)?;
        site.node.start_server()
    });
}

/// The period of the kills in a storm (row 61).
const PERIOD: Duration = Duration::from_millis(500);
/// The number of runtimes that call at once, each for one pod at a time (row 61).
const CALLERS: usize = 8;

/// What one runtime did during a storm.
#[derive(Debug, Default)]
struct Done {
    succeeded: usize,
    told_to_try_again: usize,
    /// The pod in its last sandbox, and whether that ADD succeeded.
    last: Option<(Pod, bool)>,
}

/// The pod comes and goes, in one sandbox after the other, until `over` is set.
fn churn(site: &Site<'_>, runtime: &Runtime<'_>, pod: &Pod, over: &AtomicBool) -> Result<Done> {
    let (mut done, mut pod) = (Done::default(), pod.clone());
    loop {
        let outcome = runtime.add(&pod)?;
        if outcome.status.success() {
            done.succeeded += 1;
        } else {
            failed_with(&outcome, 11, &[])?;
            done.told_to_try_again += 1;
        }
        if over.load(Ordering::Relaxed) {
            done.last = Some((pod, outcome.status.success()));
            return Ok(done);
        }
        take_away(site, &pod)?;
        pod = pod.next_sandbox();
        site.node.add_namespaces(slice::from_ref(&pod))?;
    }
}

/// DEL succeeds also while no server runs.
fn take_away(site: &Site<'_>, pod: &Pod) -> Result<()> {
    site.del(pod)?.success()?;
    site.node.remove_namespaces(slice::from_ref(pod))
}

/// Kills the server every half second, or as often as it has started again; returns the number of
/// kills.
fn storm(node: &Node, length: Duration) -> Result<u32> {
    let end = Instant::now() + length;
    let mut kills = 0;
    while Instant::now() < end {
        let next = Instant::now() + PERIOD;
        node.server.kill()?;
        kills += 1;
        node.start_server()?;
        // Even on a slow machine, leave the server enough time that waiting ADDs reach it.
        let_pass(next.saturating_duration_since(Instant::now()).max(PERIOD / 4));
    }
    Ok(kills)
}

#[test]
fn row_61_a_storm_of_restarts_leaves_a_consistent_node() {
    let length = Duration::from_secs(if long_forms() { 60 } else { 8 });
    row(61).within(length + Duration::from_secs(45)).test(|site| {
        let pods = site.new_pods(CALLERS)?;
        let runtime = site.node.runtime().with("timeoutSeconds", json!(10));
        let over = AtomicBool::new(false);
        let (kills, done) = thread::scope(|scope| {
            let (runtime, over) = (&runtime, &over);
            let callers: Vec<_> = pods
                .iter()
                .map(|pod| scope.spawn(move || churn(site, runtime, pod, over)))
                .collect();
            let kills = storm(site.node, length);
            over.store(true, Ordering::Relaxed);
            let done = callers.into_iter().map(threads::join).collect::<Result<Vec<Done>>>();
            Ok::<_, anyhow::Error>((kills?, done?))
        })?;
        let succeeded: usize = done.iter().map(|done| done.succeeded).sum();
        let failed: usize = done.iter().map(|done| done.told_to_try_again).sum();
        // Otherwise there was no storm, or no ADD during it.
        ensure!(
            kills >= 4 && succeeded >= CALLERS,
            "{kills} kills, {succeeded} ADDs succeeded, {failed} were told to try again"
        );
        for (pod, attached) in done.iter().filter_map(|done| done.last.as_ref()) {
            if *attached {
                site.one_port_of(pod)?;
                site.has_network(pod)?;
            } else {
                site.nothing_of(pod)?;
            }
            take_away(site, pod)?;
        }
        Ok(())
    });
}

/// `make soak` is the long form with a table, and has the same demands.
#[test]
fn row_62_nothing_grows_while_pods_come_and_go() {
    let soak = match long_forms() {
        true => Soak { cycles: 10_000, churn: 100, at_once: 8 },
        false => Soak { cycles: 100, churn: 20, at_once: 8 },
    };
    let limit = Duration::from_secs(if long_forms() { 3600 } else { 50 });
    row(62).in_lab(Lab::of_nodes(1).v4_prefix_len(20)).within(limit).test(|site| {
        let report = soak.run(site.lab, &mut |line| println!("{line}"))?;
        let findings = report.findings();
        ensure!(findings.is_empty(), "{}\n{report}", findings.join("\n"));
        Ok(())
    });
}
