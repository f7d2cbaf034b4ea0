//! GC removes what the runtime no longer knows, of one network only, also if one removal fails;
//! ADDs under way are protected.

use std::time::Duration;

use anyhow::{Result, ensure};
use contract::stage::Stage;
use integration::{
    Pod, eventually,
    faults::{SHORTLY, Site, row},
};
use nix::sys::signal::Signal;

use crate::support::{
    attached::{hold_back, let_go, manifest_with, start_waiting_add},
    second::Second,
    view::{is_on_node, link_on_node, ports_of},
};

/// The variable that a plugin with failpoints reads.
const FAILPOINT: &str = "OVN_CNI_FAILPOINT";
/// How many ADDs run at once: enough to be quick, too few to be a burst.
const AT_A_TIME: usize = 8;

#[test]
fn row_55_exactly_what_is_not_valid_goes_and_a_failure_with_one_does_not_keep_the_others() {
    row(55).within(Duration::from_secs(60)).test(|site| {
        let node = site.node;
        let blue = Second::create(site.lab, "blue")?;
        // 60 attachments of this network, 50 of them valid, with those of the bystanders.
        let others = [site.new_pod_without_annotation()?, site.new_pod_without_annotation()?];
        others.iter().try_for_each(|pod| blue.join(site.lab, node, pod))?;
        let refused = site.new_pod_without_annotation()?;
        node.write_manifest_text(
            &refused,
            &manifest_with(&refused, &[("kubernetes.io/ingress-bandwidth", "100M")]),
        )?;
        let killed = site.new_pod()?;
        let (mut valid, mut invalid) = (site.new_pods(47)?, site.new_pods(7)?);
        valid.push(others[0].clone());
        invalid.extend([others[1].clone(), refused.clone()]);
        attach(site, &[&valid[..], &invalid].concat())?;
        // An invalid sandbox and a valid one also have an interface of another network, which this
        // GC does not concern.
        others.iter().try_for_each(|pod| blue.runtime(node).add(pod)?.success().map(drop))?;
        // The tenth: its plugin was killed as soon as it had made the link.
        let outcome = node.runtime().call("ADD", Some(&killed)).env(FAILPOINT, "after:veth=kill").run()?;
        ensure!(
            outcome.stdout.is_empty() && !outcome.status.success(),
            "no failpoints; build them with: cargo build -p cni --features failpoints: {outcome:?}"
        );
        ensure!(
            is_on_node(node, &killed.host_interface()) && ports_of(node, &killed.sandbox)?.is_empty(),
            "it left something else"
        );
        invalid.push(killed);
        valid.extend(site.bystanders.clone());
        ensure!((valid.len(), invalid.len()) == (50, 10), "{} valid, {} not", valid.len(), invalid.len());
        // A foreign port without our mark. It shares the QoS row of an invalid attachment, so the
        // database refuses to delete that row.
        node.shell(&format!(
            "ip link add stranger type veth peer name stranger-peer
             ovs-vsctl add-port br-int stranger -- set Interface stranger external_ids:iface-id=stranger \
                 -- set Port stranger qos=$(ovs-vsctl get Port {} qos)",
            refused.host_interface()
        ))?;
        let theirs = node.census()?.lines_with("stranger").len();

        let outcome = node.runtime().gc(&valid.iter().collect::<Vec<_>>())?;

        let error = outcome.failure()?;
        ensure!(
            error.msg.contains("1 of the stale interfaces"),
            "it does not say that one is left: {error:?}"
        );
        ensure!(!ports_of(node, &refused.sandbox)?.is_empty(), "nothing was refused: {error:?}");
        for pod in invalid.iter().filter(|pod| pod.sandbox != refused.sandbox) {
            ensure!(!is_on_node(node, &pod.host_interface()), "the link of {} is still there", pod.name);
            let ports = ports_of(node, &pod.sandbox)?;
            ensure!(!ports.contains(&pod.host_interface()), "the port of {} is still there", pod.name);
        }
        valid
            .iter()
            .filter(|pod| pod.name != site.bystanders[0].name)
            .try_for_each(|pod| site.has_network(pod))?;
        ensure!(
            ports_of(node, &others[1].sandbox)?.len() == 1,
            "the other network's interface of an invalid sandbox is gone"
        );
        site.lab.ping(&others[0], blue.address(&others[1]))?;
        ensure!(node.census()?.lines_with("stranger").len() == theirs, "what is not ours is gone");

        // Now the last one can be removed.
        node.shell("ovs-vsctl clear Port stranger qos")?;
        node.runtime().gc(&valid.iter().collect::<Vec<_>>())?.success()?;
        site.nothing_of(&refused)?;

        // A GC of the other network, of which no attachment is valid any more.
        blue.runtime(node).gc(&[])?.success()?;
        for pod in &others {
            ensure!(
                blue.host_interface(node, pod).is_err(),
                "{} still has its interface of the other network",
                pod.name
            );
        }
        site.has_network(&others[0])?;
        node.shell("ovs-vsctl del-port br-int stranger; ip link del stranger").map(drop)
    });
}

fn attach(site: &Site<'_>, pods: &[Pod]) -> Result<()> {
    for some in pods.chunks(AT_A_TIME) {
        for add in site.start_adds(some)? {
            add.wait()?.success()?;
        }
    }
    Ok(())
}

/// GC while an ADD is under way whose sandbox is not in the runtime's list.
#[test]
fn row_56_an_add_under_way_is_protected_at_every_stage_and_what_it_leaves_when_it_dies_is_not() {
    row(56).within(Duration::from_secs(60)).test(|site| {
        let node = site.node;
        let valid: Vec<&Pod> = site.bystanders.iter().collect();
        for stage in Stage::ALL.into_iter().filter(|stage| *stage >= Stage::Veth) {
            for side in ["before", "after"] {
                if (stage, side) == (Stage::Veth, "before") {
                    // Nothing is there yet.
                    continue;
                }
                let place = format!("{side}:{stage}");
                let pod = site.new_pod()?;
                let mut adding = site
                    .patient_for(20)
                    .call("ADD", Some(&pod))
                    .env(FAILPOINT, format!("{place}=hang"))
                    .start()?;
                eventually(&format!("{place} has a link"), SHORTLY, || {
                    ensure!(is_on_node(node, &pod.host_interface()), "it has none");
                    Ok(())
                })?;
                let has_port = stage > Stage::Port || (stage, side) == (Stage::Port, "after");
                if has_port {
                    site.is_plugged(&pod)?;
                }
                node.runtime().gc(&valid)?.success()?;
                ensure!(!adding.has_ended()?, "{place}: the ADD has ended: {:?}", adding.wait()?);
                ensure!(is_on_node(node, &pod.host_interface()), "{place}: the link is gone");
                ensure!(
                    !has_port || ports_of(node, &pod.sandbox)?.len() == 1,
                    "{place}: the port is gone"
                );

                adding.signal(Signal::SIGKILL)?;
                adding.wait()?;
                node.runtime().gc(&valid)?.success()?;
                site.nothing_of(&pod)?;
            }
        }
        Ok(())
    });
}

#[test]
fn row_56_with_an_empty_list_all_that_is_attached_goes_and_an_add_that_waits_for_ovn_succeeds() {
    row(56).traffic_may_stop().test(|site| {
        let node = site.node;
        let pod = site.new_pod()?;
        let links: Vec<String> = site.bystanders.iter().map(Pod::host_interface).collect();
        let addresses = links
            .iter()
            .map(|link| Ok(link_on_node(node, link)?["address"].clone()))
            .collect::<Result<Vec<_>>>()?;
        hold_back(site.lab, &pod)?;
        let adding = start_waiting_add(node, &pod)?;

        node.runtime().gc(&[])?.success()?;

        site.bystanders.iter().try_for_each(|pod| site.nothing_of(pod))?;
        site.bystanders.iter().try_for_each(|pod| site.add(pod)?.success().map(drop))?;
        // The host's end of a veth gets a random MAC address: restore it, since all else must be as
        // before.
        for (link, address) in links.iter().zip(&addresses) {
            node.run(["ip", "link", "set", link, "address", address.as_str().unwrap_or_default()])?;
        }
        let_go(site.lab, &pod)?;
        adding.wait()?.success()?;
        site.one_port_of(&pod)?;
        site.has_network(&pod)
    });
}
