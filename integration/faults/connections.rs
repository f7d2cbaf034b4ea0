//! Tracked connections of an address that was given to another pod.

use anyhow::{Context as _, Result, ensure};
use integration::{Node, faults::row};

/// Tells the kernel of a connection of this address, as if its packets had been seen.
fn track(node: &Node, address: &str) -> Result<()> {
    let words = ["conntrack", "-I", "-p", "tcp", "--sport", "40000", "--dport", "443", "--state", "ESTABLISHED", "-t", "600"];
    let connection = ["-s", address, "-d", "10.96.0.1"];
    node.run(words.into_iter().chain(connection)).map(drop).context("install conntrack with: apt-get install conntrack")
}

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
        track(node, &address)?;

        let thief = site.new_pod_without_annotation()?;
        let mut annotated = thief.clone();
        annotated.addresses.clone_from(&victim.addresses);
        node.write_manifest(&annotated)?;
        let outcome = site.add(&thief)?;
        site.failed(&thief, &outcome, 100, &[&address, &victim.port()])?;
        ensure!(is_tracked(node, &address)?, "the rollback of an ADD that was refused has flushed them");

        // What comes late, for a sandbox whose address was given away meanwhile.
        node.runtime().with("prevResult", result).call("DEL", Some(&thief)).run()?.success()?;
        ensure!(is_tracked(node, &address)?, "the DEL of another sandbox has flushed them");

        site.del(&victim)?.success()?;
        ensure!(!is_tracked(node, &address)?, "they outlive the pod");
        Ok(())
    });
}
