//! Several calls for one pod or one sandbox: the newest sandbox has the port, one call at a time
//! works on an interface, DEL wins.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Outcome, Pod,
    faults::{AT_ONCE, SHORTLY, Site, row},
    runtime::Running,
};

/// Starts an ADD and returns once it only waits for OVN.
fn start_add_until_it_has_its_port(site: &Site<'_>, pod: &Pod) -> Result<Running> {
    let add = site.node.runtime().call("ADD", Some(pod)).start()?;
    site.has_ofport(pod)?;
    Ok(add)
}

/// Lets OVN install this pod's flows on this chassis only.
fn request_chassis(site: &Site<'_>, pod: &Pod, chassis: &str) -> Result<()> {
    let option = format!("options:requested-chassis={chassis}");
    site.lab
        .central
        .nbctl(["--wait=hv", "set", "Logical_Switch_Port", &pod.port(), &option])
        .map(drop)
}

// --- 33
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_33_an_add_that_waits_for_its_annotation_gives_way_to_a_newer_sandbox() {
    row(33).test(|site| {
        let old = site.new_pod_without_annotation()?;
        let new = site.adopt(old.next_sandbox())?;
        let first = site.node.runtime().call("ADD", Some(&old)).start()?;
        site.are_waited_for(std::slice::from_ref(&old))?;
        let second = site.node.runtime().call("ADD", Some(&new)).start()?;
        site.node.write_manifest(&old)?;
        let outcomes = [first.wait()?, second.wait()?];
        // Two ADDs that begin at the same moment race for the port: one at least succeeds, and one
        // that fails says why.
        let [first_won, second_won] = outcomes.each_ref().map(|outcome| outcome.status.success());
        ensure!(first_won || second_won, "neither succeeded: {outcomes:?}");
        for outcome in outcomes.iter().filter(|outcome| !outcome.status.success()) {
            let error = outcome.failure()?;
            ensure!([11, 106].contains(&error.code), "{error:?}");
        }
        site.one_port_of(&old)?;
        // DEL of the old sandbox removes nothing of the new one.
        site.del(&old)?.success()?;
        if !second_won {
            site.add(&new)?.success().context("the newer sandbox, asked again")?;
        } else if site.nothing_of(&new).is_ok() {
            // The old sandbox wrote the port last, took it over, and was deleted: to the runtime,
            // the pod has no network.
            site.node
                .runtime()
                .check(&new, &outcomes[1].success()?)?
                .failure()
                .context("CHECK has to notice that the port is gone")?;
            site.del(&new)?.success()?;
            site.add(&new)?.success()?;
        }
        site.has_network(&new)
    });
}

/// Flows can be missing in two ways: OVN wants the port elsewhere, or ovn-controller does nothing.
#[test]
fn row_33_an_add_that_waits_for_its_flows_gives_way_to_a_newer_sandbox_at_once() {
    row(33).traffic_may_stop().test(|site| {
        let node = site.node;
        for reason in ["the port is wanted elsewhere", "ovn-controller is paused"] {
            let old = site.new_pod()?;
            let new = site.adopt(old.next_sandbox())?;
            let elsewhere = reason.contains("elsewhere");
            if elsewhere {
                request_chassis(site, &old, "elsewhere")?
            } else {
                node.ovn_controller.pause()?
            }

            let first = start_add_until_it_has_its_port(site, &old)?;
            let began = Instant::now();
            let mut second = start_add_until_it_has_its_port(site, &new)?;
            let error = first.wait()?.failure().context(reason)?;
            ensure!(
                error.code == 106 && error.msg.contains(&old.host_interface()),
                "{reason}: {error:?}"
            );
            ensure!(
                began.elapsed() < SHORTLY,
                "{reason}: the older ADD went on for {:?}",
                began.elapsed()
            );
            site.nothing_of(&old).context(reason)?;
            ensure!(!second.has_ended()?, "{reason}: the newer ADD did not wait");

            if elsewhere {
                request_chassis(site, &new, &new.node)?
            } else {
                node.ovn_controller.resume()?
            }
            second.wait()?.success().context(reason)?;
            site.has_network(&new)?;
            site.del(&old)?.success()?;
            site.one_port_of(&new).context(reason)?;
            site.has_network(&new)?;
        }
        Ok(())
    });
}

#[test]
fn row_33_a_newer_sandbox_takes_the_port_of_an_attached_one_and_the_end_of_that_leaves_it_alone() {
    row(33).test(|site| {
        let old = site.attached_pod()?;
        let new = site.adopt(old.next_sandbox())?;
        let attached = site.add(&new)?.success()?;
        site.one_port_of(&new)?;
        site.has_network(&new)?;
        for _ in 0..2 {
            site.del(&old)?.success()?;
            site.nothing_of(&old)?;
            site.has_network(&new)?;
        }
        site.node.runtime().check(&new, &attached)?.success().map(drop)
    });
}

// --- 34
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_34_del_ends_an_add_that_waits_for_its_flows_and_leaves_nothing() {
    row(34).traffic_may_stop().test(|site| {
        let pod = site.new_pod()?;
        let before = site.node.census()?;
        site.node.ovn_controller.pause()?;
        let waiting = start_add_until_it_has_its_port(site, &pod)?;
        let outcome = site.del(&pod)?;
        outcome.success()?;
        ensure!(outcome.duration < AT_ONCE, "DEL took {:?}", outcome.duration);
        before.must_equal(&site.node.census()?).context("when DEL has returned")?;
        let error = waiting.wait()?.failure()?;
        ensure!(error.code == 3, "{error:?}");
        site.node.ovn_controller.resume()?;
        // Even when OVN is ready, nothing appears.
        site.lab.central.sync()?;
        before.must_equal(&site.node.census()?).context("when OVN has caught up")
    });
}

#[test]
fn row_34_del_ends_an_add_that_waits_for_its_annotation_and_nothing_comes_afterwards() {
    row(34).test(|site| {
        let pod = site.new_pod_without_annotation()?;
        let before = site.node.census()?;
        let waiting = site.node.runtime().call("ADD", Some(&pod)).start()?;
        site.are_waited_for(std::slice::from_ref(&pod))?;
        let outcome = site.del(&pod)?;
        outcome.success()?;
        ensure!(outcome.duration < AT_ONCE, "DEL took {:?}", outcome.duration);
        let ended = waiting.wait()?;
        let error = ended.failure()?;
        ensure!(
            error.code == 3 && ended.duration < SHORTLY,
            "after {:?}: {error:?}",
            ended.duration
        );
        // The annotation comes after the ADD has ended.
        site.node.write_manifest(&pod)?;
        site.lab.central.sync()?;
        before.must_equal(&site.node.census()?)
    });
}

#[test]
fn row_34_add_and_del_of_one_sandbox_may_overlap_in_any_way() {
    row(34).within(Duration::from_secs(60)).test(|site| {
        let node = site.node;
        let mut pod = site.new_pod()?;
        let mut outcomes = BTreeMap::<&str, u32>::new();
        for round in 0..30 {
            pod = site.adopt(pod.next_sandbox())?;
            let with_namespace = node.census()?;
            let adding = node.runtime().call("ADD", Some(&pod)).start()?;
            // Each process takes some milliseconds, so over the rounds DEL meets every stage of the
            // ADD.
            (0..round % 10).try_for_each(|_| node.run(["true"]).map(drop))?;
            let deleting = node.runtime().call("DEL", Some(&pod)).start()?;
            deleting.wait()?.success().with_context(|| format!("round {round}"))?;
            let added = adding.wait()?;
            if added.status.success() {
                *outcomes.entry("ADD was the first or the last").or_default() += 1;
                site.del(&pod)?.success()?;
            } else {
                *outcomes.entry("DEL has ended the ADD").or_default() += 1;
                added.failure()?;
            }
            with_namespace
                .must_equal(&node.census()?)
                .with_context(|| format!("round {round}, {added:?}"))?;
        }
        println!("{outcomes:?}");
        Ok(())
    });
}

// --- 35
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_35_of_a_hundred_adds_of_one_interface_at_once_exactly_one_succeeds() {
    row(35).within(Duration::from_secs(60)).test(|site| {
        let pod = site.new_pod()?;
        let runtime = site.node.runtime();
        let running = (0..100)
            .map(|_| runtime.call("ADD", Some(&pod)).start())
            .collect::<Result<Vec<_>>>()?;
        let outcomes = running.into_iter().map(Running::wait).collect::<Result<Vec<Outcome>>>()?;
        let (winners, losers): (Vec<_>, Vec<_>) =
            outcomes.iter().partition(|outcome| outcome.status.success());
        ensure!(winners.len() == 1, "{} of {} succeeded", winners.len(), outcomes.len());
        for outcome in losers {
            let error = outcome.failure()?;
            ensure!(error.code == 101, "{error:?}");
        }
        // The rollback of the losing ADDs must not undo the winner's work.
        site.one_port_of(&pod)?;
        site.has_network(&pod)?;
        runtime.check(&pod, &winners[0].success()?)?.success().map(drop)
    });
}

/// The sandboxes of one pod race; exactly one of them has the port in the end.
#[test]
fn row_35_of_several_sandboxes_of_one_pod_at_once_one_has_the_port_in_the_end() {
    row(35).test(|site| {
        let mut sandboxes = vec![site.new_pod()?];
        for _ in 0..3 {
            sandboxes.push(site.adopt(sandboxes[sandboxes.len() - 1].next_sandbox())?);
        }
        let running = site.start_adds(&sandboxes)?;
        let outcomes = running.into_iter().map(Running::wait).collect::<Result<Vec<Outcome>>>()?;
        ensure!(
            outcomes.iter().any(|outcome| outcome.status.success()),
            "none has succeeded: {outcomes:?}"
        );
        for outcome in outcomes.iter().filter(|outcome| !outcome.status.success()) {
            let error = outcome.failure()?;
            ensure!([11, 106].contains(&error.code), "{error:?}");
        }
        let census = site.node.census()?;
        let owners: Vec<&Pod> =
            sandboxes.iter().filter(|pod| !census.lines_with(&pod.sandbox).is_empty()).collect();
        ensure!(
            owners.len() == 1,
            "{} sandboxes have a port of the same name:\n{census}",
            owners.len()
        );
        site.has_network(owners[0])?;
        for other in sandboxes.iter().filter(|pod| pod.sandbox != owners[0].sandbox) {
            site.del(other)?.success()?;
        }
        site.has_network(owners[0])
    });
}
