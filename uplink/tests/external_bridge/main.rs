//! The flows of an external bridge in a real ovs-vswitchd: written, read, put back, removed.

mod example;
mod fragments;
mod switch;
mod ways;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use example::config;
use switch::{BRIDGE, Switch};
use testkit::eventually;
use tokio::sync::{mpsc, watch};
use uplink::flows::{
    Action, Config, Datapath, Event, Exposed, ExternalBridge, Family, Flows, Front, HostAddresses,
    Masquerade, Match, Mode, OfPort, Outcome, PodSource, Ports, Protocol, Vlan, Zone, bootstrap,
    install, keep, release, table,
};

#[tokio::test]
async fn what_was_written_is_read_as_the_same() {
    let switch = Switch::start();
    let mut tagged = config(Mode::Local);
    tagged.bridge.vlan = Some(Vlan::try_from(100).unwrap());
    let mut userspace = config(Mode::Shared);
    userspace.bridge.datapath = Datapath::Userspace;
    for config in [config(Mode::Shared), config(Mode::Local), userspace, tagged] {
        let flows = table(&config);
        let outcome = install(switch.run_dir(), BRIDGE, &flows).await.unwrap();
        assert!(
            outcome.added > 0 && outcome.refused.is_empty() && outcome.conflicts.is_empty(),
            "{outcome:?}"
        );
        switch.assert_has(&flows);
        let again = install(switch.run_dir(), BRIDGE, &flows).await.unwrap();
        assert!(again.is_empty(), "{again:?}");
    }
}

#[tokio::test]
async fn one_node_port_more_is_the_flows_of_that_port() {
    let switch = Switch::start();
    let mut config = config(Mode::Shared);
    install(switch.run_dir(), BRIDGE, &table(&config)).await.unwrap();
    let front = Front::NodePort { family: Family::V4, port: 30081 };
    let service = Exposed { protocol: Protocol::Tcp, front, host_endpoint: None, clients: None };
    config.services.insert(service.clone());
    let outcome = install(switch.run_dir(), BRIDGE, &table(&config)).await.unwrap();
    assert_eq!((outcome.added, outcome.removed), (2, 0));
    assert!(outcome.bytes < 500, "{outcome:?}");
    // An endpoint appeared on the host: the flow from the world changes in its place.
    config.services.remove(&service);
    config
        .services
        .insert(Exposed { host_endpoint: Some("192.0.2.7:8080".parse().unwrap()), ..service });
    let outcome = install(switch.run_dir(), BRIDGE, &table(&config)).await.unwrap();
    assert_eq!((outcome.added, outcome.removed), (2, 1));
    switch.assert_has(&table(&config));
}

#[tokio::test]
async fn foreign_flows_stay_and_a_released_bridge_is_a_switch() {
    let switch = Switch::start();
    let foreign =
        ["cookie=0x7,table=0,priority=700,arp,actions=drop", "table=9,ip,actions=dec_ttl,NORMAL"];
    let in_the_way = "cookie=0x8,table=2,priority=100,actions=drop";
    for flow in foreign.iter().chain([&in_the_way]) {
        switch.ofctl(&["add-flow"], &[flow]);
    }
    let before = switch.dump();
    let flows = table(&config(Mode::Shared));
    let outcome = install(switch.run_dir(), BRIDGE, &flows).await.unwrap();
    assert_eq!(outcome.conflicts.len(), 1, "{outcome:?}");
    assert_eq!(switch.ours(), flows.len() - 2, "all but NORMAL and the conflict");
    let dump = switch.dump();
    assert!(before.iter().all(|flow| dump.contains(flow)), "{before:#?}\n{dump:#?}");
    // Left by another version of this program, or by upstream.
    switch.ofctl(&["add-flow"], &["cookie=0xdeff105,table=3,udp,actions=dec_ttl,output:1"]);
    switch.ofctl(&["add-flow"], &["cookie=0xdeff105,table=8,tun_id=5,actions=drop"]);
    let outcome = install(switch.run_dir(), BRIDGE, &flows).await.unwrap();
    assert_eq!((outcome.added, outcome.removed), (0, 2), "{outcome:?}");

    let outcome = release(switch.run_dir(), BRIDGE).await.unwrap();
    assert_eq!(outcome.removed, flows.len() - 2);
    assert_eq!(switch.dump(), before);
    assert!(release(switch.run_dir(), BRIDGE).await.unwrap().is_empty());
}

/// A connection of the world to the node was dead ever after: what the datapath did by the former
/// flows stayed.
#[tokio::test]
async fn the_datapath_forgets_what_it_did_by_flows_that_are_released_or_of_another_mode() {
    const PACKET: &str = "in_port(1),eth(src=0a:00:00:00:00:09,dst=0a:00:00:00:00:0a),eth_type(0x0800),\
        ipv4(src=203.0.113.9,dst=192.0.2.1,proto=6,tos=0,ttl=63,frag=no),tcp(src=40000,dst=22),tcp_flags(ack)";
    let switch = Switch::start();
    let entries = || switch.appctl(&["dpctl/dump-flows", "dummy@ovs-dummy"]);
    let pass = || {
        switch.appctl(&["netdev-dummy/receive", "p1", PACKET]);
        eventually("the datapath knows the packet", Duration::from_secs(10), || {
            let entries = entries();
            if entries.contains("203.0.113.9") || entries.contains("in_port(1)") {
                Ok(())
            } else {
                Err(entries)
            }
        });
    };
    install(switch.run_dir(), BRIDGE, &table(&config(Mode::Shared))).await.unwrap();
    pass();
    release(switch.run_dir(), BRIDGE).await.unwrap();
    assert_eq!(entries(), "");
    install(switch.run_dir(), BRIDGE, &table(&config(Mode::Shared))).await.unwrap();
    pass();
    let (_desired, receiver) = watch::channel(Arc::new(table(&config(Mode::Local))));
    let (sender, mut events) = mpsc::unbounded_channel();
    let run_dir = switch.run_dir().to_owned();
    let kept = tokio::spawn(async move {
        keep(&run_dir, BRIDGE, receiver, |event| drop(sender.send(event))).await;
    });
    let event = events.recv().await;
    assert!(matches!(event, Some(Event::Installed { .. })), "{event:?}");
    assert_eq!(entries(), "");
    kept.abort();
}

/// Upstream writes them with a cookie for each Service. They stayed for ever after a take-over, and
/// those of a Service that had changed stood in the way.
#[tokio::test]
async fn flows_of_services_stay_until_the_services_are_known_and_whoever_wrote_them_follow_the_services()
 {
    let switch = Switch::start();
    let mut config = config(Mode::Shared);
    let flows = table(&config);
    let theirs = [
        "cookie=0x12cb7db7fc511dde, priority=110,tcp,in_port=1,tp_dst=30080 actions=drop",
        "cookie=0x12cb7db7fc511ddf, priority=110,tcp,in_port=1,tp_dst=30999 actions=output:2",
    ];
    for flow in theirs {
        switch.ofctl(&["add-flow"], &[&flow.replace(" actions", ",actions").replace(", ", ",")]);
    }
    let before = switch.dump();
    config.services.clear();
    let unknown = table(&config).without_knowing_services();
    install(switch.run_dir(), BRIDGE, &unknown).await.unwrap();
    let dump = switch.dump();
    assert!(before.iter().all(|flow| dump.contains(flow)), "{before:#?}\n{dump:#?}");

    let outcome = install(switch.run_dir(), BRIDGE, &flows).await.unwrap();
    assert!(outcome.conflicts.is_empty() && outcome.removed == 1, "{outcome:?}");
    switch.assert_has(&flows);
    // As after a restart, while the API server does not answer.
    let outcome = install(switch.run_dir(), BRIDGE, &unknown).await.unwrap();
    assert!(outcome.is_empty(), "{outcome:?}");
    release(switch.run_dir(), BRIDGE).await.unwrap();
    assert_eq!(switch.dump(), ["priority=0 actions=NORMAL"]);
}

#[tokio::test]
async fn a_bridge_without_normal_gets_one_and_keeps_it() {
    let switch = Switch::start();
    switch.ofctl(&["del-flows"], &[]);
    let flows = bootstrap(&config(Mode::Shared).bridge);
    assert_eq!(install(switch.run_dir(), BRIDGE, &flows).await.unwrap().added, 8);
    assert_eq!(switch.ours(), 8);
    let outcome = release(switch.run_dir(), BRIDGE).await.unwrap();
    assert_eq!((outcome.added, outcome.removed), (1, 7));
    assert_eq!(switch.dump(), ["priority=0 actions=NORMAL"]);
}

#[tokio::test]
async fn a_refused_flow_is_named_and_the_others_are_installed() {
    let switch = Switch::start();
    let mut flows = table(&config(Mode::Shared));
    // Taking off a tag that no packet has.
    flows.add(0, 90, Match::default(), [Action::PopVlan, Action::Output(OfPort(1))]);
    let outcome = install(switch.run_dir(), BRIDGE, &flows).await.unwrap();
    let refused: Vec<String> = outcome.refused.iter().map(|(flow, ..)| flow.to_string()).collect();
    assert_eq!(refused, ["table=0, priority=90 actions=pop_vlan,output:1"]);
    assert_eq!(switch.ours(), flows.len() - 2);
}

#[tokio::test]
async fn what_the_bridge_does_not_speak_is_named() {
    let switch = Switch::start();
    switch.speak("OpenFlow10,OpenFlow13");
    let error = install(switch.run_dir(), BRIDGE, &Flows::default()).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    let socket = switch.run_dir().join("breth0.mgmt");
    assert_eq!(error.to_string(), "OpenFlow with bridge breth0");
    assert_eq!(source, format!("{}: the bridge does not speak OpenFlow 1.4", socket.display()));
}

#[tokio::test]
async fn an_installation_that_is_cut_off_changes_nothing_or_all() {
    let switch = Switch::start();
    let flows = table(&with_node_ports(config(Mode::Shared), 500));
    let all = flows.len() - 1;
    let mut unfinished = 0;
    for microseconds in (0..40).map(|step| step * 500) {
        let installing = install(switch.run_dir(), BRIDGE, &flows);
        let ended = tokio::time::timeout(Duration::from_micros(microseconds), installing).await;
        unfinished += usize::from(ended.is_err());
        let ours = switch.ours();
        assert!(ours == 0 || ours == all, "{ours} of {all} after {microseconds} µs");
        release(switch.run_dir(), BRIDGE).await.unwrap();
    }
    assert!(unfinished > 0, "no installation was cut off");
}

fn with_node_ports(mut config: Config, ports: u16) -> Config {
    let exposed = (0..ports).map(|index| Exposed {
        protocol: Protocol::Tcp,
        front: Front::NodePort { family: Family::V4, port: 30000 + index },
        host_endpoint: None,
        clients: None,
    });
    config.services = exposed.collect();
    config
}

#[tokio::test]
async fn flows_are_kept_through_changes_by_others_and_the_death_of_the_switch() {
    let mut switch = Switch::start();
    let run_dir = switch.run_dir().to_owned();
    let mut config = config(Mode::Shared);
    let flows = Arc::new(table(&config));
    let (wanted, desired) = watch::channel(Arc::clone(&flows));
    let (events, mut seen) = mpsc::unbounded_channel();
    let keeper = tokio::spawn(async move {
        keep(&run_dir, BRIDGE, desired, |event| drop(events.send(event))).await;
    });
    assert_eq!(installed(&mut seen).await.added, flows.len() - 1);

    // The flows of another program do not matter.
    switch.ofctl(&["add-flow"], &["cookie=0x7,table=0,priority=700,arp,actions=drop"]);
    switch.ofctl(&["del-flows"], &["cookie=0xdeff105/-1,table=1"]);
    assert!(matches!(seen.recv().await, Some(Event::Changed)));
    assert!(installed(&mut seen).await.added > 10);
    switch.ofctl(&["--strict", "mod-flows"], &["table=2,priority=100,actions=drop"]);
    assert!(matches!(seen.recv().await, Some(Event::Changed)));
    assert_eq!(installed(&mut seen).await.added, 1);
    switch.ofctl(&["add-flow"], &["cookie=0xdeff105,table=20,actions=drop"]);
    assert!(matches!(seen.recv().await, Some(Event::Changed)));
    assert_eq!(installed(&mut seen).await.removed, 1);

    config.services.clear();
    let fewer = Arc::new(table(&config));
    wanted.send_replace(Arc::clone(&fewer));
    assert_eq!(installed(&mut seen).await.removed, flows.len() - fewer.len());

    switch.restart();
    let back = Instant::now();
    assert!(matches!(seen.recv().await, Some(Event::Lost(_))));
    assert_eq!(installed(&mut seen).await.added, fewer.len() - 1);
    assert!(back.elapsed() < Duration::from_secs(1), "{:?}", back.elapsed());
    assert!(seen.try_recv().is_err(), "own changes were taken for those of others");
    drop(wanted);
    keeper.await.unwrap();
    switch.assert_has(&fewer);
}

async fn installed(events: &mut mpsc::UnboundedReceiver<Event>) -> Outcome {
    let event = tokio::time::timeout(Duration::from_secs(20), events.recv()).await;
    match event.expect("an event within 20 s") {
        Some(Event::Installed { outcome, .. }) => outcome,
        other => panic!("{other:?}"),
    }
}

/// Prints figures: `cargo test -p uplink --test external_bridge -- --nocapture two_thousand`.
#[tokio::test]
async fn two_thousand_node_ports_are_installed_in_one_bundle() {
    let switch = Switch::start();
    let mut config = with_node_ports(config(Mode::Shared), 2000);
    let start = Instant::now();
    let flows = table(&config);
    let computed = start.elapsed();
    let start = Instant::now();
    let outcome = install(switch.run_dir(), BRIDGE, &flows).await.unwrap();
    let from_nothing = start.elapsed();
    println!(
        "{} flows, computed in {computed:?}; from nothing {from_nothing:?}, {} bytes",
        flows.len(),
        outcome.bytes
    );
    assert_eq!(outcome.added, flows.len() - 1);

    let (wanted, desired) = watch::channel(Arc::new(flows));
    let (events, mut seen) = mpsc::unbounded_channel();
    let run_dir = switch.run_dir().to_owned();
    let start = Instant::now();
    tokio::spawn(
        async move { keep(&run_dir, BRIDGE, desired, |event| drop(events.send(event))).await },
    );
    assert!(installed(&mut seen).await.is_empty());
    println!("read and compared in {:?}", start.elapsed());
    let front = Front::NodePort { family: Family::V4, port: 32700 };
    config.services.insert(Exposed {
        protocol: Protocol::Tcp,
        front,
        host_endpoint: None,
        clients: None,
    });
    let start = Instant::now();
    wanted.send_replace(Arc::new(table(&config)));
    let outcome = installed(&mut seen).await;
    println!("one more {:?}, {} bytes", start.elapsed(), outcome.bytes);
    assert_eq!((outcome.added, outcome.removed), (2, 0));
    assert!(outcome.bytes < 500, "{outcome:?}");

    let (all, port) = (table(&config), config.services.pop_last().map(|last| [last].into()));
    let without = table(&config);
    config.services = port.unwrap_or_default();
    let mut only = Flows::default();
    for (slot, actions) in table(&config).iter().filter(|(slot, _)| without.actions(slot).is_none())
    {
        only.add(slot.table, slot.priority, slot.matching, actions);
    }
    assert_eq!(only.len(), 2);
    switch.ofctl(&["del-flows"], &["cookie=0xdeff105/-1"]);
    let replace = ["--bundle", "replace-flows"];
    for (what, command, flows) in [
        ("from nothing", replace, &all),
        ("the same again", replace, &all),
        ("one more", ["--bundle", "add-flows"], &only),
    ] {
        let start = Instant::now();
        let file = switch.file("flows", flows);
        switch.ofctl(&command, &[&file]);
        println!("ovs-ofctl {}, {what}: {:?}", command.join(" "), start.elapsed());
    }
}
