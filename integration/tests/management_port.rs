//! The interface over which a node and pods reach each other.

#[path = "support/attached.rs"]
mod attached;
#[path = "support/managed.rs"]
mod managed;

use integration::{Families, Lab};

use attached::attach;
use managed::addresses;

const MIB: u64 = 1 << 20;

#[test]
fn a_node_and_the_pods_of_every_node_reach_each_other_in_both_families() {
    Lab::of_nodes(2).families(Families::Dual).test(|lab| {
        let [here, there] = &lab.nodes[..] else { panic!("two nodes") };
        managed::start(here)?;
        managed::start(there)?;
        for of in [here, there] {
            let pod = attach(of, lab.new_pod(of)?)?.pod;
            for address in &pod.addresses {
                lab.ping_from_node(here, address.addr())?;
                lab.tcp_from_node(here, &pod, address.addr(), MIB)?;
            }
            for address in addresses(here) {
                lab.ping(&pod, address)?;
                lab.tcp_to_node(&pod, here, address, MIB)?;
            }
        }
        Ok(())
    });
}
