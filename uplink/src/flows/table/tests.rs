//! The whole tables, as pages to read, and what changes them.

use std::collections::BTreeSet;

use example::config;

use super::*;
use crate::flows::{Masquerade, Ports, Vlan, Zone};

#[path = "../../../tests/external_bridge/example.rs"]
mod example;

/// Compares with a page beside this file. With `UPDATE_PAGES` in the environment the page is
/// written instead.
fn assert_page(flows: &Flows, file: &str) {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/flows/table/tests").join(file);
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(&path, flows.to_string()).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    let (page, flows): (BTreeSet<&str>, String) = (page.lines().collect(), flows.to_string());
    let flows: BTreeSet<&str> = flows.lines().collect();
    let (missing, added): (Vec<_>, Vec<_>) =
        (page.difference(&flows).collect(), flows.difference(&page).collect());
    assert!(
        missing.is_empty() && added.is_empty(),
        "{file}: without {missing:#?}, but with {added:#?}"
    );
}

#[test]
fn the_tables_read_as_their_pages() {
    assert_page(&table(&config(Mode::Shared)), "shared.txt");
    assert_page(&table(&config(Mode::Local)), "local.txt");
    let mut tagged = config(Mode::Shared);
    tagged.bridge.vlan = Some(Vlan::try_from(100).unwrap());
    assert_page(&table(&tagged), "vlan.txt");
}

#[test]
fn nothing_leaves_from_ovn_with_a_foreign_mac() {
    for mode in [Mode::Shared, Mode::Local] {
        let config = config(mode);
        for (slot, actions) in table(&config).iter() {
            let outside = [OfPort(1), OfPort::NORMAL, OfPort::FLOOD].map(Action::Output);
            let reaches_world = actions.iter().any(|action| outside.contains(action));
            if slot.table == 0 && slot.matching.in_port == Some(OfPort(2)) && reaches_world {
                assert_eq!(slot.matching.mac_source, Some(config.bridge.mac), "{slot:?}");
            }
        }
    }
}

#[test]
fn flows_of_services_are_told_by_their_table_and_priority() {
    for mode in [Mode::Shared, Mode::Local] {
        let mut config = config(mode);
        let all = table(&config);
        config.services.clear();
        let without = table(&config);
        let of_services = || all.iter().filter(|(slot, _)| without.actions(slot).is_none());
        assert!(
            of_services().count() > 4 && of_services().all(|(slot, _)| slot.is_of_service()),
            "{all}"
        );
    }
}

#[test]
fn a_node_port_is_two_flows_and_on_the_userspace_datapath_one() {
    for (datapath, flows) in [(Datapath::Kernel, 2), (Datapath::Userspace, 1)] {
        let mut config = config(Mode::Shared);
        config.bridge.datapath = datapath;
        let before = table(&config).len();
        let front = Front::NodePort { family: Family::V4, port: 30081 };
        config.services.insert(Exposed {
            protocol: Protocol::Tcp,
            front,
            host_endpoint: None,
            clients: None,
        });
        assert_eq!(table(&config).len() - before, flows);
    }
}

#[test]
fn pods_with_their_own_addresses_leave_and_get_answers() {
    let mut config = config(Mode::Shared);
    config.pod_source = PodSource::Own { management: ["10.128.0.2".parse().unwrap()].into() };
    let flows = table(&config).to_string();
    assert!(!flows.contains("priority=104"), "{flows}");
    for line in [
        "table=1, priority=16,ip,nw_dst=10.128.0.2 actions=output:LOCAL",
        "table=1, priority=15,ip,nw_dst=10.128.0.0/14 actions=output:2",
        "table=1, priority=15,ipv6,ipv6_dst=fd01::/48 actions=output:2",
    ] {
        assert!(flows.contains(line), "{line}: {flows}");
    }
}

#[test]
fn on_the_userspace_datapath_conntrack_alone_leads_fragments() {
    let mut userspace = config(Mode::Shared);
    userspace.bridge.datapath = Datapath::Userspace;
    assert_page(&table(&userspace), "userspace.txt");
}
