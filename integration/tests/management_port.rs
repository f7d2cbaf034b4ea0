//! The interface over which a node and pods reach each other.

#[path = "support/attached.rs"]
mod attached;
#[path = "support/managed.rs"]
mod managed;

use integration::{Families, Lab, eventually};

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

/// A socket may be bound to any address of the host: the way back is the management port all the same.
#[test]
fn what_the_host_sends_from_another_address_of_its_own_is_answered() {
    Lab::of_nodes(1).families(Families::Dual).test(|lab| {
        let node = &lab.nodes[0];
        managed::start(node)?;
        let pod = attach(node, lab.new_pod(node)?)?.pod;
        node.shell("ip addr add 198.51.100.7/32 dev lo && ip addr add 2001:db8::7/128 nodad dev lo && ip link set lo up")?;
        for (source, address) in ["198.51.100.7", "2001:db8::7"].into_iter().zip(&pod.addresses) {
            let ping = || node.run(["ping", "-n", "-c", "1", "-W", "0.5", "-I", source, &address.addr().to_string()]).map(drop);
            eventually(&format!("{source} reaches the pod"), managed::SOON, ping)?;
        }
        Ok(())
    });
}
