//! The ways of packets through the flows, by `ofproto/trace` of a real ovs-vswitchd: which flows a
//! packet meets, and what they do. What conntrack would say is given (`--ct-next`).

use uplink::flows::{Config, Exposed, Family, Front, Mode, Protocol, Vlan, install, table};

use crate::{
    example::config,
    switch::{BRIDGE, Switch},
};

/// Ports and MAC addresses of the example: from the world, from OVN, from the host.
const P: &str = "in_port=1,dl_src=02:00:00:00:00:99,dl_dst=02:00:00:00:00:01";
const T: &str = "in_port=2,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:99";
const L: &str = "in_port=LOCAL,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:99";

struct Ways(Switch);

impl Ways {
    async fn of(config: &Config) -> Self {
        let switch = Switch::start();
        let outcome =
            install(switch.run_dir(), BRIDGE, &table(config)).await.expect("flows are installed");
        assert!(outcome.refused.is_empty(), "{outcome:?}");
        Self(switch)
    }

    /// `TABLE/PRIORITY: ACTIONS` of each flow that the packet meets.
    #[track_caller]
    fn trace(&self, packet: &str, states: &[&str]) -> Vec<String> {
        let options: Vec<&str> = states.iter().flat_map(|state| ["--ct-next", *state]).collect();
        let text = self.0.trace(packet, &options);
        let mut met: Vec<String> = Vec::new();
        // The lines after a conntrack action tell again what is inside of it.
        let mut inside = false;
        for line in text.lines() {
            let flow =
                line.trim_start().split_once(". ").filter(|(table, _)| table.parse::<u8>().is_ok());
            if let Some((table, rest)) = flow {
                let priority =
                    rest.rsplit_once("priority ").map_or("32768", |(_, priority)| priority);
                met.push(format!("{table}/{}:", priority.split(',').next().unwrap_or(priority)));
                inside = false;
            } else if line.trim_start().starts_with("->") {
                inside = false;
            } else if let (Some(action), Some(last)) = (line.strip_prefix("    "), met.last_mut())
                && !inside
                && !["thaw", "  "].iter().any(|other| action.starts_with(other))
            {
                last.push(' ');
                last.push_str(action);
                inside = action.starts_with("ct(");
            }
        }
        met
    }
}

#[tokio::test]
async fn connections_with_the_world_are_marked_and_answers_find_back() {
    let ways = Ways::of(&config(Mode::Shared)).await;
    let (out, back) = (
        "tcp,nw_src=192.0.2.1,nw_dst=198.18.0.9,tp_src=5,tp_dst=443",
        "tcp,nw_src=198.18.0.9,nw_dst=192.0.2.1,tp_src=443,tp_dst=5",
    );
    let of = |port: &str, packet: &str| format!("{port},{packet}");
    assert_eq!(
        ways.trace(&of(T, out), &[]),
        ["0/100: ct(commit,zone=64000,exec(set_field:0x1->ct_mark)) output:1"]
    );
    assert_eq!(
        ways.trace(&of(L, out), &[]),
        ["0/100: ct(commit,zone=64000,exec(set_field:0x2->ct_mark)) output:1"]
    );
    for (mark, port) in [(1, "output:2"), (2, "LOCAL")] {
        let answer = of(P, &format!("ct_mark={mark},{back}"));
        assert_eq!(
            ways.trace(&answer, &["trk,est,rpl"]),
            ["0/50: ct(table=1,zone=64000,nat)", &format!("1/100: {port}")]
        );
    }
    assert_eq!(ways.trace(&of(P, back), &["trk,new"])[1], "1/10: LOCAL");
    // What has not been translated, and what has another MAC address, does not leave.
    let pod = of(T, "tcp,nw_src=10.128.0.5,nw_dst=198.18.0.9,tp_src=5,tp_dst=443");
    assert_eq!(ways.trace(&pod, &[]), ["0/104: drop"]);
    let stray = of(&T.replace("dl_src=02:00:00:00:00:01", "dl_src=02:00:00:00:00:07"), out);
    assert_eq!(ways.trace(&stray, &[]), ["0/9: drop"]);
}

/// A pod's datagram left with the node's address, and other nodes took it for a tunnel's of this
/// node.
#[tokio::test]
async fn a_pods_datagram_to_or_from_a_tunnels_port_does_not_leave() {
    for (mode, port) in [(Mode::Shared, 6081), (Mode::Local, 6081), (Mode::Shared, 6082)] {
        let mut config = config(mode);
        config.bridge.tunnel_ports = [port].into();
        let ways = Ways::of(&config).await;
        let (v4, v6) =
            ("nw_src=192.0.2.1,nw_dst=192.0.2.9", "ipv6_src=2001:db8::1,ipv6_dst=2001:db8::9");
        for packet in [
            format!("udp,{v4},udp_src=50000,udp_dst={port}"),
            format!("udp6,{v6},udp_src=50000,udp_dst={port}"),
            // Its answer would go to the port.
            format!("udp,{v4},udp_src={port},udp_dst=53"),
            // To the host itself, as the gateway router knows it.
            format!("udp,nw_src=192.0.2.1,nw_dst=169.254.169.2,udp_src=50000,udp_dst={port}"),
        ] {
            assert_eq!(
                ways.trace(&format!("{T},{packet}"), &[]),
                ["0/700: drop"],
                "{mode:?}: {packet}"
            );
        }
        // The host's own go on.
        let own = format!("{L},udp,{v4},udp_src=50000,udp_dst={port}");
        assert_eq!(ways.trace(&own, &[]), ["0/200: output:1"], "{mode:?}");
        let others = format!("{T},udp,{v4},udp_src=50000,udp_dst=53");
        assert_ne!(ways.trace(&others, &[]), ["0/700: drop"], "{mode:?}");
    }
}

/// A client on another node is seen with that node's address.
#[tokio::test]
async fn a_services_endpoint_at_a_tunnels_port_of_the_host_is_not_asked() {
    let mut config = config(Mode::Shared);
    let front = Front::NodePort { family: Family::V4, port: 30_053 };
    config.services.retain(|service| service.front != front);
    let host_endpoint = Some("192.0.2.1:6081".parse().unwrap());
    config.services.insert(Exposed {
        protocol: Protocol::Udp,
        front,
        host_endpoint,
        clients: None,
    });
    let ways = Ways::of(&config).await;
    let question = "udp,nw_src=192.0.2.9,nw_dst=192.0.2.1,udp_src=5,udp_dst=30053";
    // To the host, which translates, and drops what that comes to.
    assert_eq!(
        ways.trace(&format!("{P},{question}"), &["trk,new"]),
        ["0/50: ct(table=1,zone=64000,nat)", "1/10: LOCAL"]
    );
}

#[tokio::test]
async fn services_are_reached_from_outside() {
    let ways = Ways::of(&config(Mode::Shared)).await;
    for (packet, expected) in [
        ("tcp,nw_src=198.18.0.9,nw_dst=192.0.2.1,tp_src=5,tp_dst=30080", "0/110: output:2"),
        (
            "tcp6,ipv6_src=2001:db8:9::9,ipv6_dst=2001:db8::1,tp_src=5,tp_dst=30080",
            "0/110: output:2",
        ),
        ("tcp,nw_src=198.18.0.9,nw_dst=203.0.113.7,tp_src=5,tp_dst=80", "0/110: output:2"),
        ("icmp,nw_src=198.18.0.9,nw_dst=203.0.113.7,icmp_type=3,icmp_code=4", "0/110: output:2"),
        // The host and programs on it answer, not the gateway router.
        ("arp,arp_op=1,arp_tpa=203.0.113.7", "0/110: output:3 LOCAL"),
        (
            "icmp6,ipv6_src=2001:db8:9::9,icmpv6_type=135,icmpv6_code=0,nd_target=2001:db8:7::7",
            "0/110: output:3 LOCAL",
        ),
        // Another port of the same address is the node's.
        ("udp,udp_src=6081,udp_dst=6081", "0/205: LOCAL"),
    ] {
        assert_eq!(ways.trace(&format!("{P},{packet}"), &[]), [expected], "{packet}");
    }
    let answer = "tcp,nw_src=203.0.113.7,nw_dst=198.18.0.9,tp_src=80,tp_dst=5";
    assert_eq!(ways.trace(&format!("{T},{answer}"), &[]), ["0/110: output:1"]);
    let other = "tcp,nw_src=198.18.0.9,nw_dst=203.0.113.7,tp_src=5,tp_dst=81";
    assert_eq!(ways.trace(&format!("{P},{other}"), &["trk,new"])[1], "1/10: LOCAL");
}

#[tokio::test]
async fn an_endpoint_on_the_host_sees_the_client() {
    let ways = Ways::of(&config(Mode::Shared)).await;
    let question = "udp,nw_src=198.18.0.9,nw_dst=192.0.2.1,udp_src=5,udp_dst=30053";
    assert_eq!(
        ways.trace(&format!("{P},{question}"), &["trk,new"]),
        ["0/110: ct(commit,table=6,zone=64003,nat(dst=192.0.2.1:53))", "6/110: LOCAL"]
    );
    let answer = "udp,nw_src=192.0.2.1,nw_dst=198.18.0.9,udp_src=53,udp_dst=5";
    assert_eq!(
        ways.trace(&format!("{L},{answer}"), &["trk,est,rpl"]),
        ["0/110: ct(table=7,zone=64003,nat)", "7/110: output:1"]
    );
}

#[tokio::test]
async fn the_host_and_ovn_meet_under_masquerade_addresses() {
    let ways = Ways::of(&config(Mode::Shared)).await;
    let both =
        |from: &str, packet: &str| ways.trace(&format!("{from},{packet}"), &["trk,est", "trk,est"]);
    assert_eq!(
        both(L, "tcp,nw_src=192.0.2.1,nw_dst=172.30.0.1,tp_src=5,tp_dst=80"),
        [
            "0/500: ct(commit,table=2,zone=64001,nat(src=169.254.169.2))",
            "2/100: set_field:02:00:00:00:00:01->eth_dst output:2"
        ]
    );
    assert_eq!(
        both(T, "tcp,nw_src=172.30.0.1,nw_dst=169.254.169.2,tp_src=80,tp_dst=5"),
        [
            "0/500: ct(table=3,zone=64001,nat)",
            "3/32768: move:NXM_OF_ETH_DST[]->NXM_OF_ETH_SRC[] set_field:02:00:00:00:00:01->eth_dst LOCAL"
        ]
    );
    assert_eq!(
        both(T, "tcp6,ipv6_src=2001:db8::1,ipv6_dst=fd69::2,tp_src=5,tp_dst=80"),
        [
            "0/500: ct(commit,table=4,zone=64001,nat(dst=2001:db8::1))",
            "4/32768: ct(commit,table=3,zone=64002,nat(src=fd69::1))",
            "3/32768: move:NXM_OF_ETH_DST[]->NXM_OF_ETH_SRC[] set_field:02:00:00:00:00:01->eth_dst LOCAL"
        ]
    );
    assert_eq!(
        both(L, "tcp6,ipv6_src=2001:db8::1,ipv6_dst=fd69::1,tp_src=80,tp_dst=5"),
        [
            "0/500: ct(table=5,zone=64002,nat)",
            "5/32768: ct(commit,table=2,zone=64001,nat)",
            "2/100: set_field:02:00:00:00:00:01->eth_dst output:2"
        ]
    );
    for port in ["5", "30080"] {
        let unknown = format!("tcp,nw_src=192.0.2.1,nw_dst=172.30.0.99,tp_src={port},tp_dst=80");
        assert_eq!(both(T, &unknown), ["0/115: drop"]);
    }
}

#[tokio::test]
async fn in_local_mode_ovn_leaves_through_the_host() {
    let ways = Ways::of(&config(Mode::Local)).await;
    let out = "tcp,nw_src=192.0.2.1,nw_dst=198.18.0.9,tp_src=5,tp_dst=443";
    assert_eq!(
        ways.trace(&format!("{T},{out}"), &["trk,new", "trk,new"])[..2],
        [
            "0/175: ct(table=4,zone=64001)",
            "4/32768: ct(commit,table=3,zone=64002,nat(src=169.254.169.1))"
        ]
    );
    // Both branches are traced; the datapath compares the length.
    let back = ways
        .trace(&format!("{P},ct_mark=1,tcp,nw_src=198.18.0.9,nw_dst=192.0.2.1"), &["trk,est,rpl"]);
    assert_eq!(back[1], "1/100: check_pkt_larger(1414)->NXM_NX_REG0[0] resubmit(,11)");
    assert!(back[2].starts_with("11/10:") && back[3].starts_with("11/1:"), "{back:?}");
    let node_port = "tcp,nw_src=198.18.0.9,nw_dst=192.0.2.1,tp_src=5,tp_dst=30080";
    assert_eq!(ways.trace(&format!("{P},{node_port}"), &["trk,new"])[1], "1/10: LOCAL");
}

#[tokio::test]
async fn with_a_vlan_the_host_sees_none() {
    let mut tagged = config(Mode::Shared);
    tagged.bridge.vlan = Some(Vlan::try_from(100).expect("a VLAN"));
    let ways = Ways::of(&tagged).await;
    let out = "tcp,nw_src=192.0.2.1,nw_dst=198.18.0.9,tp_src=5,tp_dst=443";
    assert_eq!(
        ways.trace(&format!("{L},{out}"), &[]),
        ["0/100: ct(commit,zone=64000,exec(set_field:0x2->ct_mark)) push_vlan:0x8100 \
          set_field:4196->vlan_vid output:1"]
    );
    let back = "dl_vlan=100,tcp,nw_src=198.18.0.9,nw_dst=192.0.2.1,tp_src=443,tp_dst=5";
    assert_eq!(
        ways.trace(&format!("{P},ct_mark=2,{back}"), &["trk,est,rpl"])[1],
        "1/100: pop_vlan LOCAL"
    );
    assert_eq!(
        ways.trace(&format!("{P},ct_mark=1,{back}"), &["trk,est,rpl"])[1],
        "1/100: output:2"
    );
    let service = "tcp,nw_src=192.0.2.1,nw_dst=172.30.0.1,tp_src=5,tp_dst=80";
    assert_eq!(
        ways.trace(&format!("{L},{service}"), &["trk,new"])[1],
        "2/100: set_field:02:00:00:00:00:01->eth_dst push_vlan:0x8100 set_field:4196->vlan_vid output:2"
    );
}
