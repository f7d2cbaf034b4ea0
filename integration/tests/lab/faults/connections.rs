//! Tracked connections of an address that was given to another pod.

use anyhow::{Result, ensure};
use integration::{Node, faults::row};

use crate::support::attached::hold_back;

fn is_tracked(node: &Node, address: &str) -> Result<bool> {
    Ok(node.run(["conntrack", "-L"])?.split([' ', '=']).any(|word| word == address))
}

#[test]
fn row_66_nobody_breaks_the_connections_of_the_pod_that_works_with_an_address() {
    row(66).test(|site| {
        let node = site.node;
        let victim = site.new_pod()?;
        let result = site.add(&victim)?.success()?;
        let address = victim.address().to_string();
        node.track(&format!("-s {address} -d 10.96.0.1"))?;

        let thief = site.new_pod_without_annotation()?;
        let mut annotated = thief.clone();
        annotated.addresses.clone_from(&victim.addresses);
        node.write_manifest(&annotated)?;
        let outcome = site.add(&thief)?;
        site.failed(&thief, &outcome, 100, &[&address, &victim.port()])?;
        ensure!(
            is_tracked(node, &address)?,
            "the rollback of an ADD that was refused has flushed them"
        );

        // A late DEL, for a sandbox whose address belongs to another pod by now.
        node.runtime().with("prevResult", result).call("DEL", Some(&thief)).run()?.success()?;
        ensure!(is_tracked(node, &address)?, "the DEL of another sandbox has flushed them");

        site.del(&victim)?.success()?;
        ensure!(!is_tracked(node, &address)?, "they outlive the pod");
        Ok(())
    });
}

/// The annotation names the address of a pod on another node, to which pods of this node have
/// connections.
#[test]
fn row_66_an_add_that_never_worked_leaves_connections_of_its_address() {
    row(66).test(|site| {
        let node = site.node;
        let pod = site.new_pod_without_annotation()?;
        let mut annotated = pod.clone();
        annotated.addresses = vec!["10.244.1.99/24".parse()?];
        let address = annotated.address().to_string();
        node.write_manifest(&annotated)?;
        hold_back(site.lab, &pod)?;
        node.track(&format!("-s {} -d {address}", site.bystanders[0].address()))?;
        let outcome = site.add_within(3, &pod)?;
        site.failed(&pod, &outcome, 11, &["stage ovn_installed"])?;
        ensure!(is_tracked(node, &address)?, "the rollback has flushed another pod's connections");
        Ok(())
    });
}

#[test]
fn row_66_a_gc_flushes_connections_of_stale_interfaces_and_of_no_address_that_works() {
    row(66).test(|site| {
        let node = site.node;
        let (stale, late, holder) =
            (site.attached_pod()?, site.attached_pod()?, site.attached_pod()?);
        let [gone, kept] = [&stale, &holder].map(|pod| pod.address().to_string());
        for address in [&gone, &kept] {
            node.track(&format!("-s {address} -d 10.96.0.1"))?;
        }
        // The row of a sandbox whose address belongs to another pod by now.
        let ids = [
            format!("external_ids:ip_addresses={kept}/24"),
            format!("external_ids:ip_address={kept}/24"),
        ];
        node.vsctl(["set", "Interface", &late.host_interface(), &ids[0], &ids[1]])?;
        let [first, second] = &site.bystanders;
        node.runtime().gc(&[first, second, &holder])?.success()?;
        site.nothing_of(&stale)?;
        site.nothing_of(&late)?;
        ensure!(!is_tracked(node, &gone)?, "connections of {gone} outlive its pod");
        ensure!(
            is_tracked(node, &kept)?,
            "the row of another sandbox has cost {kept} its connections"
        );
        Ok(())
    });
}
