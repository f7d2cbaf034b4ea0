//! Open vSwitch: ovs-vswitchd by its control socket, its database, and the bridges' OpenFlow
//! sockets.

use std::{collections::BTreeMap, path::PathBuf};

use contract::paths::INTEGRATION_BRIDGE;
use futures_util::future::join_all;
use ovsdb::{Connection, Endpoint, SelectedRow, Transaction, Where};
use podnet::{
    control_socket::{ControlSocket, KeptSocket, VSWITCHD},
    openflow::FlowCounter,
};
use tokio::time::timeout;

use super::{
    Exported, ExporterPlaces, PATIENCE, chassis,
    counters::{OF_VSWITCHD, coverage},
    daemon::{answers, bare, noted},
    families::MetricSet,
    output::numbers,
};
use crate::metrics::of_process;

pub(super) struct SwitchReader {
    exported: Exported,
    run_dir: PathBuf,
    daemon: KeptSocket,
    configuration: ConfigurationReader,
}

/// The database, and the flows of the bridges in it.
struct ConfigurationReader {
    exported: Exported,
    endpoint: Endpoint,
    run_dir: PathBuf,
    database: Option<Connection>,
    /// By the bridge's name.
    bridges: BTreeMap<String, FlowCounter>,
}

/// The rows of one reading.
struct Rows {
    global: Vec<SelectedRow>,
    bridges: Vec<SelectedRow>,
    interfaces: Vec<SelectedRow>,
}

/// Sums over all interfaces: the metric, and the key of their statistics.
const SUMS: [(&str, &str); 5] = [
    ("rx_dropped", "interface_rx_dropped_total"),
    ("tx_dropped", "interface_tx_dropped_total"),
    ("rx_errors", "interface_rx_errors_total"),
    ("tx_errors", "interface_tx_errors_total"),
    ("collisions", "interface_collisions_total"),
];

impl SwitchReader {
    pub(super) fn new(places: &ExporterPlaces, exported: Exported) -> Self {
        Self {
            exported,
            run_dir: places.ovs_run_dir.clone(),
            daemon: KeptSocket::new(ControlSocket::of(&places.ovs_run_dir, VSWITCHD)),
            configuration: ConfigurationReader {
                exported,
                endpoint: places.ovsdb.clone(),
                run_dir: places.ovs_run_dir.clone(),
                database: None,
                bridges: BTreeMap::new(),
            },
        }
    }

    pub(super) async fn read(&mut self) -> MetricSet {
        if !self.exported.has_open_vswitch() {
            return self.configuration.read().await;
        }
        // Both ask ovs-vswitchd.
        let (configuration, daemon) =
            tokio::join!(self.configuration.read(), of_daemon(&mut self.daemon));
        let mut families = configuration.and(daemon);
        for (name, prefix) in [(VSWITCHD, "ovs_vswitchd"), ("ovsdb-server", "ovs_db")] {
            let pid = ControlSocket::of(&self.run_dir, name).pid();
            for (metric, help, value) in pid.map(|pid| of_process(pid, name)).unwrap_or_default() {
                families.set(&format!("{prefix}_{metric}"), help, &[], value);
            }
        }
        families
    }
}

impl ConfigurationReader {
    async fn read(&mut self) -> MetricSet {
        let mut families = MetricSet::default();
        let is_here = !matches!(&self.endpoint, Endpoint::Unix(path) if !path.exists());
        if is_here {
            let rows = self.rows().await;
            families.up("ovsdb-server", rows.is_some());
            if let Some(rows) = rows {
                families = families.and(self.of_rows(&rows).await);
            }
        }
        families
    }

    async fn rows(&mut self) -> Option<Rows> {
        let database = match self.database.take().filter(|open| !open.is_closed()) {
            Some(open) => open,
            None => {
                let options =
                    ovsdb::Options { connect_timeout: PATIENCE, ..ovsdb::Options::small() };
                Connection::open(&self.endpoint, "Open_vSwitch", options).await.ok()?
            }
        };
        let mut query = Transaction::new();
        let global = ["ovs_version", "other_config", "external_ids"];
        let global = query.select("Open_vSwitch", Where::all(), &global);
        let bridges = query.select("Bridge", Where::all(), &["name", "ports"]);
        let interfaces = ["name", "type", "link_resets", "statistics"];
        let interfaces = query.select("Interface", Where::all(), &interfaces);
        let outcome = timeout(PATIENCE, database.transact(query)).await.ok()?.ok()?;
        self.database = Some(database);
        let rows = |selection| outcome.rows(selection).to_vec();
        Some(Rows { global: rows(global), bridges: rows(bridges), interfaces: rows(interfaces) })
    }

    async fn of_rows(&mut self, rows: &Rows) -> MetricSet {
        let Rows { global, bridges, interfaces } = rows;
        let names: Vec<&str> = bridges.iter().filter_map(|row| row.string("name")).collect();
        let flows = self.flows(&names).await;
        let mut families = MetricSet::default();
        let ids = global.first().map(|row| row.map("external_ids")).unwrap_or_default();
        if self.exported.has_ovn() && ids.contains_key("ovn-remote") {
            let own = flows.get(INTEGRATION_BRIDGE).copied();
            families = families.and(chassis::families(&ids, interfaces, own));
        }
        if !self.exported.has_open_vswitch() {
            return families;
        }
        let mut set = |name: &str, help: &str, labels: &[(&str, &str)], value: f64| {
            families.set(&format!("ovs_vswitchd_{name}"), help, labels, value);
        };
        set("bridge_total", "Bridges.", &[], length(bridges.len()));
        for row in bridges {
            let bridge = [("bridge", row.string("name").unwrap_or_default())];
            set("bridge", "Always 1; the label is a bridge.", &bridge, 1.0);
            let ports = row.uuids("ports").len();
            set("bridge_ports_total", "Ports of the bridge.", &bridge, length(ports));
            if let Some(flows) = flows.get(bridge[0].1) {
                set("bridge_flows_total", "Flows of the bridge.", &bridge, *flows as f64);
            }
        }
        set("interfaces_total", "Interfaces.", &[], length(interfaces.len()));
        let resets = interfaces.iter().filter_map(|row| row.integer("link_resets")).sum::<i64>();
        set("interface_resets_total", "Changes of links' states.", &[], resets as f64);
        for (key, metric) in SUMS {
            let sum: i64 = interfaces.iter().map(|row| statistic(row, key)).sum();
            set(metric, &format!("Sum of {key} over all interfaces."), &[], sum as f64);
        }
        let other = global.first().map(|row| row.map("other_config")).unwrap_or_default();
        let other = |key: &str| other.get(key).map(String::as_str).unwrap_or_default();
        let is_offloading = !["", "false"].contains(&other("hw-offload"));
        let offload = f64::from(u8::from(is_offloading));
        set("hw_offload", "Whether flows are offloaded to hardware.", &[], offload);
        let policy = match other("tc-policy") {
            "skip_sw" => 1.0,
            "skip_hw" => 2.0,
            _ => 0.0,
        };
        set("tc_policy", "Offloading: none (0), skip_sw (1), skip_hw (2).", &[], policy);
        let version = global.first().and_then(|row| row.string("ovs_version")).unwrap_or_default();
        let help = "Always 1; the label is the version.";
        families.info("ovs_build_info", help, &[("version", version)]);
        families
    }

    /// How many flows each bridge has. One that does not answer is left out.
    async fn flows(&mut self, names: &[&str]) -> BTreeMap<String, u64> {
        // Those of bridges that are gone end here.
        let mut kept = std::mem::take(&mut self.bridges);
        let run_dir = &self.run_dir;
        let counts = names.iter().map(|name| {
            let kept = kept.remove(*name);
            async move {
                let mut counter = match kept {
                    Some(counter) => counter,
                    None => FlowCounter::open(run_dir, name, PATIENCE).await.ok()?,
                };
                let count = counter.count(PATIENCE).await.ok()?;
                Some(((*name).to_owned(), count, counter))
            }
        });
        let mut flows = BTreeMap::new();
        for (name, count, counter) in join_all(counts).await.into_iter().flatten() {
            flows.insert(name.clone(), count);
            self.bridges.insert(name, counter);
        }
        flows
    }
}

async fn of_daemon(daemon: &mut KeptSocket) -> MetricSet {
    let mut families = MetricSet::default();
    let commands = ["dpctl/show", "memory/show", "coverage/show"];
    let answer = answers(daemon, commands.map(bare)).await;
    let Some([datapaths, memory, events]) = noted(&mut families, VSWITCHD, answer) else {
        return families;
    };
    coverage(&mut families, "ovs_vswitchd", &OF_VSWITCHD, &events);
    let memory = numbers(&memory);
    for (name, help) in [
        ("handlers", "Threads that take packets from the datapath."),
        ("revalidators", "Threads that look through the datapath's flows."),
    ] {
        let value = memory.get(name).copied().unwrap_or_default();
        families.set(&format!("ovs_vswitchd_{name}_total"), help, &[], value);
    }
    of_datapaths(&mut families, &datapaths);
    families
}

/// What `dpctl/show` says of all datapaths: a line with kind and name, and indented ones.
fn of_datapaths(families: &mut MetricSet, text: &str) {
    let mut count = 0;
    let lines: Vec<&str> = text.lines().collect();
    for lines in lines.chunk_by(|_, next| next.starts_with(char::is_whitespace)) {
        let (first, lines) = lines.split_first().expect("a chunk has a line");
        let Some((kind, name)) = first.trim_end_matches(':').split_once('@') else { continue };
        count += 1;
        let labels = [("datapath", name), ("type", kind)];
        families.info("ovs_vswitchd_dp", "Always 1; the labels are a datapath.", &labels);
        of_datapath(families, name, lines);
    }
    families.set("ovs_vswitchd_dp_total", "Datapaths.", &[], length(count));
}

fn of_datapath(families: &mut MetricSet, name: &str, lines: &[&str]) {
    let mut set = |metric: &str, help: &str, value: f64| {
        families.set(&format!("ovs_vswitchd_{metric}"), help, &[("datapath", name)], value);
    };
    let mut ports = 0;
    for line in lines.iter().map(|line| line.trim()) {
        let found = numbers(line);
        let value = |key: &str| found.get(key).copied().unwrap_or_default();
        if line.starts_with("lookups:") {
            set("dp_flows_lookup_hit", "Packets that met a flow.", value("hit"));
            set("dp_flows_lookup_missed", "Packets without a flow.", value("missed"));
            set("dp_flows_lookup_lost", "Packets lost on the way up.", value("lost"));
            let all = value("hit") + value("missed");
            set("dp_packets_total", "Packets, with or without a flow.", all);
        } else if line.starts_with("masks:") {
            set("dp_masks_hit", "Masks that packets were compared with.", value("hit"));
            set("dp_masks_total", "Masks.", value("total"));
            set("dp_masks_hit_ratio", "Masks for each packet.", value("hit/pkt"));
        } else if let Some(flows) = line.strip_prefix("flows:") {
            set("dp_flows_total", "Flows.", flows.trim().parse().unwrap_or_default());
        } else if line.starts_with("port ") {
            ports += 1;
        }
    }
    set("dp_if_total", "Ports.", length(ports));
}

fn length(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

/// An interface's counter.
fn statistic(row: &SelectedRow, key: &str) -> i64 {
    let pairs = row.datum("statistics").map(ovsdb::Datum::pairs).unwrap_or_default();
    let found = pairs.iter().find(|(name, _)| name.as_str() == Some(key));
    found.and_then(|(_, value)| value.as_integer()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datapath_of_the_kernel_has_masks_and_another_one_is_counted() {
        let text = "netdev@ovs-netdev:\n  lookups: hit:1 missed:0 lost:0\n  flows: 7\n\
                    system@ovs-system:\n  lookups: hit:1051 missed:128 lost:3\n  flows: 12\n  \
                    masks: hit:3512 total:5 hit/pkt:2.98\n  cache: hit:812 hit-rate:68.87%\n  \
                    caches:\n    masks-cache: size:256\n  port 0: ovs-system (internal)\n  \
                    port 1: br-int (internal)\n";
        let mut families = MetricSet::default();
        of_datapaths(&mut families, text);
        let text = families.text();
        assert!(text.contains("ovs_vswitchd_dp_total 2\n"), "{text}");
        assert!(
            text.contains("ovs_vswitchd_dp_flows_total{datapath=\"ovs-netdev\"} 7\n"),
            "{text}"
        );
        for (metric, value) in [
            ("flows_lookup_hit", "1051"),
            ("flows_lookup_lost", "3"),
            ("packets_total", "1179"),
            ("flows_total", "12"),
            ("masks_hit", "3512"),
            ("masks_total", "5"),
            ("masks_hit_ratio", "2.98"),
            ("if_total", "2"),
        ] {
            let line = format!("ovs_vswitchd_dp_{metric}{{datapath=\"ovs-system\"}} {value}\n");
            assert!(text.contains(&line), "{line}: {text}");
        }
    }
}
