//! The node-local server: missing, stopped, killed, restarted.

use std::{
    fs,
    os::unix::{fs::FileTypeExt as _, net::UnixListener},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Outcome, Pod,
    faults::{Site, at_once, row},
    node::SERVER_SOCKET,
};

/// The second for which an ADD waits for a restarting server, and what a busy machine adds.
const GRACE: Duration = Duration::from_secs(4);

/// ADD reports the missing server in time, and so does STATUS once the server's stamp is gone.
fn nobody_is_there(site: &Site<'_>, pod: &Pod) -> Result<()> {
    let outcome = site.add(pod)?;
    site.failed(pod, &outcome, 11, &["/ovn-cni-server.sock", "stage annotation"])?;
    ensure!(outcome.duration < GRACE, "it took {:?}", outcome.duration);
    site.node.runtime().status()?.success().context("it may be one that restarts")?;
    site.node.forget_server()?;
    site.status_is(50, &["node-local server", "/ovn-cni-server.sock"])
}

#[test]
fn row_01_without_a_server_add_says_so_and_names_the_socket() {
    row(1).test(|site| {
        let pod = site.new_pod()?;
        site.node.server.stop()?;
        ensure!(
            !site.node.path(SERVER_SOCKET).exists(),
            "a server that is told to stop takes its socket along"
        );
        nobody_is_there(site, &pod)?;
        site.node.start_server()?;
        // A runtime may call again with the same sandbox.
        site.add(&pod)?.success()?;
        site.has_network(&pod)
    });
}

#[test]
fn row_01_a_server_that_is_away_for_a_moment_is_waited_for() {
    row(1).test(|site| {
        let pods = site.new_pods(5)?;
        site.node.server.kill()?;
        let waiting = site.start_adds(&pods)?;
        site.node.start_server()?;
        waiting.into_iter().try_for_each(|add| add.wait()?.success().map(drop))?;
        pods.iter().try_for_each(|pod| site.has_network(pod))
    });
}

#[test]
fn row_02_del_needs_no_server() {
    row(2).test(|site| {
        let pods = [site.attached_pod()?, site.attached_pod()?];
        let never_added = site.new_pod()?;
        site.node.server.kill()?;
        for pod in pods.iter().chain([&never_added]) {
            let outcome = site.del(pod)?;
            outcome.success()?;
            at_once(&outcome)?;
            site.nothing_of(pod)?;
        }
        site.node.start_server()
    });
}

#[test]
fn row_03_a_socket_that_nobody_listens_on_is_as_none_and_the_next_server_takes_its_place() {
    row(3).test(|site| {
        let pod = site.new_pod()?;
        site.node.server.kill()?;
        let socket = site.node.path(SERVER_SOCKET);
        ensure!(
            fs::symlink_metadata(&socket)?.file_type().is_socket(),
            "a server that is killed leaves its socket"
        );
        nobody_is_there(site, &pod)?;
        site.node.start_server()?;
        site.add(&pod)?.success().map(drop)
    });
}

#[test]
fn row_03_a_server_takes_the_place_of_nothing_but_a_dead_socket() {
    row(3).test(|site| {
        let socket = site.node.path(SERVER_SOCKET);
        site.node.server.stop()?;
        // Another process listens on the socket: a server must not take a socket that is in use.
        let listener = UnixListener::bind(&socket)?;
        refuses_to_start(site, "another server answers")?;
        drop(listener);
        fs::remove_file(&socket)?;
        // A regular file has the socket's name.
        fs::write(&socket, "precious")?;
        refuses_to_start(site, "is no socket")?;
        ensure!(fs::read_to_string(&socket)? == "precious", "the file has changed");
        fs::remove_file(&socket)?;
        site.node.start_server()
    });
}

fn refuses_to_start(site: &Site<'_>, reason: &str) -> Result<()> {
    site.node.server.spawn()?;
    integration::eventually("the server refuses to start", GRACE, || {
        ensure!(!site.node.server.is_running(), "it runs");
        Ok(())
    })?;
    let said = fs::read_to_string(site.node.server.log())? + &site.node.server_log()?;
    ensure!(said.contains(reason), "{reason:?} is not what it says:\n{said}");
    Ok(())
}

#[test]
fn row_04_a_stopped_server_costs_an_add_its_deadline_and_nothing_else() {
    row(4).test(|site| {
        let (early, late) = (site.new_pod_without_annotation()?, site.new_pod()?);
        let waiting = site.start_add_within(3, &early)?;
        site.are_waited_for(std::slice::from_ref(&early))?;
        site.node.server.pause()?;
        let outcome = site.add_within(2, &late)?;
        site.failed(&late, &outcome, 11, &["stage annotation"])?;
        let waited = waiting.wait()?;
        site.failed(&early, &waited, 11, &["stage annotation"])?;
        for outcome in [outcome, waited] {
            ensure!(
                outcome.duration < Duration::from_secs(3) + GRACE,
                "it took {:?}",
                outcome.duration
            );
        }
        // DEL does not need the server.
        let outcome = site.del(&late)?;
        outcome.success()?;
        at_once(&outcome)?;
        site.node.server.resume()
    });
}

#[test]
fn row_08_a_restart_with_100_pods_loses_no_packet_writes_nothing_and_takes_no_second() {
    row(8).within(Duration::from_secs(120)).test(|site| {
        let pods = site.new_pods(100)?;
        for some in pods.chunks(10) {
            for add in site.start_adds(some)? {
                add.wait()?.success()?;
            }
        }
        let flow = site.lab.flow(&pods[0], &pods[99])?;
        site.lab.central.sync()?;
        let before = written(site)?;
        for gracefully in [true, false] {
            if gracefully {
                site.node.server.stop()?
            } else {
                site.node.server.kill()?
            }
            // A restarting server is tolerated.
            site.node.runtime().status()?.success()?;
            let began = Instant::now();
            site.node.server.spawn()?;
            let answers = || site.node.runtime().status()?.success().map(drop);
            integration::eventually("STATUS succeeds", Duration::from_secs(5), answers)?;
            let took = began.elapsed();
            ensure!(took < Duration::from_secs(1), "STATUS succeeded {took:?} after the start");
        }
        let after = written(site)?;
        ensure!(
            before == after,
            "written to Open vSwitch's database: {:#?}",
            &after[before.len().min(after.len())..]
        );
        flow.stop()?.none_is_lost(0)?;
        let plugs = pods.iter().step_by(33).try_for_each(|pod| site.has_network(pod));
        // Ten at a time, because the site would delete the pods one by one.
        for some in pods.chunks(10) {
            let removing: Vec<_> = some
                .iter()
                .map(|pod| site.node.runtime().call("DEL", Some(pod)).start())
                .collect::<Result<_>>()?;
            removing.into_iter().try_for_each(|del| del.wait()?.success().map(drop))?;
        }
        plugs
    });
}

/// All transactions of the node's database, except ovn-controller's, which records how far it has
/// followed the northbound database. The file is a log (ovsdb(5)) and is compacted ten minutes
/// after the start, at the earliest.
fn written(site: &Site<'_>) -> Result<Vec<String>> {
    let log = fs::read_to_string(site.node.path("/etc/openvswitch/conf.db"))
        .context("read the database's log")?;
    let records = log.lines().filter(|line| {
        !line.starts_with("OVSDB JSON ") && !line.contains("\"_comment\":\"ovn-controller\\n")
    });
    Ok(records.map(str::to_owned).collect())
}

#[test]
fn row_09_32_adds_that_meet_a_restart_succeed_or_are_told_to_try_again() {
    row(9).within(Duration::from_secs(60)).test(|site| {
        let waiting_for_annotation =
            (0..16).map(|_| site.new_pod_without_annotation()).collect::<Result<Vec<_>>>()?;
        let ready = site.new_pods(16)?;
        let mut adds = site.start_adds(&waiting_for_annotation)?;
        site.are_waited_for(&waiting_for_annotation)?;
        adds.extend(site.start_adds(&ready)?);
        site.node.server.kill()?;
        site.node.start_server()?;
        waiting_for_annotation.iter().try_for_each(|pod| site.node.write_manifest(pod))?;
        for (add, pod) in adds.into_iter().zip(waiting_for_annotation.iter().chain(&ready)) {
            let outcome = add.wait()?;
            ensure!(outcome.duration < Duration::from_secs(30), "{outcome:?}");
            if !ended_well(site, pod, &outcome)? {
                // A failed ADD may be retried in the same sandbox.
                site.add(pod)?.success()?;
                site.one_port_of(pod)?;
                site.has_network(pod)?;
            }
        }
        Ok(())
    });
}

/// Checks an ADD that met a restart: it succeeded, with one port and a network, or failed with code
/// 11 ("try again") and left nothing. Returns whether it succeeded.
pub(crate) fn ended_well(site: &Site<'_>, pod: &Pod, outcome: &Outcome) -> Result<bool> {
    if outcome.status.success() {
        site.one_port_of(pod)?;
        site.has_network(pod)?;
        return Ok(true);
    }
    let error = outcome.failure()?;
    ensure!(error.code == 11, "{error:?}");
    if !error.msg.contains("left something behind") {
        site.nothing_of(pod)?;
    }
    Ok(false)
}
