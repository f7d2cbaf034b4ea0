//! kill -9 at every place of an ADD: the places are enumerated, not chosen.

use anyhow::{Context as _, Result, ensure};
use contract::stage::Stage;
use integration::{
    Pod,
    faults::{Site, failpoint, row},
};

/// Every place of a wanted stage at which the plugin can be killed, each with a pod.
fn pods_to_kill(
    site: &Site<'_>,
    wanted: impl Fn(Stage, &str) -> bool,
) -> Result<Vec<(String, Pod)>> {
    failpoint::install(site.node)?;
    let places: Vec<String> = failpoint::places()
        .filter(|(stage, place)| wanted(*stage, place))
        .map(|(_, place)| place)
        .collect();
    ensure!(!places.is_empty(), "no place is enumerated");
    let pods = site.new_pods(places.len())?;
    Ok(places.into_iter().zip(pods).collect())
}

fn killed_at(site: &Site<'_>, place: &str, pod: &Pod) -> Result<()> {
    let outcome = site.add_with(&format!("{place}=kill"), pod).run()?;
    ensure!(outcome.status.code().is_none(), "it was not killed: {outcome:?}");
    Ok(())
}

/// Kills a plugin at each of these places, checks what it has left, and continues as the runtime
/// does.
fn each_killed(
    site: &Site<'_>,
    wanted: impl Fn(Stage, &str) -> bool,
    left: impl Fn(&Pod) -> Result<()>,
) -> Result<()> {
    for (place, pod) in &pods_to_kill(site, wanted)? {
        let check = || -> Result<()> {
            killed_at(site, place, pod)?;
            left(pod)?;
            del_and_the_next_sandbox_work(site, pod)
        };
        check().with_context(|| format!("killed at {place}"))?;
    }
    Ok(())
}

/// The runtime's DEL removes all of it, and the pod's next sandbox gets its network.
fn del_and_the_next_sandbox_work(site: &Site<'_>, pod: &Pod) -> Result<()> {
    site.del(pod)?.success()?;
    site.nothing_of(pod)?;
    let next = site.adopt(pod.next_sandbox())?;
    site.add(&next)?.success()?;
    site.one_port_of(&next)?;
    site.has_network(&next)
}

/// Whether an ADD has made nothing yet when it arrives at this place: the veth is the first thing
/// that it makes.
fn before_the_link(stage: Stage, place: &str) -> bool {
    stage < Stage::Veth || place == "before:veth"
}

#[test]
fn row_05_a_plugin_that_is_killed_before_it_made_anything_leaves_nothing() {
    row(5).test(|site| each_killed(site, before_the_link, |pod| site.nothing_of(pod)));
}

#[test]
fn row_05_a_server_that_is_killed_before_it_answered_leaves_nothing() {
    row(5).test(|site| {
        let pod = site.new_pod_without_annotation()?;
        // Without an annotation the ADD waits for the server's answer, which never comes.
        let add = site.start_add_within(20, &pod)?;
        site.are_waited_for(std::slice::from_ref(&pod))?;
        site.node.server.kill()?;
        site.failed(&pod, &add.wait()?, 11, &["stage annotation"])?;
        site.node.start_server()?;
        site.node.write_manifest(&pod)?;
        del_and_the_next_sandbox_work(site, &pod)
    });
}

/// A plugin that is killed at one of these places has left something, and the runtime's DEL removes
/// it.
fn each_killed_leaves_what_del_removes(
    site: &Site<'_>,
    wanted: impl Fn(Stage, &str) -> bool,
) -> Result<()> {
    each_killed(site, wanted, |pod| {
        ensure!(
            site.nothing_of(pod).is_err(),
            "nothing is left: it was killed before it did anything"
        );
        Ok(())
    })
}

#[test]
fn row_06_a_plugin_that_is_killed_between_link_and_port_leaves_what_del_removes() {
    row(6).test(|site| {
        let between = |stage: Stage, place: &str| {
            !before_the_link(stage, place) && (stage < Stage::Port || place == "before:port")
        };
        each_killed_leaves_what_del_removes(site, between)
    });
}

#[test]
fn row_07_a_plugin_that_is_killed_behind_its_commit_leaves_what_del_removes() {
    row(7).test(|site| {
        let after_the_commit =
            |stage: Stage, place: &str| stage > Stage::Port || place == "after:port";
        each_killed_leaves_what_del_removes(site, after_the_commit)
    });
}

#[test]
fn row_07_a_pod_whose_plugin_and_server_were_killed_at_the_end_keeps_its_network() {
    row(7).test(|site| {
        failpoint::install(site.node)?;
        let pod = site.new_pod()?;
        killed_at(site, "before:result", &pod)?;
        site.has_network(&pod)?;
        site.node.server.kill()?;
        site.node.start_server()?;
        site.until_healthy()?;
        site.one_port_of(&pod)?;
        site.has_network(&pod)
    });
}

#[test]
fn row_07_adds_that_have_their_port_do_not_need_the_server_any_more() {
    row(7).test(|site| {
        let pods = site.new_pods(5)?;
        site.node.ovn_controller.pause()?;
        let adds = site.start_adds(&pods)?;
        pods.iter().try_for_each(|pod| site.has_ofport(pod))?;
        site.node.server.kill()?;
        site.node.ovn_controller.resume()?;
        adds.into_iter().try_for_each(|add| add.wait()?.success().map(drop))?;
        pods.iter().try_for_each(|pod| site.has_network(pod))?;
        site.node.start_server()
    });
}
