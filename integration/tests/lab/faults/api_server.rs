//! The API server is away, refuses, or breaks off. It is a real one, behind a proxy that behaves as
//! a faulty network or an overloaded server.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Lab, Pod,
    api_proxy::{Answer, Fault, Of},
    eventually,
    faults::{AT_ONCE, Kubernetes, Site, row},
};
use serde_json::{Value, json};

use crate::faults::{keeper, memory};

mod all_databases;
mod status;
mod unreadable;

/// The limit for what takes a moment on an idle machine: the test machine has other work, too.
const SOON: Duration = Duration::from_secs(15);

// --- 25
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_25_without_an_api_server_at_its_start_del_check_and_status_are_answered_and_add_tells_to_try_again()
 {
    Lab::of_nodes(1).test(|lab| {
        let kubernetes = Kubernetes::start(lab)?;
        row(25).within(Duration::from_secs(120)).hold_in(lab, |site| {
            let node = site.node;
            let [kept, gone, new] = [site.new_pod()?, site.new_pod()?, site.new_pod()?];
            let result = site.add(&kept)?.success()?;
            site.add(&gone)?.success()?;
            node.server.stop()?;
            node.forget_server()?;
            kubernetes.proxy.go_away();
            node.start_server()?;

            eventually("STATUS knows the reason", SOON, || {
                let outcome = node.runtime().status()?;
                let error = outcome.failure()?;
                ensure!(error.code == 50 && error.msg.contains("Connection refused"), "{error:?}");
                ensure!(
                    outcome.duration < Duration::from_secs(1),
                    "STATUS took {:?}",
                    outcome.duration
                );
                Ok(())
            })?;
            node.runtime().check(&kept, &result)?.success().context("CHECK")?;
            site.del(&gone)?.success().context("DEL")?;
            site.nothing_of(&gone)?;
            let outcome = site.add_within(20, &new)?;
            site.failed(
                &new,
                &outcome,
                11,
                &["is not known on this node", "Connection refused", &new.name],
            )?;
            ensure!(outcome.duration < SOON, "it went on for {:?}", outcome.duration);

            // This ADD still waits when the API server comes back.
            let waiting = site.start_add_within(40, &new)?;
            kubernetes.proxy.come_back()?;
            site.until_healthy()?;
            if let Err(early) = waiting.wait()?.success() {
                // The ADD ended before the server retried the API server.
                ensure!(early.to_string().contains("\"code\":11"), "{early}");
                site.add(&new)?.success()?;
            }
            site.has_network(&new)?;
            site.has_network(&kept)
        })
    });
}

// --- 26
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_26_an_api_server_that_goes_away_later_is_missed_only_by_pods_that_nobody_knows() {
    Lab::of_nodes(1).test(|lab| {
        let kubernetes = Kubernetes::start(lab)?;
        row(26).within(Duration::from_secs(120)).hold_in(lab, |site| {
            let [known, waited_for] = [site.new_pod()?, site.new_pod_without_annotation()?];
            // Once the ADD of the last pod is answered, the server knows the others, too: the
            // events of a watch come in order.
            let last = site.new_pod()?;
            site.add(&last)?.success()?;
            let waiting = site.start_add_within(40, &waited_for)?;
            site.are_waited_for(std::slice::from_ref(&waited_for))?;

            kubernetes.proxy.go_away();
            let outcome = site.add(&known)?;
            outcome.success().context("a pod that is known")?;
            ensure!(outcome.duration < AT_ONCE, "a pod that is known took {:?}", outcome.duration);
            site.has_network(&known)?;
            site.del(&last)?.success()?;

            // The server can learn of neither change.
            let unknown = site.new_pod()?;
            site.node.write_manifest(&waited_for)?;
            let outcome = site.add_within(20, &unknown)?;
            site.failed(&unknown, &outcome, 11, &["is not known on this node"])?;
            ensure!(outcome.duration < SOON, "it went on for {:?}", outcome.duration);

            let back = Instant::now();
            kubernetes.proxy.come_back()?;
            waiting
                .wait()?
                .success()
                .context("the annotation came while the API server was away")?;
            site.has_network(&waited_for)?;
            site.add(&unknown)?.success()?;
            site.has_network(&unknown)?;
            let (lists, watches) = (
                kubernetes.proxy.count(&Of::Lists, back),
                kubernetes.proxy.count(&Of::Watches, back),
            );
            ensure!(
                lists == 0 && watches >= 1,
                "the watch should go on where it was: {lists} lists, {watches} watches"
            );
            site.until_healthy()
        })
    });
}

// --- 27
// ----------------------------------------------------------------------------------------------------

/// A way in which a watch fails while an ADD waits for its annotation.
struct Failure {
    what: &'static str,
    /// The faults, each with the number of requests that it meets.
    faults: fn() -> Vec<(usize, Of, Fault)>,
    /// The least time between a refused request and the next one.
    pause: Duration,
    /// Whether the server has to list everything again.
    lists: bool,
}

const GONE: &str = "too old resource version: 1 (2)";

const FAILURES: &[Failure] = &[
    Failure {
        what: "a connection that ends",
        faults: Vec::new,
        pause: Duration::ZERO,
        lists: false,
    },
    Failure {
        what: "410 as status",
        faults: || vec![(1, Of::Watches, Fault::Answer(Answer::failure(410, "Expired", GONE, "")))],
        pause: Duration::ZERO,
        lists: true,
    },
    Failure {
        what: "410 as event",
        faults: || {
            vec![(1, Of::Watches, Fault::Answer(Answer::failing_watch(410, "Expired", GONE)))]
        },
        pause: Duration::ZERO,
        lists: true,
    },
    Failure {
        what: "410, and a list that ends in the middle of a chunk",
        faults: || {
            let gone = Fault::Answer(Answer::failure(410, "Expired", GONE, ""));
            vec![(1, Of::Watches, gone), (1, Of::Lists, Fault::Truncate)]
        },
        pause: Duration::ZERO,
        lists: true,
    },
    Failure {
        what: "429 with Retry-After",
        faults: || {
            let busy = Answer::failure(
                429,
                "TooManyRequests",
                "the server has received too many requests",
                "Retry-After: 1\r\n",
            );
            vec![(2, Of::Watches, Fault::Answer(busy))]
        },
        pause: Duration::from_millis(900),
        lists: false,
    },
    Failure {
        what: "500",
        faults: || {
            vec![(
                3,
                Of::Watches,
                Fault::Answer(Answer::failure(
                    500,
                    "InternalError",
                    "etcdserver: leader changed",
                    "",
                )),
            )]
        },
        pause: Duration::from_millis(20),
        lists: false,
    },
    Failure {
        what: "connections that end at once",
        faults: || vec![(3, Of::Watches, Fault::HangUp)],
        pause: Duration::from_millis(20),
        lists: false,
    },
];

/// While an ADD waits, the watch ends and fails, and the annotation is written meanwhile: the
/// server must see it.
fn nothing_is_lost(
    site: &Site<'_>,
    kubernetes: &Kubernetes,
    Failure { what: _, faults, pause, lists }: &Failure,
) -> Result<()> {
    let proxy = &kubernetes.proxy;
    let pod = site.new_pod_without_annotation()?;
    let waiting = site.start_add_within(40, &pod)?;
    site.are_waited_for(std::slice::from_ref(&pod))?;
    let began = Instant::now();
    faults().into_iter().for_each(|(times, of, fault)| proxy.inject_times(times, of, fault));
    let again = |limit| {
        eventually("the watch is begun again", limit, || {
            ensure!(proxy.count(&Of::Watches, began) > 0, "it is not");
            Ok(())
        })
    };
    proxy.cut();
    // A watch that was just being begun is not cut by the first attempt, and meets no fault.
    again(AT_ONCE).or_else(|_| {
        proxy.cut();
        again(SOON)
    })?;
    site.node.write_manifest(&pod)?;
    waiting.wait()?.success()?;
    site.has_network(&pod)?;

    let (listed, watched) = (proxy.count(&Of::Lists, began), proxy.count(&Of::Watches, began));
    ensure!((listed > 0) == *lists, "{listed} lists");
    ensure!(listed + watched <= 10, "a storm of requests: {listed} lists, {watched} watches");
    let refused = faults()
        .iter()
        .filter(|(_, of, _)| *of == Of::Watches)
        .map(|(times, ..)| times)
        .sum::<usize>();
    let watches: Vec<Instant> = proxy
        .asked()
        .iter()
        .filter(|asked| asked.at >= began && asked.is(&Of::Watches))
        .map(|asked| asked.at)
        .collect();
    // All together: on a busy machine a request may arrive later than the one after it. Without
    // pauses these are some milliseconds.
    let pauses: Vec<Duration> =
        watches.windows(2).take(refused).map(|pair| pair[1] - pair[0]).collect();
    let least = *pause * u32::try_from(pauses.len())?;
    ensure!(pauses.iter().sum::<Duration>() >= least, "asked again after {pauses:?}");
    proxy.heal();
    site.del(&pod)?.success()?;
    site.node.remove_manifest(&pod)
}

#[test]
fn row_27_a_watch_that_fails_loses_no_change_and_is_begun_again_after_a_pause() {
    Lab::of_nodes(1).test(|lab| {
        let kubernetes = Kubernetes::start(lab)?;
        row(27).within(Duration::from_secs(120)).hold_in(lab, |site| {
            FAILURES.iter().try_for_each(|failure| {
                nothing_is_lost(site, &kubernetes, failure).context(failure.what)
            })
        })
    });
}

#[test]
fn row_27_an_event_that_is_cut_in_its_middle_is_told_again() {
    Lab::of_nodes(1).test(|lab| {
        let kubernetes = Kubernetes::start(lab)?;
        row(27).within(Duration::from_secs(120)).hold_in(lab, |site| {
            for round in 0..3 {
                let pod = site.new_pod_without_annotation()?;
                let waiting = site.start_add_within(40, &pod)?;
                site.are_waited_for(std::slice::from_ref(&pod))?;
                let began = Instant::now();
                kubernetes.proxy.truncate_next_event();
                site.node.write_manifest(&pod)?;
                waiting.wait()?.success().with_context(|| format!("round {round}"))?;
                site.has_network(&pod)?;
                let watches = kubernetes.proxy.count(&Of::Watches, began);
                ensure!(
                    (1..=5).contains(&watches),
                    "round {round}: the watch was begun again {watches} times"
                );
                kubernetes.proxy.heal();
            }
            Ok(())
        })
    });
}

// --- 28
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_28_a_token_that_is_refused_is_read_again_and_the_request_repeated_at_once() {
    Lab::of_nodes(1).test(|lab| {
        let kubernetes = Kubernetes::start(lab)?;
        row(28).within(Duration::from_secs(120)).hold_in(lab, |site| {
            let proxy = &kubernetes.proxy;
            let old = kubernetes.token()?;
            let new = kubernetes.rotate_token()?;
            ensure!(
                proxy.count(&Of::Token(old.clone()), Instant::now() - SOON) > 0,
                "the server does not use the token"
            );
            proxy.inject(
                Of::Token(old.clone()),
                Fault::Answer(Answer::failure(401, "Unauthorized", "Unauthorized", "")),
            );
            let began = Instant::now();
            proxy.cut();
            let pod = site.new_pod()?;
            let outcome = site.add_within(30, &pod)?;
            outcome.success()?;
            site.has_network(&pod)?;

            let asked = proxy.asked();
            let since = || asked.iter().filter(|asked| asked.at >= began);
            let refused: Vec<_> = since().filter(|asked| asked.token == old).collect();
            let first = refused.first().context(
                "no request carried the old token: the new one was read before it was refused",
            )?;
            let next = since()
                .find(|asked| asked.token == new && asked.path == first.path)
                .context("what was refused was not repeated")?;
            ensure!(
                next.at - first.at < Duration::from_secs(1),
                "repeated after {:?}",
                next.at - first.at
            );
            // Each kind of request under way may be refused once.
            ensure!(
                refused.len() <= 8,
                "asked {} times with a token that is refused",
                refused.len()
            );
            let log = site.node.server_log()?;
            ensure!(log.contains("reloaded API server credentials"), "{log}");
            ensure!(!log.contains(&old) && !log.contains(&new), "a token is in the log");
            site.until_healthy()
        })
    });
}

// --- 31
// ----------------------------------------------------------------------------------------------------

/// The events about a pod, as `kubectl events` shows them.
fn events(kubernetes: &Kubernetes, pod: &Pod) -> Result<Vec<Value>> {
    let list = kubernetes.api.read("/apis/events.k8s.io/v1/namespaces/lab/events")?;
    let events = list["items"].as_array().cloned().unwrap_or_default();
    Ok(events.into_iter().filter(|event| event["regarding"]["name"] == pod.name.as_str()).collect())
}

#[test]
fn row_31_the_owner_of_a_pod_with_a_bad_annotation_is_told_once() {
    Lab::of_nodes(1).test(|lab| {
        let kubernetes = Kubernetes::start(lab)?;
        row(31).within(Duration::from_secs(120)).hold_in(lab, |site| {
            let pod = site.new_pod_without_annotation()?;
            let mut annotation = pod.annotation();
            annotation["default"]["mac_address"] = json!("01:00:5e:00:00:01");
            let waiting = site.start_add_within(40, &pod)?;
            site.are_waited_for(std::slice::from_ref(&pod))?;
            site.node.write_manifest_text(&pod, &pod.manifest(Some(&annotation)))?;
            site.failed(&pod, &waiting.wait()?, 100, &["01:00:5e:00:00:01"])?;
            // A kubelet would retry as often within some seconds.
            for _ in 0..4 {
                site.failed(&pod, &site.add(&pod)?, 100, &["01:00:5e:00:00:01"])?;
            }
            let told = eventually("the pod has an event", SOON, || {
                let events = events(&kubernetes, &pod)?;
                let failed: Vec<&Value> =
                    events.iter().filter(|event| event["reason"] == "NetworkFailed").collect();
                ensure!(!failed.is_empty(), "{events:#?}");
                Ok(format!("{failed:#?}"))
            })?;
            ensure!(
                told.contains("01:00:5e:00:00:01")
                    && told.contains("\"type\": String(\"Warning\")"),
                "{told}"
            );
            let count = events(&kubernetes, &pod)?
                .iter()
                .filter(|event| event["reason"] == "NetworkFailed")
                .count();
            ensure!(count == 1, "{count} events for one cause");
            Ok(())
        })
    });
}

// --- 46
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_46_with_40_mb_for_500_pods_of_an_api_server_the_server_attaches_detaches_and_puts_back() {
    Lab::of_nodes(1).v4_prefix_len(20).test(|lab| {
        let _kubernetes = Kubernetes::start(lab)?;
        row(46).traffic_may_stop().within(memory::LIMIT).hold_in(lab, memory::is_enough)
    });
}

// --- 75
// ----------------------------------------------------------------------------------------------------

/// Writes this address into the Node's status, as the kubelet does.
fn node_has_address(kubernetes: &Kubernetes, node: &str, address: &str) -> Result<()> {
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
    kubernetes.api.patch(&format!("/api/v1/nodes/{node}/status"), &status).map(drop)
}

#[test]
fn row_75_pods_of_another_nodes_name_or_cluster_are_not_believed_to_be_gone_and_those_of_ones_own_are()
 {
    Lab::of_nodes(1).test(|lab| {
        let kubernetes = Kubernetes::start(lab)?;
        let mut last = Vec::new();
        row(75).traffic_may_stop().within(Duration::from_secs(180)).hold_in(lab, |site| {
            let node = site.node;
            let pod = site.attached_pod()?;
            let pods = [pod.clone(), site.bystanders[0].clone(), site.bystanders[1].clone()];
            let usual = node.server.arguments();
            let restart_as = |name: &str| -> Result<()> {
                let others =
                    usual.iter().filter(|argument| !argument.starts_with("--init-node=")).cloned();
                let own = [
                    format!("--init-node={name}"),
                    "--stale-after=1".to_owned(),
                    keeper::healthz_option(),
                ];
                node.server.stop()?;
                node.server.set_arguments(others.chain(own));
                node.start_server()
            };

            // What another host has published, and what the cluster manager has given to it.
            let annotations = json!({
                "k8s.ovn.org/node-chassis-id": "6b1c4a3e-0000-4000-8000-000000000009",
                "k8s.ovn.org/host-cidrs": "[\"203.0.113.9/24\"]",
                "k8s.ovn.org/node-subnets": "{\"default\":[\"10.244.99.0/24\"]}",
            });
            let port = || {
                node.vsctl([
                    "--if-exists",
                    "get",
                    "Interface",
                    "ovn-k8s-mp0",
                    "external_ids:iface-id",
                ])
            };
            let port_before = port()?;
            // First the name of a node that does not exist, then that of another host.
            for name in ["no-such-node", "another-node"] {
                restart_as(name)?;
                eventually("/readyz says what is suspected", SOON, || {
                    let answer = keeper::readyz(site)?;
                    ensure!(
                        answer.contains("3 attached pods are said to be gone, 0 are known"),
                        "{answer}"
                    );
                    Ok(())
                })?;
                if name == "another-node" {
                    eventually("/readyz says whose node it is", SOON, || {
                        let answer = keeper::readyz(site)?;
                        ensure!(answer.contains("it seems to be another host's node"), "{answer}");
                        Ok(())
                    })?;
                }
                keeper::nothing_is_removed(site, &pods)?;
                if name == "no-such-node" {
                    let other = json!({
                        "apiVersion": "v1", "kind": "Node",
                        "metadata": {"name": "another-node", "annotations": annotations},
                    });
                    kubernetes.api.create("/api/v1/nodes", &other)?;
                    node_has_address(&kubernetes, "another-node", "203.0.113.9")?;
                }
            }
            let events = kubernetes.api.read("/apis/events.k8s.io/v1/events")?;
            ensure!(events.to_string().contains("PodsDoubtful"), "{events:#}");
            // The server had the time to write: it has looked at the pods twice meanwhile.
            let other = kubernetes.api.read("/api/v1/nodes/another-node")?;
            ensure!(
                other["metadata"]["annotations"] == annotations,
                "written to another host's node: {:#}",
                other["metadata"]["annotations"]
            );
            let port_now = port()?;
            ensure!(
                port_now == port_before,
                "the management port is {port_now}, and was {port_before}"
            );
            let log = node.server_log()?;
            ensure!(log.contains("it seems to be another host's node"), "{log}");

            let address = node.run(["ip", "-br", "-4", "address", "show", "scope", "global"])?;
            let address = address
                .split_whitespace()
                .find_map(|word| word.split_once('/'))
                .context("the node has an address")?
                .0;
            node_has_address(&kubernetes, &node.name, address)?;
            restart_as(&node.name)?;
            keeper::nothing_is_removed(site, &pods)?;
            last = site.bystanders.to_vec();
            node.server.stop()?;
            node.server.set_arguments(usual.clone());
            node.start_server()
        })?;

        // The node is drained: its last pods are really deleted, and no DEL came for them.
        let node = &lab.nodes[0];
        node.server.stop()?;
        node.server.set_arguments(
            node.server.arguments().into_iter().chain(["--stale-after=1".to_owned()]),
        );
        node.start_server()?;
        last.iter().try_for_each(|pod| node.remove_manifest(pod))?;
        // The server looks for leftovers at the next event of a row or link, or half a minute
        // later: cause an event.
        node.vsctl(["--no-wait", "del-port", "br-int", &last[0].host_interface()])?;
        eventually("what is left of the last pods is removed", SOON, || {
            let census = node.census()?;
            let left: Vec<_> =
                last.iter().flat_map(|pod| census.lines_with(&pod.host_interface())).collect();
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
    });
}
