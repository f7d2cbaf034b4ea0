//! Which events and stopwatches of a daemon have which name, as upstream has them.

use super::{families::MetricSet, output};

/// A metric, and the events of `coverage/show` whose sum it is.
#[derive(Debug)]
pub(super) struct Event {
    name: &'static str,
    of: &'static [&'static str],
}

/// Its name is the event's.
const fn same(name: &'static [&'static str; 1]) -> Event {
    Event { name: name[0], of: name }
}

const fn sum(name: &'static str, of: &'static [&'static str]) -> Event {
    Event { name, of }
}

pub(super) static OF_VSWITCHD: [Event; 40] = [
    same(&["netlink_sent"]),
    same(&["netlink_received"]),
    same(&["netlink_recv_jumbo"]),
    same(&["netlink_overflow"]),
    same(&["rconn_sent"]),
    same(&["rconn_queued"]),
    same(&["rconn_discarded"]),
    same(&["rconn_overflow"]),
    same(&["vconn_open"]),
    same(&["vconn_sent"]),
    same(&["vconn_received"]),
    same(&["pstream_open"]),
    same(&["stream_open"]),
    same(&["txn_success"]),
    same(&["txn_error"]),
    same(&["txn_uncommitted"]),
    same(&["txn_unchanged"]),
    same(&["txn_incomplete"]),
    same(&["txn_aborted"]),
    same(&["txn_try_again"]),
    same(&["dpif_port_add"]),
    same(&["dpif_port_del"]),
    same(&["dpif_flow_flush"]),
    same(&["dpif_flow_get"]),
    same(&["dpif_flow_put"]),
    same(&["dpif_flow_del"]),
    sum("dpif_execute", &["dpif_execute", "dpif_execute_with_help"]),
    same(&["bridge_reconfigure"]),
    same(&["xlate_actions"]),
    same(&["xlate_actions_oversize"]),
    same(&["xlate_actions_too_many_output"]),
    sum("packet_in", &["flow_extract"]),
    sum("packet_in_drop", &["packet_in_overflow"]),
    same(&["ofproto_dpif_expired"]),
    same(&["ofproto_flush"]),
    same(&["ofproto_packet_out"]),
    same(&["ofproto_recv_openflow"]),
    same(&["ofproto_reinit_ports"]),
    same(&["upcall_flow_limit_hit"]),
    same(&["upcall_flow_limit_kill"]),
];

pub(super) static OF_CONTROLLER: [Event; 22] = [
    same(&["lflow_run"]),
    same(&["rconn_sent"]),
    same(&["rconn_queued"]),
    same(&["rconn_discarded"]),
    same(&["rconn_overflow"]),
    same(&["vconn_open"]),
    same(&["vconn_sent"]),
    same(&["vconn_received"]),
    same(&["stream_open"]),
    same(&["txn_success"]),
    same(&["txn_error"]),
    same(&["txn_uncommitted"]),
    same(&["txn_unchanged"]),
    same(&["txn_incomplete"]),
    same(&["txn_aborted"]),
    same(&["txn_try_again"]),
    same(&["netlink_sent"]),
    same(&["netlink_received"]),
    same(&["netlink_recv_jumbo"]),
    same(&["netlink_overflow"]),
    sum("packet_in", &["flow_extract"]),
    sum(
        "packet_in_drop",
        &[
            "pinctrl_drop_put_mac_binding",
            "pinctrl_drop_buffered_packets_map",
            "pinctrl_drop_controller_event",
            "pinctrl_drop_put_vport_binding",
        ],
    ),
];

pub(super) static OF_NORTHD: [Event; 9] = [
    same(&["pstream_open"]),
    same(&["stream_open"]),
    same(&["txn_success"]),
    same(&["txn_error"]),
    same(&["txn_uncommitted"]),
    same(&["txn_unchanged"]),
    same(&["txn_incomplete"]),
    same(&["txn_aborted"]),
    same(&["txn_try_again"]),
];

/// Stopwatches: their names are those of the metrics, but for dashes.
pub(super) static WATCHES_OF_CONTROLLER: [&str; 9] = [
    "bfd-run",
    "flow-installation",
    "if-status-mgr-run",
    "if-status-mgr-update",
    "flow-generation",
    "pinctrl-run",
    "ofctrl-seqno-run",
    "patch-run",
    "ct-zone-commit",
];

pub(super) static WATCHES_OF_NORTHD: [&str; 11] = [
    "ovnnb_db_run",
    "build_flows_ctx",
    "ovn-northd-loop",
    "build_lflows",
    "lflows_lbs",
    "clear_lflows_ctx",
    "lflows_ports",
    "lflows_dp_groups",
    "lflows_datapaths",
    "lflows_igmp",
    "ovnsb_db_run",
];

/// The events of `coverage/show`. One that has not happened is 0.
pub(super) fn coverage(families: &mut MetricSet, prefix: &str, events: &[Event], text: &str) {
    let totals = output::coverage(text);
    for Event { name, of } in events {
        // A sum of none is -0 in Rust.
        let total = of.iter().filter_map(|event| totals.get(event)).fold(0.0, |sum, it| sum + it);
        let help = format!("Events {} since the start of the daemon.", of.join(", "));
        families.set(&format!("{prefix}_{name}"), &help, &[], total);
    }
}

/// The stopwatches of `stopwatch/show`, in seconds as upstream's are.
pub(super) fn stopwatches(families: &mut MetricSet, prefix: &str, names: &[&str], text: &str) {
    let found = output::stopwatches(text);
    for name in names {
        let watch = found.get(name).copied().unwrap_or_default();
        let metric = name.replace('-', "_");
        let seconds = [
            ("maximum", watch.maximum),
            ("minimum", watch.minimum),
            ("95th_percentile", watch.percentile),
            ("short_term_avg", watch.short_average),
            ("long_term_avg", watch.long_average),
        ];
        let help = format!("Of the stopwatch {name}, in seconds.");
        for (what, milliseconds) in seconds {
            families.set(&format!("{prefix}_{metric}_{what}"), &help, &[], milliseconds / 1000.0);
        }
        let help = format!("Times that the stopwatch {name} ran.");
        families.set(&format!("{prefix}_{metric}_total_samples"), &help, &[], watch.samples);
    }
}
