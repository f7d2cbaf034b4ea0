//! Metrics of OVN and Open vSwitch under upstream's names: they are those that the programs tell,
//! whatever is scraped at once, and a daemon that is started again is found again.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, eventually, executable, let_pass};

const SOON: Duration = Duration::from_secs(20);
const SERVER: &str = "127.0.0.1:9476";
const EXPORTER: &str = "127.0.0.1:9310";
/// What a scrape may take.
const SCRAPE: Duration = Duration::from_millis(10);
/// How long a reading is good for.
const FRESH: Duration = Duration::from_secs(1);

/// The page at an address of the node.
fn page(node: &Node, address: &str) -> Result<String> {
    let address: SocketAddr = address.parse()?;
    node.inside(|| {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(SOON))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("a head")?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
        Ok(body.to_owned())
    })
}

/// Values by metric with its labels.
fn values(page: &str) -> BTreeMap<&str, f64> {
    fn pair(line: &str) -> Option<(&str, f64)> {
        let (metric, value) = line.rsplit_once(' ')?;
        Some((metric, value.parse().ok()?))
    }
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(pair).collect()
}

fn names(page: &str) -> BTreeSet<&str> {
    page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect()
}

/// The value of the metric.
fn value(page: &str, metric: &str) -> Result<f64> {
    values(page).get(metric).copied().with_context(|| format!("{metric}: {page}"))
}

fn reads(node: &Node) -> Result<u64> {
    let shown = node.run(["ovs-appctl", "-t", "ovs-vswitchd", "coverage/show"])?;
    let line = shown.lines().find(|line| line.starts_with("unixctl_received"));
    let total = line.and_then(|line| line.split("total:").nth(1)).unwrap_or("0");
    Ok(total.trim().parse()?)
}

#[test]
fn the_metrics_of_a_node_are_what_its_daemons_say_and_many_scrapes_are_one_reading() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        let arguments = [
            "--init-node",
            &node.name,
            "--pod-manifests",
            "/run/pod-manifests",
            "--export-ovs-metrics",
            &format!("--ovn-metrics-bind-address={SERVER}"),
        ];
        let server = node.new_daemon(executable::under_test(executable::SERVER)?, arguments);
        server.spawn()?;
        eventually("the metrics are served", SOON, || page(node, SERVER).map(drop))?;
        let text = page(node, SERVER)?;
        let found = names(&text);
        for name in [
            "ovs_vswitchd_dp_total",
            "ovs_vswitchd_dp_flows_lookup_hit",
            "ovs_vswitchd_interfaces_total",
            "ovs_vswitchd_interface_resets_total",
            "ovs_vswitchd_handlers_total",
            "ovs_vswitchd_rconn_sent",
            "ovs_vswitchd_process_resident_memory_bytes",
            "ovs_db_process_open_fds",
            "ovs_build_info",
            "ovn_controller_build_info",
            "ovn_controller_flow_generation_maximum",
            "ovn_controller_txn_success",
            "ovn_controller_encap_ip",
            "ovn_controller_monitor_all",
        ] {
            ensure!(found.contains(name), "{name}: {found:#?}");
        }
        ensure!(found.len() > 130, "{}: {found:#?}", found.len());
        ensure!(value(&text, "ovn_controller_southbound_database_connected")? == 1.0);

        // Flows are counted as ovs-ofctl counts them.
        eventually("the flows of br-int are those of ovs-ofctl", SOON, || {
            let counted = node.run(["ovs-ofctl", "dump-aggregate", "br-int"])?;
            let counted = counted.split("flow_count=").nth(1).context("a number of flows")?;
            let counted: f64 = counted.trim().parse()?;
            let text = page(node, SERVER)?;
            let told = value(&text, "ovs_vswitchd_bridge_flows_total{bridge=\"br-int\"}")?;
            let same = value(&text, "ovn_controller_integration_bridge_openflow_total")?;
            ensure!(told == counted && same == counted, "{told}, {same}, {counted}");
            Ok(())
        })?;

        // Fifty scrapes within a second or two are as many readings, at most.
        let (before, start) = (reads(node)?, Instant::now());
        let mut slowest = Vec::new();
        for _ in 0..50 {
            let start = Instant::now();
            page(node, SERVER)?;
            slowest.push(start.elapsed());
        }
        let (asked, seconds) = (reads(node)? - before, start.elapsed().as_secs() + 2);
        // A reading asks three questions of ovs-vswitchd; its server asks some, too.
        ensure!(asked <= seconds * 12, "{asked} questions in {seconds} s");
        slowest.sort();
        println!("scrapes: median {:?}, slowest {:?}", slowest[25], slowest[49]);
        // Each of these is a reading.
        let mut readings = Vec::new();
        for _ in 0..6 {
            let_pass(FRESH + Duration::from_millis(50));
            let start = Instant::now();
            page(node, SERVER)?;
            readings.push(start.elapsed());
        }
        readings.sort();
        println!("readings: median {:?}, slowest {:?}", readings[3], readings[5]);
        // Of a machine that has other things to do, only the fastest say something; of a reading by
        // an executable for tests, nothing.
        ensure!(slowest[5] <= SCRAPE, "{slowest:?}");

        // A daemon that is gone has no metrics; started again, it is found again.
        node.vswitchd.stop()?;
        let handlers = "ovs_vswitchd_handlers_total";
        eventually("ovs-vswitchd has no metrics", SOON, || {
            let text = page(node, SERVER)?;
            ensure!(!text.contains(handlers) && text.contains("ovs_vswitchd_interfaces_total"));
            Ok(())
        })?;
        node.start_vswitchd()?;
        eventually("it has metrics again", SOON, || {
            value(&page(node, SERVER)?, handlers).map(drop)
        })?;
        // One that hangs is told to be down, and the others are there.
        node.ovn_controller.pause()?;
        eventually("ovn-controller is down", SOON, || {
            let text = page(node, SERVER)?;
            let up = value(&text, "ovnkube_exporter_up{daemon=\"ovn-controller\"}")?;
            ensure!(up == 0.0 && text.contains(handlers), "{text}");
            Ok(())
        })?;
        node.ovn_controller.resume()?;
        server.stop()?;

        // The command of upstream's util has those of Open vSwitch alone.
        let exporter =
            node.new_daemon(executable::under_test(executable::SERVER)?, ["ovs-exporter"]);
        exporter.spawn()?;
        eventually("the exporter serves", SOON, || {
            let text = page(node, EXPORTER)?;
            ensure!(text.contains(handlers) && !text.contains("ovn_controller"), "{text}");
            Ok(())
        })?;
        exporter.stop()
    });
}
