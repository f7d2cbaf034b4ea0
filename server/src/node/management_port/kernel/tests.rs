use std::{collections::BTreeSet, process::Command};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use rtnetlink::AddressMessageBuilder;

use super::*;
use crate::node::management_port::outcome::Outcome;

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("ip can be started");
    assert!(status.success(), "ip {arguments}");
}

/// In a network namespace of its own, on a veth in place of the management port.
#[test]
fn of_a_hosts_thousand_routes_only_those_over_the_interface_are_read() {
    let read = std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
            .expect("a network namespace: this test runs as root");
        ip("link add ovn-k8s-mp0 type veth peer name other");
        ip("addr add 10.244.1.2/24 dev ovn-k8s-mp0");
        ip("addr add 192.0.2.1/24 dev other");
        ip("link set ovn-k8s-mp0 up");
        ip("link set other up");
        ip("route add 10.244.0.0/16 via 10.244.1.1 dev ovn-k8s-mp0");
        for number in 0..1000 {
            ip(&format!("route add 198.18.{}.{}/32 via 192.0.2.2", number / 250, number % 250));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let kernel = Kernel::open().unwrap();
            let link = kernel.look().unwrap().expect("the link is there");
            assert_eq!(link.routes.len(), 1, "{:?}", link.routes);
            kernel.routes(link.index, |_| Some(())).unwrap().len()
        })
    });
    let read = read.join().unwrap();
    // The kernel's own routes over the link are among them.
    assert!((1..20).contains(&read), "{read} routes were read");
}

/// The kernel goes on by the number of entries that it has sent: with an address before it removed,
/// one that stays is left out, and was added again, which the kernel refuses.
#[test]
fn an_address_of_the_interface_was_missing_because_another_one_was_removed_while_they_were_read() {
    const ADDRESSES: u32 = 2000;
    const LOOPBACK: u32 = 1;
    let number = |n: u32| Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 9, 0, 1)) + n);
    let message = move |n| {
        AddressMessageBuilder::<Ipv4Addr>::new().index(LOOPBACK).address(number(n), 32).build()
    };
    let read = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
            .expect("a network namespace: this test runs as root");
        let other = Netlink::open().unwrap();
        let add = |n| (RouteNetlinkMessage::NewAddress(message(n)), NLM_F_CREATE | NLM_F_EXCL);
        for some in (0..ADDRESSES).collect::<Vec<_>>().chunks(100) {
            other.request_all(some.iter().copied().map(add).collect()).unwrap();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let kernel = Kernel::open().unwrap();
            let mut removed = 0;
            let read = kernel.addresses(LOOPBACK, |seen| {
                if removed < 3 {
                    other.request(RouteNetlinkMessage::DelAddress(message(removed)), 0).unwrap();
                    removed += 1;
                }
                address(seen)
            });
            read.unwrap()
        })
    });
    let read: BTreeSet<IpAddr> = read.join().unwrap().iter().map(IpNet::addr).collect();
    assert_eq!(read, (3..ADDRESSES).map(|n| number(n).into()).collect());
}

/// In a user namespace a setting of the host's is refused each time: the port was compared twice a
/// minute for ever.
#[test]
fn a_setting_that_is_not_permitted_was_tried_again_for_ever() {
    let failed = |step: Step, errno| {
        let refused = Refused {
            if_name: INTERFACE.parse().unwrap(),
            step: step.to_string(),
            source: io::Error::from_raw_os_error(errno),
        };
        let mut outcome = Outcome::default();
        outcome.take(&step, &refused);
        outcome.failed
    };
    for sysctl in sysctl::ALL {
        for errno in [nix::libc::EROFS, nix::libc::EPERM, nix::libc::EACCES] {
            assert!(!failed(Step::SetSysctl(sysctl), errno), "{sysctl} {errno}");
        }
        assert!(failed(Step::SetSysctl(sysctl), nix::libc::EBUSY), "{sysctl}");
    }
    assert!(failed(Step::SetUp, nix::libc::EPERM));
}
