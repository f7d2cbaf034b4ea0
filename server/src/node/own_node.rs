//! Whether the node's object in the API server is this host's. It is if it has an address of this host,
//! because the kubelet writes those. An annotation proves nothing: this server writes its annotations on the
//! node of whatever name it is given.

use std::{collections::HashSet, io, net::IpAddr};

use futures_util::TryStreamExt;
use netlink_packet_route::address::AddressAttribute;
use podnet::{link::into_io, netns::host_netlink};
use tokio::sync::watch;

use super::object::NodeView;
use crate::{attachments::OwnNode, kernel_thread};

/// Whether node `name` is this host, for as long as its object is followed. Decided again after each change
/// of the object or of the host's addresses.
pub(super) fn follow(
    name: &str,
    mut view: watch::Receiver<NodeView>,
    mut addresses_changed: watch::Receiver<u64>,
) -> watch::Receiver<OwnNode> {
    let name = name.to_owned();
    let (sender, own) =
        watch::channel(OwnNode::Unconfirmed("the API server has not reported the node yet".to_owned()));
    tokio::spawn(async move {
        loop {
            // Both marked as seen before the addresses are read: a change during the reading is an event.
            addresses_changed.mark_unchanged();
            let seen = view.borrow_and_update().clone();
            let now = match kernel_thread::ask(host_addresses()).await.flatten() {
                Ok(hosts) => own_node(&name, &seen, &hosts),
                Err(error) => {
                    OwnNode::Unconfirmed(format!("the addresses of this host cannot be read: {error}"))
                }
            };
            sender.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
            tokio::select! {
                changed = view.changed() => if changed.is_err() { return },
                () = super::changed(&mut addresses_changed) => {}
            }
        }
    });
    own
}

/// Decides by the object and the host's addresses.
fn own_node(name: &str, view: &NodeView, hosts: &HashSet<IpAddr>) -> OwnNode {
    let why = match view {
        NodeView::There(seen) if seen.addresses.iter().any(|address| hosts.contains(address)) => {
            return OwnNode::Confirmed;
        }
        NodeView::There(seen) if seen.addresses.is_empty() => format!("node {name} has no InternalIP yet"),
        NodeView::There(seen) => {
            format!("node {name} has the InternalIPs {:?}, and this host has none of them", seen.addresses)
        }
        NodeView::Absent => format!("the API server knows no node {name}"),
        NodeView::Unknown(why) => why.clone(),
    };
    OwnNode::Unconfirmed(why)
}

/// Every address of the host but loopback ones, on any link.
async fn host_addresses() -> io::Result<HashSet<IpAddr>> {
    // Kept to the end: the connection's task ends with the last handle, and with it the dump.
    let netlink = host_netlink()?;
    let mut messages = netlink.address().get().execute();
    let mut addresses = HashSet::new();
    while let Some(message) = messages.try_next().await.map_err(into_io)? {
        // On a point-to-point link `IFA_ADDRESS` is the peer's address, and `IFA_LOCAL` this host's.
        let local = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        });
        let any = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        });
        addresses.extend(local.or(any).filter(|address| !address.is_loopback()));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::node::object::NodeFacts;

    #[test]
    fn a_node_is_ones_own_if_it_has_an_address_of_this_host() {
        let hosts = HashSet::from(["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()]);
        let there = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
            NodeView::There(Arc::new(NodeFacts { addresses, ..NodeFacts::default() }))
        };
        let own = |view: &NodeView| own_node("n1", view, &hosts);
        assert_eq!(own(&there(&["10.0.0.1", "192.0.2.7"])), OwnNode::Confirmed);
        assert_eq!(own(&there(&["2001:db8::7"])), OwnNode::Confirmed);
        for view in
            [there(&[]), there(&["10.0.0.1"]), NodeView::Absent, NodeView::Unknown("no answer".to_owned())]
        {
            assert!(matches!(own(&view), OwnNode::Unconfirmed(_)), "{view:?}");
        }
    }

    #[tokio::test]
    async fn the_addresses_of_this_host_are_those_of_the_kernel_without_loopback() {
        // getifaddrs(3) asks the kernel, too, by other code.
        let addresses = host_addresses().await.unwrap();
        let listed: HashSet<IpAddr> = nix::ifaddrs::getifaddrs()
            .unwrap()
            .filter_map(|interface| {
                let address = interface.address?;
                let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
                v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
            })
            .filter(|address| !address.is_loopback())
            .collect();
        assert_eq!(addresses, listed);
    }

    #[test]
    fn what_this_server_wrote_itself_confirms_nothing() {
        let annotations = [("k8s.ovn.org/node-chassis-id".to_owned(), "c1".to_owned())].into();
        let view = NodeView::There(Arc::new(NodeFacts { annotations, ..NodeFacts::default() }));
        assert_eq!(
            own_node("n1", &view, &HashSet::new()),
            OwnNode::Unconfirmed("node n1 has no InternalIP yet".to_owned())
        );
    }
}
