//! Lists that change while a real kernel makes them, in a network namespace that an ordinary user
//! may create.

use std::{
    env,
    net::Ipv4Addr,
    process::{Command, Stdio},
};

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
};
use rtnetlink::AddressMessageBuilder;

use super::*;
use crate::netlink::Netlink;

/// Marks a process inside the namespace.
const INSIDE: &str = "TORN_LISTS_INSIDE";
/// More than fit into the first answers, which the kernel makes while it handles the request.
const ADDRESSES: u32 = 2000;
/// The index of the loopback device in each namespace.
const LOOPBACK: u32 = 1;

/// Runs the test `name` of this module again in a namespace of its own, and returns whether this is
/// the process inside.
fn is_inside(name: &str) -> bool {
    if env::var_os(INSIDE).is_some() {
        return true;
    }
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--net"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "--nocapture"]);
    let output = command
        .arg(format!("netlink::dump::torn::{name}"))
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

fn number(address: u32) -> AddressMessage {
    let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 9, 0, 1)) + address);
    AddressMessageBuilder::<Ipv4Addr>::new().index(LOOPBACK).address(address, 32).build()
}

fn address(message: &RouteNetlinkMessage) -> Option<IpNet> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return None };
    message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => IpNet::new(*address, message.header.prefix_len).ok(),
        _ => None,
    })
}

fn every_address() -> RouteNetlinkMessage {
    RouteNetlinkMessage::GetAddress(AddressMessage::default())
}

/// Another program, which gives the loopback device many addresses and removes the first ones.
struct Other {
    netlink: Netlink,
    removed: u32,
}

impl Other {
    fn new() -> Self {
        let netlink = Netlink::open().unwrap();
        let add = |n| (RouteNetlinkMessage::NewAddress(number(n)), NLM_F_CREATE | NLM_F_EXCL);
        for some in (0..ADDRESSES).collect::<Vec<_>>().chunks(100) {
            netlink.request_all(some.iter().copied().map(add).collect()).unwrap();
        }
        Self { netlink, removed: 0 }
    }

    fn remove_first(&mut self) {
        self.netlink.request(RouteNetlinkMessage::DelAddress(number(self.removed)), 0).unwrap();
        self.removed += 1;
    }

    fn is_there(&self) -> Vec<IpNet> {
        let mut left: Vec<IpNet> = (self.removed..ADDRESSES)
            .filter_map(|n| address(&RouteNetlinkMessage::NewAddress(number(n))))
            .collect();
        left.sort_unstable();
        left
    }
}

/// CHECK missed an address of a pod, because another one of the list was removed while the kernel
/// made it: the kernel continues by the number of entries that it has sent.
#[test]
fn an_address_was_missing_from_a_list_that_changed_while_the_kernel_made_it() {
    if !is_inside("an_address_was_missing_from_a_list_that_changed_while_the_kernel_made_it") {
        return;
    }
    let (netlink, mut other) = (Netlink::open().unwrap(), Other::new());
    let mut listed = netlink
        .dump(&every_address(), |entry| {
            if other.removed < 3 {
                other.remove_first();
            }
            address(&entry)
        })
        .unwrap();
    listed.sort_unstable();
    let missing: Vec<IpNet> =
        other.is_there().into_iter().filter(|address| !listed.contains(address)).collect();
    assert_eq!(missing, []);
    assert_eq!(listed, other.is_there());
}

#[test]
fn a_list_that_changes_each_time_was_taken_for_a_whole_one() {
    if !is_inside("a_list_that_changes_each_time_was_taken_for_a_whole_one") {
        return;
    }
    let (netlink, mut other) = (Netlink::open().unwrap(), Other::new());
    let mut entries = 0_usize;
    let listed = netlink.dump(&every_address(), |entry| {
        // Each list is longer than this.
        if entries.is_multiple_of(500) {
            other.remove_first();
        }
        entries += 1;
        address(&entry)
    });
    assert!(
        listed.is_err(),
        "{} addresses, {} are there",
        listed.unwrap().len(),
        other.is_there().len()
    );
    assert!(entries > (MOST_TRIES - 1) * 1000, "{entries} entries");
}

/// The same for lists that are read one entry at a time, such as the table of connections, and the
/// links.
#[tokio::test]
async fn a_stream_of_answers_does_not_end_well_if_what_is_listed_changed_meanwhile() {
    if !is_inside("a_stream_of_answers_does_not_end_well_if_what_is_listed_changed_meanwhile") {
        return;
    }
    let mut other = Other::new();
    let mut listed = Vec::new();
    let outcome = dump(
        netlink_sys::protocols::NETLINK_ROUTE,
        every_address(),
        |entry: RouteNetlinkMessage| {
            if other.removed < 3 {
                other.remove_first();
            }
            listed.extend(address(&entry));
        },
    );
    let outcome = outcome.await;
    assert!(
        outcome.as_ref().is_err_and(is_torn),
        "{outcome:?}: {} addresses, {} are there",
        listed.len(),
        other.is_there().len()
    );
    listed.clear();
    dump(netlink_sys::protocols::NETLINK_ROUTE, every_address(), |entry| {
        listed.extend(address(&entry))
    })
    .await
    .unwrap();
    assert_eq!(listed.len(), other.is_there().len());
}
