//! Names that are taken, and a namespace that vanishes during an ADD.

use anyhow::{Context as _, Result, ensure};
use integration::{
    Census, Node, Pod, eventually,
    faults::{SHORTLY, Site, at_once, row},
};

/// The links of the pod's namespace, with flags and addresses.
fn links_of(node: &Node, pod: &Pod) -> Result<String> {
    node.run_in_pod(pod, ["sh", "-euc", "ip -brief link show; ip -brief address show scope global"])
}

/// A census that is stable: a link that has just come up is up in it.
fn settled_census(node: &Node) -> Result<Census> {
    eventually("the census stays the same", SHORTLY, || {
        let (first, second) = (node.census()?, node.census()?);
        first.must_equal(&second)?;
        Ok(second)
    })
}

/// The same pod comes and goes in its next sandbox without trouble.
fn next_sandbox_works(site: &Site<'_>, pod: &Pod) -> Result<()> {
    let next = site.adopt(pod.next_sandbox())?;
    site.add(&next)?.success()?;
    site.has_network(&next)?;
    site.del(&next)?.success().map(drop)
}

// --- 36
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_36_an_interface_that_the_pod_has_already_is_not_touched() {
    row(36).test(|site| {
        let node = site.node;
        for kind in ["bridge", "veth peer name eth1"] {
            let pod = site.new_pod()?;
            let make = format!(
                "ip link add eth0 type {kind}; ip address add 192.0.2.7/24 dev eth0; ip link set eth0 up"
            );
            node.run_in_pod(&pod, ["sh", "-euc", &make])?;
            let (before, inside) = (node.census()?, links_of(node, &pod)?);
            let outcome = site.add(&pod)?;
            site.failed(&pod, &outcome, 101, &["eth0"]).context(kind)?;
            at_once(&outcome)?;
            before.must_equal(&node.census()?)?;
            let after = links_of(node, &pod)?;
            ensure!(inside == after, "{kind} before:\n{inside}\nafter:\n{after}");
            site.del(&pod)?.success()?;
            let after = links_of(node, &pod)?;
            ensure!(inside == after, "{kind} before:\n{inside}\nafter DEL:\n{after}");
            next_sandbox_works(site, &pod)?;
        }
        Ok(())
    });
}

// --- 37
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_37_a_link_of_somebody_else_with_the_same_name_is_not_touched() {
    row(37).test(|site| {
        let node = site.node;
        for (kind, words) in [("bridge", "type bridge"), ("veth", "type veth peer name foreign")] {
            let pod = site.new_pod()?;
            let link = pod.host_interface();
            node.shell(&format!(
                "ip link add {link} {words}; ip link set {link} alias somebody-elses; ip link set {link} up"
            ))?;
            let before = settled_census(node)?;
            let outcome = site.add(&pod)?;
            let error = outcome.failure().context(kind)?;
            ensure!(
                error.code == 102 && error.msg.contains(&link) && !error.details.is_empty(),
                "{kind}: {error:?}"
            );
            at_once(&outcome)?;
            before.must_equal(&node.census()?).context(kind)?;
            // A runtime calls DEL after a failed ADD.
            site.del(&pod)?.success()?;
            before.must_equal(&node.census()?).with_context(|| format!("{kind}, after DEL"))?;
            node.run(["ip", "link", "del", &link])?;
            next_sandbox_works(site, &pod)?;
        }
        Ok(())
    });
}

#[test]
fn row_37_a_port_of_somebody_else_with_the_same_name_is_not_touched() {
    row(37).test(|site| {
        let node = site.node;
        let pod = site.new_pod()?;
        let link = pod.host_interface();
        // There is no such device: Open vSwitch keeps the row, with its error.
        node.vsctl([
            "--no-wait",
            "add-port",
            "br-int",
            &link,
            "--",
            "set",
            "Interface",
            &link,
            "external_ids:sandbox=another",
        ])?;
        let before = node.census()?;
        let outcome = site.add(&pod)?;
        let error = outcome.failure()?;
        ensure!(
            error.code == 102 && error.msg.contains(&link) && error.msg.contains("another"),
            "{error:?}"
        );
        at_once(&outcome)?;
        before.must_equal(&node.census()?)?;
        site.del(&pod)?.success()?;
        before.must_equal(&node.census()?)?;
        node.vsctl(["del-port", "br-int", &link])?;
        next_sandbox_works(site, &pod)
    });
}

#[test]
fn row_37_a_sandbox_whose_id_begins_like_anothers_does_not_take_its_link() {
    row(37).test(|site| {
        let first = site.attached_pod()?;
        let mut second = site.new_pod()?;
        second.sandbox = format!("{}{}", first.host_interface(), "f".repeat(49));
        let before = site.node.census()?;
        let outcome = site.add(&second)?;
        let error = outcome.failure()?;
        ensure!(error.code == 102 && error.msg.contains(&first.host_interface()), "{error:?}");
        before.must_equal(&site.node.census()?)?;
        site.del(&second)?.success()?;
        before.must_equal(&site.node.census()?)?;
        site.has_network(&first)?;
        // Nor does DEL take it if the first one's link has no ownership tag (alias), as the Go
        // plugin's links.
        site.node.run(["ip", "link", "set", &first.host_interface(), "alias", ""])?;
        site.del(&second)?.success()?;
        site.has_network(&first)
    });
}

// --- 52
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_52_a_namespace_that_is_deleted_while_the_flows_are_waited_for_leaves_nothing() {
    row(52).traffic_may_stop().test(|site| {
        let pod = site.new_pod()?;
        site.node.ovn_controller.pause()?;
        let waiting = site.start_add_within(3, &pod)?;
        site.has_ofport(&pod)?;
        site.node.remove_namespaces(std::slice::from_ref(&pod))?;
        let outcome = waiting.wait()?;
        let error =
            site.failed(&pod, &outcome, 8, &["stage ovn_installed", "was deleted meanwhile"])?;
        ensure!(error.msg.contains(&pod.netns_name()), "{error:?}");
        site.node.ovn_controller.resume()
    });
}

/// The plugin holds the namespace open after it has lost its name, so that every stage before the
/// result succeeds.
#[test]
fn row_52_a_namespace_that_is_deleted_before_the_annotation_comes_leaves_nothing() {
    row(52).test(|site| {
        let pod = site.new_pod_without_annotation()?;
        // The annotation is written after the namespace has lost its name, so the plugin goes on
        // with its open descriptor.
        let waiting = site.start_add_within(10, &pod)?;
        site.are_waited_for(std::slice::from_ref(&pod))?;
        site.node.remove_namespaces(std::slice::from_ref(&pod))?;
        site.node.write_manifest(&pod)?;
        let outcome = waiting.wait()?;
        ensure!(outcome.duration < SHORTLY, "it went on for {:?}", outcome.duration);
        site.failed(
            &pod,
            &outcome,
            8,
            &["stage result", "was deleted meanwhile", &pod.netns_name()],
        )?;
        site.del(&pod)?.success()?;
        site.nothing_of(&pod)
    });
}

/// A namespace lives as long as a process in it. When the last one ends, the kernel deletes the
/// pod's end of the veth, and with it the host's.
#[test]
fn row_52_a_namespace_that_is_gone_before_the_add_is_said_to_be_gone() {
    row(52).test(|site| {
        let pod = site.new_pod()?;
        site.node.remove_namespaces(std::slice::from_ref(&pod))?;
        let outcome = site.add(&pod)?;
        let error = site.failed(&pod, &outcome, 8, &[&pod.netns_name()])?;
        ensure!(error.details.contains("CNI_NETNS"), "{error:?}");
        at_once(&outcome)?;
        site.del(&pod)?.success().map(drop)
    });
}
