use std::{net::Ipv4Addr, time::Instant};

use super::*;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn all(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn node_port(port: u16, cluster: &str, targets: &[&str], local: Option<&[&str]>) -> Destination {
    Destination {
        address: None,
        protocol: Protocol::Tcp,
        port,
        cluster: address(cluster),
        targets: all(targets),
        local: local.map(all),
        hosts: Vec::new(),
        clients: None,
    }
}

/// An address of a load balancer that takes connections of these clients only.
fn limited(at: &str, cluster: &str, clients: &[&str]) -> Destination {
    Destination {
        address: Some(address(at)),
        clients: Some(clients.iter().map(|text| text.parse().unwrap()).collect()),
        ..node_port(80, cluster, &[&SocketAddr::new(address(cluster), 80).to_string()], None)
    }
}

/// One of each kind, in both families.
fn every_kind() -> Vec<Destination> {
    let v4 = [
        node_port(30080, "10.96.0.7", &["10.96.0.7:80"], None),
        node_port(30081, "10.96.0.8", &["10.96.0.8:80"], Some(&["169.254.169.3:30081"])),
        Destination {
            address: Some(address("198.51.100.9")),
            ..node_port(80, "10.96.0.9", &["10.96.0.9:80"], Some(&[]))
        },
        Destination {
            address: Some(address("10.96.0.1")),
            protocol: Protocol::Udp,
            hosts: all(&["192.0.2.7:6443", "192.0.2.8:6443"]),
            ..node_port(443, "10.96.0.1", &["192.0.2.7:6443", "192.0.2.8:6443"], None)
        },
        limited("198.51.100.10", "10.96.0.10", &["192.0.2.0/24", "203.0.113.7/32"]),
    ];
    let v6 = [
        node_port(30080, "fd00:10:96::7", &["[fd00:10:96::7]:80"], None),
        node_port(30081, "fd00:10:96::8", &["[fd00:10:96::8]:80"], Some(&["[fd69::3]:30081"])),
        Destination {
            address: Some(address("2001:db8:9::9")),
            protocol: Protocol::Sctp,
            hosts: all(&["[2001:db8::7]:80"]),
            ..node_port(80, "fd00:10:96::9", &["[2001:db8::7]:80"], Some(&[]))
        },
        limited("2001:db8:9::10", "fd00:10:96::10", &["2001:db8::/64", "8000::/1"]),
    ];
    v4.into_iter().chain(v6).collect()
}

/// A pod's answer to another machine would leave through the gateway router, which does not know
/// the connection.
#[test]
fn behind_a_shared_gateway_what_comes_over_another_nic_has_the_address_of_the_node() {
    in_a_namespace(async || {
        for clients in [ClientAddresses::Kept, ClientAddresses::Given] {
            assert!(
                ServiceRules::new(clients, tunnels()).correct(&every_kind()).await.unwrap(),
                "{clients:?}"
            );
            assert!(
                !ServiceRules::new(clients, tunnels()).correct(&every_kind()).await.unwrap(),
                "{clients:?}"
            );
            let kept = Use::SourceKept.set(Family::V4).look().await.unwrap();
            let has_elements = matches!(kept, FoundSet::Elements(elements) if !elements.is_empty());
            assert_eq!(has_elements, clients == ClientAddresses::Kept, "{clients:?}");
            assert!(!elements(Use::LocalServices, Family::V4).await.is_empty(), "{clients:?}");
        }
    });
}

fn tunnels() -> BTreeSet<u16> {
    [6081].into()
}

fn with_tunnels() -> ServiceRules {
    ServiceRules::new(ClientAddresses::Kept, tunnels())
}

/// In a network namespace of its own.
fn in_a_namespace<T: Send + 'static>(body: impl AsyncFnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
            .expect("a network namespace: this test runs as root");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(body())
    });
    thread.join().unwrap()
}

async fn elements(purpose: Use, family: Family) -> Elements {
    match purpose.set(family).look().await.unwrap() {
        FoundSet::Elements(elements) => elements,
        found @ (FoundSet::Nothing | FoundSet::Other) => panic!("{found:?}"),
    }
}

#[test]
fn the_kernel_shows_what_was_written_and_changes_only_what_differs() {
    in_a_namespace(async || {
        let mut rules = with_tunnels();
        assert!(!rules.correct(&[]).await.unwrap());
        assert_eq!(PREROUTING.look().await.unwrap(), Found::Nothing);

        let all = every_kind();
        let plan = Plan::new(&all);
        assert!(rules.correct(&all).await.unwrap());
        for (chain, wanted) in [
            (PREROUTING, plan.prerouting(&tunnels())),
            (OUTPUT, plan.output(&tunnels())),
            (POSTROUTING, plan.postrouting()),
        ] {
            assert_eq!(chain.look().await.unwrap(), Found::Rules(wanted), "{}", chain.name);
        }
        for ((purpose, family), wanted) in &plan.sets {
            assert_eq!(elements(*purpose, *family).await, *wanted, "{purpose:?} {family:?}");
        }
        assert!(!rules.correct(&all).await.unwrap());
        // As after a restart.
        assert!(!with_tunnels().correct(&all).await.unwrap());

        // Another program removes the table. Without a word of it nothing is read.
        assert!(PREROUTING.remove_table().await.unwrap());
        for _ in 0..3 {
            assert!(!rules.correct(&all).await.unwrap());
        }
        rules.doubt();
        assert!(rules.correct(&all).await.unwrap());
        assert_eq!(PREROUTING.look().await.unwrap(), Found::Rules(plan.prerouting(&tunnels())));

        let fewer = &all[1..];
        assert!(rules.correct(fewer).await.unwrap());
        assert_eq!(
            elements(Use::Services, Family::V4).await,
            Plan::new(fewer).sets[&(Use::Services, Family::V4)]
        );
        assert!(rules.correct(&[]).await.unwrap());
        assert_eq!(PREROUTING.look().await.unwrap(), Found::Rules(Vec::new()));
        assert_eq!(elements(Use::Services, Family::V6).await, Elements::new());
    });
}

/// Upstream's server did not start any more: it found a chain of its name with another priority.
#[test]
fn chains_of_upstreams_server_go_with_the_first_rule_of_ours_and_no_chain_of_ours_has_their_names()
{
    in_a_namespace(async || {
        let theirs = FORMER.map(|chain| Chain { task: Task::Forward, ..chain });
        let make = theirs.iter().flat_map(|chain| chain.replacement(&Found::Nothing, &[]));
        commit([create_table(TABLE)].into_iter().chain(make).collect()).await.unwrap();
        with_tunnels().correct(&[]).await.unwrap();
        for chain in theirs {
            assert_eq!(chain.look().await.unwrap(), Found::Rules(Vec::new()), "{}", chain.name);
        }
        with_tunnels().correct(&every_kind()).await.unwrap();
        for chain in theirs {
            assert_eq!(chain.look().await.unwrap(), Found::Nothing, "{}", chain.name);
        }
        assert!(!with_tunnels().correct(&every_kind()).await.unwrap());
    });
}

#[test]
fn all_of_it_goes_and_upstreams_chains_stay() {
    in_a_namespace(async || {
        assert_eq!(remove().await.unwrap(), [""; 0], "no table");
        with_tunnels().correct(&every_kind()).await.unwrap();
        let theirs = FORMER.map(|chain| Chain { task: Task::Forward, ..chain });
        let make = theirs.iter().flat_map(|chain| chain.replacement(&Found::Nothing, &[]));
        commit(make.collect()).await.unwrap();
        assert_eq!(
            remove().await.unwrap(),
            [PREROUTING, OUTPUT, POSTROUTING].map(|chain| chain.name)
        );
        for set in
            Use::ALL.into_iter().flat_map(|purpose| Family::ALL.map(|family| purpose.set(family)))
        {
            assert_eq!(set.look().await.unwrap(), FoundSet::Nothing, "{}", set.name);
        }
        for chain in theirs {
            assert_eq!(chain.look().await.unwrap(), Found::Rules(Vec::new()), "{}", chain.name);
        }
        assert_eq!(remove().await.unwrap(), [""; 0], "again");
    });
}

#[test]
fn a_set_of_another_layout_is_replaced() {
    in_a_namespace(async || {
        let set = Use::Services.set(Family::V4);
        let other =
            Set { key: Kind { number: IPV4_ADDR, length: 4 }, content: Content::Nothing, ..set };
        commit(vec![create_table(TABLE), other.create()]).await.unwrap();
        assert!(with_tunnels().correct(&every_kind()).await.unwrap());
        assert!(!with_tunnels().correct(&every_kind()).await.unwrap());
    });
}

/// More than the kernel takes in one transaction, and still a handful of rules.
#[test]
fn ten_thousand_node_ports_are_elements_and_not_rules() {
    in_a_namespace(async || {
        let many: Vec<Destination> = (20_000..30_000)
            .map(|port| {
                node_port(port, "fd00:10:96::7", &["[fd00:10:96::7]:80"], Some(&["[fd69::3]:1"]))
            })
            .collect();
        let mut rules = with_tunnels();
        assert!(rules.correct(&many).await.unwrap());
        assert!(!rules.correct(&many).await.unwrap());
        // A hundred times less, unless each costs as much as all before it.
        let began = Instant::now();
        assert_eq!(elements(Use::Services, Family::V6).await.len(), 10_000);
        assert!(began.elapsed().as_secs() < 2, "{:?}", began.elapsed());
        assert_eq!(Plan::new(&many).prerouting(&tunnels()).len(), 5);
        assert!(rules.correct(&many[1..]).await.unwrap());
        assert!(rules.correct(&[]).await.unwrap());
    });
}

/// The kernel refuses networks that overlap, also those that are just being replaced.
#[test]
fn the_clients_of_a_load_balancer_change_while_it_is_there() {
    in_a_namespace(async || {
        let mut rules = with_tunnels();
        for clients in [
            &["192.0.2.0/24"][..],
            &["192.0.2.0/25", "203.0.113.0/24"],
            &["192.0.0.0/16"],
            &["0.0.0.0/0"],
            &[],
            &["192.0.2.1/32"],
        ] {
            let wanted = [limited("198.51.100.10", "10.96.0.10", clients)];
            assert!(rules.correct(&wanted).await.unwrap(), "{clients:?}");
            assert!(!with_tunnels().correct(&wanted).await.unwrap(), "{clients:?}");
            assert_eq!(elements(Use::Clients, Family::V4).await.len(), clients.len());
            assert_eq!(elements(Use::Limited, Family::V4).await.len(), 1);
        }
        let listed = std::process::Command::new("nft").args(["list", "ruleset"]).output().unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout);
        let client = "c6:33:64:0a:06:00:00:00:00:50:00:00:c0:00:02:01";
        assert!(listed.contains(client), "for administrators, too: {listed}");
        let free = Destination { clients: None, ..limited("198.51.100.10", "10.96.0.10", &[]) };
        assert!(rules.correct(&[free]).await.unwrap());
        assert_eq!(elements(Use::Limited, Family::V4).await, Elements::new());
    });
}

/// A user makes them; the kernel's time is everybody's.
#[test]
fn ten_times_the_clients_cost_no_hundred_times_the_time() {
    in_a_namespace(async || {
        let of = |count: u32| {
            let every_second = (0..count)
                .map(|number| format!("{}/32", Ipv4Addr::from_bits(0xc612_0000 + 2 * number)));
            let clients: Vec<String> = every_second.collect();
            limited(
                "198.51.100.10",
                "10.96.0.10",
                &clients.iter().map(String::as_str).collect::<Vec<_>>(),
            )
        };
        let (some, many) = (of(1_000), of(10_000));
        let mut rules = with_tunnels();
        let mut takes = async |wanted: &[Destination]| {
            let began = Instant::now();
            assert!(rules.correct(wanted).await.unwrap());
            began.elapsed()
        };
        let (first, gone) = (takes(&[some]).await, takes(&[]).await);
        let (of_many, many_gone) = (takes(&[many]).await, takes(&[]).await);
        assert!(of_many < 40 * first, "{of_many:?} for 10,000 clients, {first:?} for 1,000");
        assert!(
            many_gone < 40 * gone,
            "{many_gone:?} without 10,000 clients, {gone:?} without 1,000"
        );
        eprintln!("made: {first:?}, {of_many:?}; removed: {gone:?}, {many_gone:?}");
    });
}

/// With sixty numbers of targets, the rules of all chains were more than one message, and none was
/// written.
#[test]
fn services_with_each_number_of_targets_on_hosts_have_their_rules_written() {
    in_a_namespace(async || {
        let targets: Vec<String> = (1..=64).map(|host| format!("192.0.2.{host}:80")).collect();
        let targets_v6: Vec<String> =
            (1..=64).map(|host| format!("[2001:db8::{host:x}]:80")).collect();
        let every: Vec<Destination> = (1..=64_usize)
            .flat_map(|number| {
                let of = |all: &[String], cluster: &str, at: &str| {
                    let some: Vec<&str> = all[..number].iter().map(String::as_str).collect();
                    let port = u16::try_from(20_000 + number).unwrap();
                    let of_host = node_port(port, cluster, &some, Some(&some));
                    [Destination { address: Some(address(at)), ..of_host.clone() }, of_host]
                };
                let v4 = of(&targets, "10.96.0.7", "198.51.100.7");
                v4.into_iter().chain(of(&targets_v6, "fd00:10:96::7", "2001:db8:9::7"))
            })
            .collect();
        let mut rules = with_tunnels();
        assert!(rules.correct(&every).await.unwrap());
        assert!(!with_tunnels().correct(&every).await.unwrap());
        // For each number, family, kind of address and map: a number for each power of two up to
        // 256.
        assert_eq!(Plan::new(&every).draws(Use::Services).count(), 9 * 4);
    });
}

#[test]
fn each_target_has_its_share_of_the_lots() {
    assert_eq!(lots(0), None);
    for targets in 1..=64_usize {
        let lots = usize::try_from(lots(targets).unwrap()).unwrap();
        assert!(
            lots.is_power_of_two()
                && (lots == targets || lots >= 4 * targets && lots < 8 * targets)
        );
    }
}

/// A Service with the addresses of all nodes as those of its load balancer ended the overlay, and
/// that of a cluster whose tunnels have another port than Geneve's own.
#[test]
fn packets_of_tunnels_are_not_translated_whatever_port_they_have() {
    in_a_namespace(async || {
        let thief = Destination {
            address: Some(address("192.0.2.7")),
            protocol: Protocol::Udp,
            ..node_port(6082, "10.96.0.66", &["10.96.0.66:6082"], None)
        };
        let mut rules = ServiceRules::new(ClientAddresses::Kept, [6082, 4789].into());
        assert!(rules.correct(&[thief]).await.unwrap());
        for chain in [PREROUTING, OUTPUT] {
            let output = std::process::Command::new("nft")
                .args(["list", "chain", "inet", chain.table, chain.name])
                .output()
                .expect("nft can be started");
            let text = String::from_utf8(output.stdout).unwrap();
            let at =
                |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what:?} in\n{text}"));
            assert!(
                at("udp dport 6082 accept").max(at("udp dport 4789 accept")) < at("dnat"),
                "{text}"
            );
            assert!(!text.contains("6081"), "{text}");
        }
    });
}
