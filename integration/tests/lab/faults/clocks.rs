//! The wall clock jumps, for the plugin and the server only: the machine's clock is shared with
//! other processes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use integration::{
    executable,
    faults::{SHORTLY, Site, row, shim::Shim},
    runtime::Running,
};
use serde_json::json;

const HOUR: i64 = 3600;

/// Plugin and server with clocks of their own; the server is restarted with its clock.
struct Clocks {
    plugin: Shim,
    server: Shim,
}

impl Clocks {
    fn set_up(site: &Site<'_>) -> Result<Self> {
        let clocks = Self {
            plugin: Shim::for_program(executable::PLUGIN)?,
            server: Shim::for_program(executable::SERVER)?,
        };
        site.node.server.stop()?;
        site.node.server.set_environment(clocks.server.environment());
        site.node.start_server()?;
        site.until_healthy()?;
        Ok(clocks)
    }

    fn set_ahead(&self, seconds: i64) -> Result<()> {
        self.plugin.set_clock_ahead(seconds)?;
        self.server.set_clock_ahead(seconds)
    }

    fn start_add(&self, site: &Site<'_>, pod: &integration::Pod, seconds: u64) -> Result<Running> {
        self.plugin
            .around(
                site.node.runtime().with("timeoutSeconds", json!(seconds)).call("ADD", Some(pod)),
            )
            .start()
    }
}

/// The hour in the server's last log line: shows that the fault took effect.
fn log_has_year_of(site: &Site<'_>) -> Result<String> {
    let log = site.node.server_log()?;
    let last = log.lines().last().context("a line in the server's log")?;
    Ok(last.split('|').next().unwrap_or_default().chars().take(13).collect())
}

#[test]
fn row_47_a_jump_of_the_wall_clock_ends_no_wait_early_and_none_late() {
    row(47).within(Duration::from_secs(60)).test(|site| {
        let clocks = Clocks::set_up(site)?;
        for ahead in [HOUR, -HOUR] {
            let [late, never] =
                [site.new_pod_without_annotation()?, site.new_pod_without_annotation()?];
            let mut served = clocks.start_add(site, &late, 30)?;
            let began = Instant::now();
            let mut forgotten = clocks.start_add(site, &never, 4)?;
            site.are_waited_for(&[late.clone(), never.clone()])?;
            let hour_before = log_has_year_of(site)?;
            clocks.set_ahead(ahead)?;
            // Other calls go on at the same time, and their log lines show the new hour.
            let pod = site.new_pod()?;
            clocks.start_add(site, &pod, 30)?.wait()?.success()?;
            site.has_network(&pod)?;
            site.node.runtime().status()?.success()?;
            let hour_after = log_has_year_of(site)?;
            ensure!(
                hour_before != hour_after,
                "the server's clock has not jumped: {hour_before}, {hour_after}"
            );
            ensure!(!served.has_ended()?, "an ADD with 30 s has ended after {:?}", began.elapsed());
            ensure!(
                began.elapsed() > Duration::from_secs(3) || !forgotten.has_ended()?,
                "an ADD with 4 s ended early"
            );

            site.node.write_manifest(&late)?;
            served.wait()?.success()?;
            site.has_network(&late)?;
            let outcome = forgotten.wait()?;
            let error = outcome.failure()?;
            ensure!(error.code == 11, "{error:?}");
            let (least, most) = (Duration::from_secs(3), Duration::from_secs(4) + SHORTLY);
            ensure!(
                (least..most).contains(&outcome.duration),
                "an ADD with 4 s took {:?}, its clock was set {ahead} s ahead",
                outcome.duration
            );
            clocks.set_ahead(0)?;
        }
        site.node.server.set_environment(Vec::new());
        Ok(())
    });
}
