//! Tracked connections of an address that was given to another pod.

use anyhow::{Result, ensure};
use integration::{Node, faults::row};

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
        ensure!(is_tracked(node, &address)?, "the rollback of an ADD that was refused has flushed them");

        // A late DEL, for a sandbox whose address belongs to another pod by now.
        node.runtime().with("prevResult", result).call("DEL", Some(&thief)).run()?.success()?;
        ensure!(is_tracked(node, &address)?, "the DEL of another sandbox has flushed them");

        site.del(&victim)?.success()?;
        ensure!(!is_tracked(node, &address)?, "they outlive the pod");
        Ok(())
    });
}
