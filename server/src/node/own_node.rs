//! Whether the node's object in the API server is this host's. It is if it has an address of this
//! host, because the kubelet writes those. An annotation proves nothing: this server writes its
//! annotations on the node of whatever name it is given.
//!
//! While it seems to be another host's, tasks that write to it or take something from it do not see
//! it: each would act for that host (`--init-node` with a wrong name).

use std::{collections::HashSet, io, net::IpAddr, sync::Arc, time::Duration};

use contract::node_annotation::CHASSIS_ID;
use tokio::{sync::watch, time::sleep};

use super::{
    object::{NodeFacts, NodeView},
    open_vswitch::Identity,
};
use crate::{attachments::OwnNode, own_addresses};

/// The addresses of the host are read again after this long if they could not be read. Ten times
/// less would repeat what a busy kernel has just refused; ten times more would leave a joining node
/// without its port.
const RETRY: Duration = Duration::from_secs(1);

/// What is known of this host's own node.
pub(super) struct Own {
    pub(super) node: watch::Receiver<OwnNode>,
    /// The object of this name, for tasks that act on it: unknown for as long as it is another
    /// host's.
    pub(super) view: watch::Receiver<NodeView>,
}

/// Whether node `name` is this host, for as long as its object is followed. Decided again after
/// each change of the object or of the host's addresses.
pub(super) fn follow(
    name: &str,
    mut view: watch::Receiver<NodeView>,
    mut identity: watch::Receiver<Identity>,
    mut addresses_changed: watch::Receiver<u64>,
) -> Own {
    let name = name.to_owned();
    let waiting = "the API server has not reported the node yet".to_owned();
    let (sender, node) = watch::channel(OwnNode::Unconfirmed(waiting.clone()));
    let (shown, own_view) = watch::channel(NodeView::Unknown(waiting));
    tokio::spawn(async move {
        loop {
            // Both marked as seen before the addresses are read: a change during the reading is an
            // event.
            addresses_changed.mark_unchanged();
            let seen = view.borrow_and_update().clone();
            let chassis = identity.borrow_and_update().system_id.clone();
            let hosts = own_addresses::read().await;
            let hosts_are_unknown = hosts.is_err();
            let now = match hosts {
                Ok(hosts) => own_node(&name, &seen, &hosts),
                Err(error) => OwnNode::Unconfirmed(unreadable(error)),
            };
            let visible = visible(&name, &seen, &now, chassis.as_deref());
            sender.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
            shown.send_if_modified(|before| std::mem::replace(before, visible.clone()) != visible);
            tokio::select! {
                changed = view.changed() => if changed.is_err() { return },
                () = super::changed(&mut identity) => {}
                () = super::changed(&mut addresses_changed) => {}
                () = sleep(RETRY), if hosts_are_unknown => {}
            }
        }
    });
    Own { node, view: own_view }
}

/// What the tasks that act on the object may see of it. It is another host's if it has addresses
/// that are not this host's, and another chassis has written there. A node that joins has no
/// addresses or no chassis yet, one whose address is behind a cloud's NAT has this chassis, and one
/// that was installed anew has its address.
fn visible(name: &str, view: &NodeView, own: &OwnNode, chassis: Option<&str>) -> NodeView {
    let (NodeView::There(seen), OwnNode::Unconfirmed(why)) = (view, own) else {
        return view.clone();
    };
    let NodeFacts { annotations, addresses, .. } = &**seen;
    match annotations.get(CHASSIS_ID) {
        Some(other) if Some(other.as_str()) != chassis && !addresses.is_empty() => {
            NodeView::Unknown(format!(
                "{why}; its annotation {CHASSIS_ID} is {other}, and this host's chassis is {}: it seems to be \
                 another host's node, and nothing is written to it. Is --init-node {name} right? If it is, remove \
                 the annotation",
                chassis.unwrap_or("not known yet")
            ))
        }
        _ => view.clone(),
    }
}

/// Whether the object is this host's: it has an address of this host, or this host's chassis wrote
/// there. A program that takes something away needs to know that, while a server may write to a
/// node that joins and shows neither yet.
///
/// # Errors
/// Why it may be another host's.
pub(super) async fn confirm(
    name: &str,
    seen: NodeFacts,
    chassis: Option<&str>,
) -> Result<(), String> {
    let written_by = seen.annotations.get(CHASSIS_ID).cloned();
    if written_by.is_some() && written_by.as_deref() == chassis {
        return Ok(());
    }
    let hosts = own_addresses::read().await.map_err(unreadable)?;
    match own_node(name, &NodeView::There(Arc::new(seen)), &hosts) {
        OwnNode::Confirmed => Ok(()),
        OwnNode::Unconfirmed(why) => Err(format!(
            "{why}, and its chassis is {}, this host's {}: it may be another host's node",
            written_by.as_deref().unwrap_or("not known"),
            chassis.unwrap_or("not known")
        )),
    }
}

fn unreadable(error: io::Error) -> String {
    format!("the addresses of this host cannot be read: {error}")
}

/// Decides by the object and the host's addresses.
fn own_node(name: &str, view: &NodeView, hosts: &HashSet<IpAddr>) -> OwnNode {
    let why = match view {
        NodeView::There(seen) if seen.addresses.iter().any(|address| hosts.contains(address)) => {
            return OwnNode::Confirmed;
        }
        NodeView::There(seen) if seen.addresses.is_empty() => {
            format!("node {name} has no InternalIP yet")
        }
        NodeView::There(seen) => {
            format!(
                "node {name} has the InternalIPs {:?}, and this host has none of them",
                seen.addresses
            )
        }
        NodeView::Absent => format!("the API server knows no node {name}"),
        NodeView::Unknown(why) => why.clone(),
    };
    OwnNode::Unconfirmed(why)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for view in [
            there(&[]),
            there(&["10.0.0.1"]),
            NodeView::Absent,
            NodeView::Unknown("no answer".to_owned()),
        ] {
            assert!(matches!(own(&view), OwnNode::Unconfirmed(_)), "{view:?}");
        }
    }

    #[test]
    fn the_addresses_of_this_host_are_those_of_the_kernel_without_loopback() {
        // getifaddrs(3) asks the kernel, too, by other code.
        let addresses = own_addresses::list().unwrap();
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

    /// A server that was started with the name of another host's node wrote its chassis and its
    /// addresses there, and took that node's management port.
    #[test]
    fn a_node_that_is_another_hosts_was_written_to() {
        let hosts = HashSet::from(["192.0.2.7".parse().unwrap()]);
        let there = |address: Option<&str>, chassis: Option<&str>| {
            let annotations = chassis.map(|chassis| (CHASSIS_ID.to_owned(), chassis.to_owned()));
            NodeView::There(Arc::new(NodeFacts {
                addresses: address.map(|address| address.parse().unwrap()).into_iter().collect(),
                annotations: annotations.into_iter().collect(),
                ..NodeFacts::default()
            }))
        };
        let shown =
            |view: &NodeView, chassis| visible("n1", view, &own_node("n1", view, &hosts), chassis);
        let (own, other) = (Some("192.0.2.7"), Some("203.0.113.9"));

        for chassis in [Some("c1"), None] {
            let NodeView::Unknown(why) = shown(&there(other, Some("c2")), chassis) else {
                panic!("{chassis:?}")
            };
            assert!(
                ["203.0.113.9", "k8s.ovn.org/node-chassis-id is c2", "--init-node n1"]
                    .iter()
                    .all(|words| why.contains(words)),
                "{why}"
            );
        }
        for view in [
            // It joins: the kubelet has written no address yet, or no server a chassis.
            there(None, None),
            there(None, Some("c2")),
            there(other, None),
            // Its address is that of a cloud's NAT.
            there(other, Some("c1")),
            // It was installed anew, and has another chassis now.
            there(own, Some("c2")),
            NodeView::Absent,
        ] {
            assert_eq!(shown(&view, Some("c1")), view);
        }
    }

    #[tokio::test]
    async fn something_is_taken_from_a_node_only_if_it_shows_that_it_is_this_hosts() {
        let addresses: Vec<IpAddr> = own_addresses::list().unwrap().into_iter().collect();
        let object = |addresses: &[IpAddr], chassis: &str| NodeFacts {
            addresses: addresses.to_vec(),
            annotations: [(CHASSIS_ID.to_owned(), chassis.to_owned())].into(),
            ..NodeFacts::default()
        };
        let elsewhere = "203.0.113.9".parse().unwrap();
        // A machine without a network has no address to show.
        for address in &addresses {
            assert_eq!(
                confirm("n1", object(&[elsewhere, *address], "c2"), Some("c1")).await,
                Ok(())
            );
        }
        assert_eq!(confirm("n1", object(&[elsewhere], "c1"), Some("c1")).await, Ok(()));
        for (addresses, chassis) in
            [(&[elsewhere][..], Some("c1")), (&[], Some("c1")), (&[elsewhere], None)]
        {
            assert!(
                confirm("n1", object(addresses, "c2"), chassis).await.is_err(),
                "{addresses:?} {chassis:?}"
            );
        }
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
