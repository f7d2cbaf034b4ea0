//! The server has too few descriptors, or can start no thread; the plugin can start none.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Outcome, eventually, executable,
    faults::{limits::Limit, row, shim::Shim},
    process::ticks,
    runtime::Running,
};

// --- 44
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_44_with_64_descriptors_a_hundred_adds_at_once_all_succeed() {
    row(44).within(Duration::from_secs(60)).test(|site| {
        let pods = site.new_pods(100)?;
        let pid = site.node.server.pid().context("the server runs")?;
        let limits = fs::read_to_string(format!("/proc/{pid}/limits"))?;
        let soft = limits
            .lines()
            .find(|line| line.starts_with("Max open files"))
            .and_then(|line| line.split_whitespace().nth(3));
        let before = soft.context("a limit of descriptors")?.parse::<u32>()?;
        site.node.server.limit(Limit::Descriptors(64))?;

        let running = site.start_adds(&pods)?;
        let outcomes = running.into_iter().map(Running::wait).collect::<Result<Vec<Outcome>>>()?;
        let failures: Vec<String> = outcomes
            .iter()
            .filter_map(|outcome| outcome.success().err())
            .map(|error| error.to_string())
            .collect();
        ensure!(
            failures.is_empty(),
            "{} of {} ADDs failed:\n{}",
            failures.len(),
            outcomes.len(),
            failures.join("\n")
        );
        let log = site.node.server_log()?;
        ensure!(
            !log.contains("a pod manifest cannot be used"),
            "callers left no descriptor to read their pods with: {log}"
        );
        pods.iter().step_by(10).try_for_each(|pod| site.has_network(pod))?;
        let running = pods
            .iter()
            .map(|pod| site.node.runtime().call("DEL", Some(pod)).start())
            .collect::<Result<Vec<_>>>()?;
        running.into_iter().try_for_each(|del| del.wait()?.success().map(drop))?;
        site.node.server.limit(Limit::Descriptors(before))
    });
}

/// No descriptor is free for a new connection: the server waits for one instead of retrying
/// `accept` in a loop.
#[test]
fn row_44_without_a_free_descriptor_the_server_waits_and_does_not_spin() {
    row(44).test(|site| {
        let pid = site.node.server.pid().context("the server runs")?;
        let open = fs::read_dir(format!("/proc/{pid}/fd"))?.count();
        let mut pods = site.new_pods(8)?;
        let late = site.new_pod_without_annotation()?;
        site.node.server.limit(Limit::Descriptors(u32::try_from(open)?))?;
        // Nor can the server read this manifest, and no event tells it when it can.
        site.node.write_manifest(&late)?;
        pods.push(late);
        let used = ticks(pid)?;
        let began = Instant::now();
        let running =
            pods.iter().map(|pod| site.start_add_within(20, pod)).collect::<Result<Vec<_>>>()?;
        eventually("the server says that it can accept nothing", Duration::from_secs(5), || {
            let log = site.node.server_log()?;
            ensure!(
                log.contains("no connection can be accepted for now")
                    && log.contains("Too many open files"),
                "{log}"
            );
            Ok(())
        })?;
        eventually("two seconds are over", Duration::from_secs(3), || {
            ensure!(began.elapsed() > Duration::from_secs(2), "not yet");
            Ok(())
        })?;
        let spent = ticks(pid)? - used;
        ensure!(
            spent < 50,
            "in {:?} without a free descriptor the server used {spent} ticks of 10 ms",
            began.elapsed()
        );
        let log = site.node.server_log()?;
        let said = log.matches("no connection can be accepted for now").count();
        ensure!(said <= 2, "it says so {said} times");
        site.node.server.limit(Limit::Descriptors(1024))?;
        running.into_iter().try_for_each(|add| add.wait()?.success().map(drop))?;
        pods.iter().try_for_each(|pod| site.has_network(pod))
    });
}

// --- 45
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_45_a_plugin_that_can_start_no_thread_needs_none() {
    row(45).test(|site| {
        let shim = Shim::for_program(executable::PLUGIN)?;
        let pod = site.new_pod()?;
        shim.refuse_threads()?;
        shim.around(site.node.runtime().call("ADD", Some(&pod))).run()?.success()?;
        site.has_network(&pod)?;
        // DEL flushes a tracked connection in a thread of its own, if it can start one.
        let connection = format!(
            "-I -p tcp --sport 40000 --dport 443 --state ESTABLISHED -t 600 -s {} -d 10.96.0.1",
            pod.address()
        );
        site.node
            .run(["conntrack"].into_iter().chain(connection.split_whitespace()))
            .context("install conntrack: apt-get install conntrack")?;
        shim.around(site.node.runtime().call("DEL", Some(&pod))).run()?.success()?;
        site.nothing_of(&pod)?;
        ensure!(shim.refused_threads()? > 0, "no thread was requested, so none was refused");
        Ok(())
    });
}

#[test]
fn row_45_a_server_that_can_start_no_thread_lives_and_serves() {
    row(45).test(|site| {
        let node = site.node;
        let shim = Shim::for_program(executable::SERVER)?;
        node.server.stop()?;
        node.server.set_environment(shim.environment());
        node.start_server()?;
        site.until_healthy()?;
        // tokio ends an idle blocking thread after ten seconds by default. The server keeps its
        // own, which do the work from now on.
        let pid = node.server.pid().context("the server runs")?;
        shim.refuse_threads()?;
        let_idle_threads_end(pid)?;
        // A blocking thread reads manifests.
        for _ in 0..3 {
            let pod = site.new_pod()?;
            site.add_within(20, &pod)?.success()?;
            ensure!(node.server.pid() == Some(pid), "the server has ended");
        }
        shim.allow_threads()?;
        let pod = site.new_pod()?;
        site.add(&pod)?.success()?;
        site.has_network(&pod)?;
        let log = node.server_log()?;
        ensure!(!log.contains("panicked") && !log.contains("panic"), "{log}");
        node.server.set_environment(Vec::new());
        Ok(())
    });
}

/// Waits longer than tokio's default for idle blocking threads: threads that the server does not
/// keep have ended.
fn let_idle_threads_end(pid: u32) -> Result<()> {
    let threads = || -> Result<usize> { Ok(fs::read_dir(format!("/proc/{pid}/task"))?.count()) };
    let began = Instant::now();
    let mut least = threads()?;
    eventually("idle threads have ended", Duration::from_secs(15), || {
        least = least.min(threads()?);
        ensure!(began.elapsed() > Duration::from_secs(11), "{least} threads");
        Ok(())
    })
}
