//! STATUS while a daemon is broken: a runtime asks every few seconds, and waits for the answer.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use integration::{
    eventually,
    faults::{Site, failed_with, row},
};

/// The longest that STATUS may take (row 57).
const LIMIT: Duration = Duration::from_millis(200);
/// How long STATUS may take a silent daemon for a busy one: 4 s by design, doubled for a busy test
/// machine.
const DOUBT: Duration = Duration::from_secs(8);

/// STATUS has this code and contains `words`, within the limit; several tries allow for a busy
/// machine.
fn says(site: &Site<'_>, code: u32, words: &str) -> Result<()> {
    eventually(&format!("STATUS is {code} within {LIMIT:?}"), Duration::from_secs(5), || {
        let outcome = site.node.runtime().status()?;
        failed_with(&outcome, code, &[words])?;
        ensure!(outcome.duration < LIMIT, "it took {:?}: {}", outcome.duration, outcome.stdout);
        Ok(())
    })
}

#[test]
fn row_57_status_tells_at_once_what_is_gone() {
    row(57).traffic_may_stop().within(Duration::from_secs(60)).test(|site| {
        let node = site.node;
        node.server.kill()?;
        node.forget_server()?;
        says(site, 50, "node-local server").context("row 1, without the server")?;
        node.start_server()?;
        site.until_healthy()?;

        node.ovsdb_server.kill()?;
        says(site, 51, "database of Open vSwitch").context("row 10, without ovsdb-server")?;
        node.start_ovsdb_server()?;
        site.until_healthy()?;

        node.vswitchd.kill()?;
        says(site, 51, "ovs-vswitchd").context("row 16, without ovs-vswitchd")?;
        node.start_vswitchd()?;
        site.until_healthy()?;

        node.ovn_controller.kill()?;
        says(site, 50, "ovn-controller").context("row 20, without ovn-controller")?;
        node.start_ovn_controller()?;
        site.until_healthy()
    });
}

#[test]
fn row_57_status_tells_at_once_that_the_api_server_is_not_there() {
    row(57).test(|site| {
        let node = site.node;
        let usual = ["--init-node", &node.name, "--pod-manifests", integration::node::MANIFESTS]
            .map(str::to_owned);
        node.server.stop()?;
        node.forget_server()?;
        // No process listens on port 9 of the lab's own namespace.
        node.server.set_arguments([
            "--init-node",
            &node.name,
            "--k8s-apiserver",
            "http://127.0.0.1:9",
        ]);
        node.start_server()?;
        says(site, 50, "API server").context("row 25, without the API server")?;
        node.server.stop()?;
        node.server.set_arguments(usual);
        node.start_server()
    });
}

#[test]
fn row_57_status_never_waits_for_one_that_hangs_and_takes_the_node_out_of_service_only_when_it_hangs_for_long()
 {
    row(57).traffic_may_stop().within(Duration::from_secs(90)).test(|site| {
        let node = site.node;
        // SIGSTOP: the socket still accepts connections into its backlog, but the daemon says
        // nothing.
        let hangs = [
            (&node.ovn_controller, 50, "ovn-controller does not answer"),
            (&node.vswitchd, 51, "ovs-vswitchd does not answer"),
            (&node.ovsdb_server, 51, "database of Open vSwitch"),
        ];
        for (daemon, code, words) in hangs {
            daemon.pause()?;
            // At first the daemon may just be busy.
            let first = node.runtime().status()?;
            let told = eventually("STATUS tells", DOUBT, || {
                let outcome = node.runtime().status()?;
                failed_with(&outcome, code, &[words])?;
                ensure!(
                    outcome.duration < LIMIT,
                    "it took {:?}: {}",
                    outcome.duration,
                    outcome.stdout
                );
                Ok(())
            });
            daemon.resume()?;
            first
                .success()
                .with_context(|| format!("{} was stopped a moment ago", daemon.name()))?;
            told.with_context(|| format!("{} is stopped", daemon.name()))?;
            site.until_healthy()?;
        }
        Ok(())
    });
}
