//! Outputs of ovn-trace 23.03 and what is read of them.

use std::collections::BTreeMap;

use contract::wire::TraceProtocol;

use super::{
    follow::summary,
    objects::{self, Object},
    program::Packet,
    steps::{self, WayEnd, backends},
    way::{Verdict, Way, of_port},
};
use crate::findings::State;

const DENIED: &str = r#"# tcp,reg14=0x2,dl_src=0a:58:0a:f4:01:03,nw_dst=10.244.2.3,tp_dst=9090

ingress(dp="node1", inport="lab_a")
-----------------------------------
 0. ls_in_check_port_sec (northd.c:8432): 1, priority 50, uuid 4f2b8446
    reg0[15] = check_in_port_sec();
    next;
25. ls_in_l2_lkup (northd.c:9193): eth.dst == 0a:58:0a:f4:01:01, priority 50, uuid 23c60e56
    outport = "stor-node1";
    output;
    /* output to "stor-node1", type "patch" */

ingress(dp="ovn_cluster_router", inport="rtos-node1")
-----------------------------------------------------
13. lr_in_ip_routing (northd.c:10388): ip4.dst == 10.244.2.0/24, priority 74, uuid 09e4e908
    outport = "rtos-node2";
    next;

egress(dp="node2", inport="stor-node2", outport="lab_b")
--------------------------------------------------------
 2. ls_out_pre_stateful (northd.c:6135): reg0[2] == 1, priority 110, uuid 2527a140
    ct_lb_mark;

ct_lb_mark
----------
 3. ls_out_acl_hint (northd.c:6190): ct.new && !ct.est, priority 7, uuid f1ae1585
    reg0[7] = 1;
    next;
 4. ls_out_acl (x.c:1): reg0[9] == 1 && (outport == @a && (ip4 || x)), priority 2000, uuid 3cc935db
    drop;
"#;

/// OVN 25.03 has the verdict in a stage of its own.
const DENIED_LATER: &str = r#"
egress(dp="node2", inport="stor-node2", outport="lab_b")
--------------------------------------------------------
 5. ls_out_acl_eval (x.c:1): reg8[30..31] == 2 && (outport == @a1), priority 2000, uuid 3cc935db
    reg8[17] = 1;
    next;
 7. ls_out_acl_action (northd.c:7200): reg8[17] == 1, priority 1000, uuid 11111111
    reg8[16] = 0;
    drop;
"#;

const ALLOWED: &str = r#"
egress(dp="node2", inport="stor-node2", outport="lab_b")
--------------------------------------------------------
 9. ls_out_apply_port_sec (northd.c:5777): 1, priority 0, uuid 54d35c10
    output;
    /* output to "lab_b", type "" */
"#;

const REFUSED: &str = r#"
ingress(dp="node1", inport="lab_a")
-----------------------------------
12. ls_in_lb (x.c:1): ct.new && ip4.dst == 10.96.0.11 && tcp.dst == 80, priority 120, uuid 4ad9f7b7
    reg0 = 0;
    reject { outport <-> inport; next(pipeline=egress, table=5); };

tcp_reset
---------
    outport <-> inport;
    next(pipeline=egress, table=5);

egress(dp="node1", outport="lab_a")
-----------------------------------
 9. ls_out_apply_port_sec (northd.c:5777): 1, priority 0, uuid 54d35c10
    output;
    /* output to "lab_a", type "" */
"#;

const LEAVES: &str = r#"
ingress(dp="ext_node1", inport="etor-GR_node1")
-----------------------------------------------
25. ls_in_l2_lkup (northd.c:9193): eth.dst == 0a:58:0a:f4:01:01, priority 50, uuid 23c60e56
    outport = "breth0_node1";
    output;

egress(dp="ext_node1", inport="etor-GR_node1", outport="breth0_node1")
----------------------------------------------------------------------
 9. ls_out_apply_port_sec (northd.c:5777): 1, priority 0, uuid 54d35c10
    output;
    /* output to "breth0_node1", type "localnet" */
"#;

fn way(output: &str, objects: &[(usize, &str, &str)]) -> Way {
    let steps = steps::read(output);
    let object = |(index, name, action): &(usize, &str, &str)| {
        let (name, action) = ((*name).to_owned(), (*action).to_owned());
        (*index, Object { name, action, isolates: false })
    };
    Way { end: steps::end(&steps), steps, objects: objects.iter().map(object).collect() }
}

#[test]
fn steps_have_their_datapath_stage_flow_and_actions() {
    let steps = steps::read(DENIED);
    assert_eq!(steps.len(), 6);
    let last = steps.last().unwrap();
    assert_eq!(
        (last.datapath.as_str(), last.stage.as_str(), last.table),
        ("node2", "ls_out_acl", 4)
    );
    assert_eq!((last.inport.as_str(), last.outport.as_str()), ("stor-node2", "lab_b"));
    let flow = last.flow.as_ref().unwrap();
    assert_eq!((flow.priority, flow.uuid.as_str()), (2000, "3cc935db"));
    assert_eq!(flow.matching, "reg0[9] == 1 && (outport == @a && (ip4 || x))");
    assert_eq!(last.actions, ["drop;"]);
    // A hint is no verdict.
    let acls: Vec<bool> = steps.iter().map(steps::Step::is_acl).collect();
    assert_eq!(acls, [false, false, false, false, false, true]);
}

#[test]
fn a_packet_that_is_dropped_names_the_acl_that_decides_in_each_release() {
    let policy = "NetworkPolicies of namespace lab, Ingress";
    for (output, at) in [(DENIED, 5), (DENIED_LATER, 0)] {
        let way = way(output, &[(at, policy, "drop")]);
        let Verdict::Stopped(why) = way.verdict(Some("lab_b")) else { panic!("{way:?}") };
        assert_eq!(why, format!("dropped by {policy}"));
    }
    // Without the northbound database, the stage is all that is known.
    let Verdict::Stopped(why) = way(DENIED, &[]).verdict(None) else { panic!("it is dropped") };
    assert!(why.contains("node2, stage ls_out_acl"), "{why}");
}

#[test]
fn where_a_packet_ends_is_its_verdict() {
    let delivered = way(ALLOWED, &[]);
    assert_eq!(
        delivered.verdict(Some("lab_b")),
        Verdict::Delivered("delivered to pod lab/b".to_owned())
    );
    assert!(matches!(delivered.verdict(Some("lab_c")), Verdict::Stopped(_)));
    let refused = way(REFUSED, &[(0, "Service lab/empty", "balance")]);
    let why = "refused: Service lab/empty has no endpoint".to_owned();
    assert_eq!(refused.verdict(None), Verdict::Stopped(why));
    let leaves = way(LEAVES, &[]);
    assert_eq!(leaves.exit(), Some("node1"));
    assert!(matches!(leaves.verdict(None), Verdict::Delivered(_)));
    assert_eq!(way("", &[]).end, WayEnd::Unknown);
    let no_route = DENIED.split("\negress(dp=\"node2\"").next().unwrap();
    let no_route = no_route.replace("outport = \"rtos-node2\";\n    next;", "drop;");
    let Verdict::Stopped(why) = way(&no_route, &[]).verdict(None) else { panic!("no route") };
    assert!(why.contains("no route"), "{why}");
}

#[test]
fn hostile_and_broken_output_is_read_without_an_end() {
    for text in ["99999. ls_in_x: y", " 1. ", "1. ls_", "egress(dp=\"", "/* output to \"", "\u{0}"]
    {
        let steps = steps::read(&format!("ingress(dp=\"n\", inport=\"p\")\n{text}\n"));
        let _ = steps::end(&steps);
    }
}

#[test]
fn the_endpoints_of_a_load_balancer_are_read_of_both_families() {
    let text = " 12. ls_in_lb (northd.c:1): ct.new, priority 120, uuid aaaaaaaa\n    \
                ct_lb_mark(backends=[fd00::3]:80,[fd00::4]:80; hash_fields=\"ip_src\");\n";
    let steps = steps::read(text);
    assert_eq!(backends(&steps[0]).unwrap(), ["[fd00::3]:80", "[fd00::4]:80"]);
}

#[test]
fn ids_of_rows_are_names_of_objects() {
    for (ids, name) in [
        (
            &[
                ("k8s.ovn.org/owner-type", "NetworkPolicy"),
                ("k8s.ovn.org/name", "shop:db"),
                ("direction", "Ingress"),
                ("gress-index", "0"),
            ][..],
            "NetworkPolicy shop/db, Ingress rule 0",
        ),
        (
            &[
                ("k8s.ovn.org/owner-type", "ClusterNetworkPolicy"),
                ("k8s.ovn.org/name", "deny"),
                ("direction", "Egress"),
                ("gress-index", "2"),
            ],
            "ClusterNetworkPolicy deny, Egress rule 2",
        ),
        (&[], "an ACL that is not this program's"),
    ] {
        let ids: BTreeMap<String, String> =
            ids.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(objects::name(&ids), name);
    }
    assert_eq!(of_port("shop_db"), "pod shop/db");
    assert_eq!(of_port("k8s-node1"), "node node1");
}

#[test]
fn the_packet_is_written_as_ovn_trace_reads_it_with_the_port_in_quotes() {
    let mac = "0a:58:0a:f4:01:03".parse().unwrap();
    let packet = Packet {
        datapath: "node1".to_owned(),
        inport: "lab_\"a".to_owned(),
        source_mac: mac,
        destination_mac: mac,
        source: "10.244.1.3".parse().unwrap(),
        destination: "10.244.2.3".parse().unwrap(),
        protocol: TraceProtocol::Tcp(80),
    };
    let text = packet.microflow();
    assert!(text.starts_with(r#"inport == "lab_\"a" && eth.src == 0a:58:0a:f4:01:03"#), "{text}");
    assert!(text.contains("ip4.dst == 10.244.2.3 && ip.ttl == 64 && tcp && "), "{text}");
    assert!(text.ends_with("tcp.dst == 80 && tcp.flags == 2"), "{text}");
}

#[test]
fn a_service_whose_endpoints_are_reached_in_part_needs_attention() {
    let delivered = |to: &str| (Some(to.to_owned()), Verdict::Delivered("delivered".to_owned()));
    let stopped = |to: &str| (Some(to.to_owned()), Verdict::Stopped("dropped by X".to_owned()));
    for (verdicts, state, said) in [
        (vec![delivered("a"), delivered("b")], State::Ok, "each endpoint"),
        (vec![delivered("a"), stopped("b")], State::Warning, "1 of 2 endpoints: b: dropped by X"),
        (vec![stopped("a"), stopped("b")], State::Failed, "not delivered to any of 2"),
    ] {
        let finding = summary("x", &verdicts, 0);
        assert_eq!(finding.state, state, "{finding:?}");
        assert!(finding.summary.contains(said), "{finding:?}");
    }
}
