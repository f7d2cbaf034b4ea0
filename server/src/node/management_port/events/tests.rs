use podnet::nftables::{commit, create_table};

use super::*;

/// A message as the kernel sends it.
fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let length = 16 + body.len();
    let mut message = u32::try_from(length).unwrap().to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend([0; 10]);
    message.extend(body);
    message.resize(length.next_multiple_of(4), 0);
    message
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut attribute = u16::try_from(4 + value.len()).unwrap().to_ne_bytes().to_vec();
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

/// A body with a header of `header` bytes, in which the link's index is at `at`.
fn body(header: usize, at: Option<usize>, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![0; header];
    if let Some(at) = at {
        body[at..at + 4].copy_from_slice(&7_u32.to_ne_bytes());
    }
    body.extend(attributes.concat());
    body
}

/// Of the main table, over the link.
fn default_route(index: &[u8]) -> Vec<u8> {
    let mut route = body(12, None, &[attribute(libc::RTA_OIF, index)]);
    route[4] = libc::RT_TABLE_MAIN;
    route
}

fn route_to(network: [u8; 4], prefix: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut route = body(12, None, &[attribute(libc::RTA_DST, &network), attributes.concat()]);
    route[1] = prefix;
    route
}

#[test]
fn every_kind_of_message_names_its_link() {
    let index = 7_u32.to_ne_bytes();
    let cases = [
        (
            libc::RTM_NEWLINK,
            body(16, Some(4), &[attribute(libc::IFLA_IFNAME, b"ovn-k8s-mp0\0")]),
            About::Interface(7),
        ),
        (
            libc::RTM_DELLINK,
            body(16, Some(4), &[attribute(libc::IFLA_IFNAME, b"ovn-k8s-mp01\0")]),
            About::Link(7),
        ),
        (libc::RTM_NEWADDR, body(8, Some(4), &[]), About::Address(7)),
        (
            libc::RTM_DELNEIGH,
            body(12, Some(4), &[attribute(1, &[10, 244, 1, 1])]),
            About::Neighbour(7, [10, 244, 1, 1].into()),
        ),
        // An entry of a bridge's table.
        (libc::RTM_NEWNEIGH, body(12, Some(4), &[]), About::Nothing),
        (libc::RTM_NEWROUTE, default_route(&index), About::DefaultRoute(7)),
        (
            libc::RTM_DELROUTE,
            route_to([10, 244, 0, 0], 16, &[attribute(libc::RTA_OIF, &index)]),
            About::Route(7, "10.244.0.0/16".parse().unwrap()),
        ),
        // Over several links.
        (
            libc::RTM_NEWROUTE,
            route_to([10, 96, 0, 0], 12, &[]),
            About::Route(0, "10.96.0.0/12".parse().unwrap()),
        ),
        (libc::RTM_NEWNETCONF, body(4, None, &[attribute(1, &index)]), About::Settings(7)),
        (libc::RTM_NEWROUTE, body(12, None, &[]), About::Nothing),
        (libc::RTM_NEWADDR, vec![0; 3], About::Nothing),
    ];
    let datagram: Vec<u8> = cases.iter().flat_map(|(kind, body, _)| message(*kind, body)).collect();
    let found: Vec<About> =
        bodies(&datagram).into_iter().map(|(kind, body)| about(kind, body)).collect();
    assert_eq!(found, cases.map(|(_, _, about)| about));
}

#[test]
fn half_a_message_is_none() {
    let whole = message(libc::RTM_NEWADDR, &body(8, Some(4), &[]));
    assert_eq!(bodies(&whole).len(), 1);
    assert_eq!(bodies(&whole[..whole.len() - 1]).len(), 0);
    assert_eq!(bodies(&[]).len(), 0);
}

#[test]
fn only_messages_about_links_have_a_links_name() {
    let named = body(16, Some(4), &[attribute(libc::IFLA_IFNAME, b"eth7\0")]);
    assert_eq!(link_name(libc::RTM_NEWLINK, &named).as_deref(), Some("eth7"));
    assert_eq!(link_name(libc::RTM_NEWADDR, &named), None);
    assert_eq!(link_name(libc::RTM_NEWLINK, &[]), None);
}

#[test]
fn rules_of_other_tables_are_nobodys_business_here() {
    const NEW_CHAIN: u16 = 0xa03;
    const INET: u8 = 1;
    const NETDEV: u8 = 5;
    let of = |family: u8, table: &[u8], chain: &[u8]| {
        let mut body = body(4, None, &[attribute(1, table), attribute(3, chain)]);
        body[0] = family;
        is_of_table(NEW_CHAIN, &body)
    };
    assert!(of(INET, b"ovn-kubernetes\0", b"services\0"));
    assert!(!of(INET, b"kube-proxy\0", b"services\0"));
    assert!(of(NETDEV, b"ovn-kubernetes\0", b"uplink-eth0\0"), "the gateway's NIC");
    assert!(!of(NETDEV, b"ovn-kubernetes\0", b"port-c0ffee\0"), "each pod has one");
    assert!(!is_of_table(NEW_CHAIN, &[]));
}

/// Runs `test` in a network namespace of its own.
fn apart(test: impl AsyncFnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
            .expect("a network namespace: this test runs as root");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test());
    });
    thread.join().unwrap();
}

#[test]
fn a_table_that_another_program_makes_or_removes_is_an_event() {
    apart(async || {
        let mut happened = listen().unwrap();
        let limit = std::time::Duration::from_secs(20);
        commit(vec![create_table(TABLE)]).await.unwrap();
        tokio::time::timeout(limit, happened.to_table.changed()).await.unwrap().unwrap();
        assert_eq!(super::super::rules::remove().await.unwrap(), Some(TABLE));
        tokio::time::timeout(limit, happened.to_table.changed()).await.unwrap().unwrap();
    });
}

/// Regression: the sockets of a node without management port stayed open until the next event,
/// which a node without nftables may never have.
#[test]
fn a_subscription_ends_with_its_receivers_and_not_with_the_next_event() {
    apart(async || {
        let metrics = tokio::runtime::Handle::current().metrics();
        let Happened { watched: _watched, to_interface, to_table, to_addresses } =
            listen().unwrap();
        tokio::task::yield_now().await;
        assert_eq!(metrics.num_alive_tasks(), 2, "one of links, one of rules");
        drop((to_interface, to_table));
        let ends = async |left: usize| {
            while metrics.num_alive_tasks() > left {
                tokio::task::yield_now().await;
            }
        };
        let limit = std::time::Duration::from_secs(20);
        tokio::time::timeout(limit, ends(1)).await.expect("nobody hears of rules");
        drop(to_addresses);
        tokio::time::timeout(limit, ends(0)).await.expect("nobody hears of links");
    });
}

fn shell(script: &str) {
    let status = std::process::Command::new("sh").args(["-euc", script]).status().expect("a shell");
    assert!(status.success(), "{script}");
}

/// Each pod that the kubelet probes is a neighbour: with 250 of them, the whole port was looked at
/// 10 to 20 times a second, for ever.
#[test]
fn neighbours_other_than_the_gateway_were_looks_at_the_port() {
    apart(async || {
        shell(
            "ip link add ovn-k8s-mp0 type veth peer name other
             for link in ovn-k8s-mp0 other; do ip link set $link addrgenmode none; ip link set $link up; done
             ip addr add 10.244.1.2/24 dev ovn-k8s-mp0",
        );
        let mut happened = listen().unwrap();
        happened.watched.send_modify(|watched| watched.gateways = [[10, 244, 1, 1].into()].into());
        // The kernel's messages keep their order: when the last one is there, all are.
        let mut looks = async |changes: &'static str, marker: u8| {
            let before = *happened.to_interface.borrow();
            happened.to_addresses.mark_unchanged();
            let marked = format!("{changes}\nip addr add 192.0.2.{marker}/24 dev other");
            tokio::task::spawn_blocking(move || shell(&marked)).await.unwrap();
            let limit = std::time::Duration::from_secs(20);
            tokio::time::timeout(limit, happened.to_addresses.changed()).await.unwrap().unwrap();
            *happened.to_interface.borrow() - before
        };
        let pods = "
            for pod in $(seq 3 202); do
                 echo neigh replace 10.244.1.$pod lladdr 02:00:00:00:01:01 nud permanent dev ovn-k8s-mp0
             done | ip -batch -";
        // A link may have an event of its own some time after it is up.
        let pods = looks(pods, 1).await;
        assert!(pods < 5, "{pods} looks");
        let gateway =
            "ip neigh replace 10.244.1.1 lladdr 02:00:00:00:00:01 nud permanent dev ovn-k8s-mp0";
        assert!(looks(gateway, 2).await >= 1);
    });
}
