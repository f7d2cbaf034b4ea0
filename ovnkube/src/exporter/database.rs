//! The servers of OVN's databases on this machine: their control sockets and files.

use std::{collections::BTreeMap, path::PathBuf};

use ovsdb::{Connection, Endpoint};
use podnet::control_socket::{ControlSocket, KeptSocket};

use super::{
    ExporterPlaces, PATIENCE,
    daemon::{answers, bare, noted},
    families::MetricSet,
    output::{fields, numbers, versions},
};

pub(super) struct DatabaseReader {
    northbound: Server,
    southbound: Server,
}

/// The server of one database.
struct Server {
    /// The database's name.
    name: &'static str,
    /// The directory of its sockets.
    run_dir: PathBuf,
    /// The beginning of its sockets' names.
    files: &'static str,
    file: PathBuf,
    control: KeptSocket,
    /// The version of the schema, once it was read.
    schema: Option<String>,
}

/// Of the cluster's log and connections: the metric, the field of `cluster/status`, and its help.
const NUMBERS: [(&str, &str, &str); 4] = [
    ("cluster_term", "Term", "Term of the cluster."),
    ("cluster_election_timer", "Election timer", "Election timer, in milliseconds."),
    ("cluster_log_not_committed", "Entries not yet committed", "Entries that are not committed."),
    ("cluster_log_not_applied", "Entries not yet applied", "Entries that are not applied."),
];

/// Kinds of connections: the metric, and how `cluster/status` begins one.
const CONNECTIONS: [(&str, &str); 4] = [
    ("cluster_inbound_connections_total", "<-"),
    ("cluster_outbound_connections_total", "->"),
    ("cluster_inbound_connections_error_total", "(<-"),
    ("cluster_outbound_connections_error_total", "(->"),
];

impl DatabaseReader {
    pub(super) fn new(places: &ExporterPlaces) -> Self {
        let server = |name, files, file: &PathBuf| Server {
            name,
            run_dir: places.ovn_run_dir.clone(),
            files,
            file: file.clone(),
            control: KeptSocket::new(ControlSocket::at(
                places.ovn_run_dir.join(format!("{files}.ctl")),
            )),
            schema: None,
        };
        Self {
            northbound: server("OVN_Northbound", "ovnnb_db", &places.northbound_file),
            southbound: server("OVN_Southbound", "ovnsb_db", &places.southbound_file),
        }
    }

    pub(super) async fn read(&mut self) -> MetricSet {
        let (north, south) = tokio::join!(self.northbound.read(), self.southbound.read());
        let (north_version, north) = north;
        let (south_version, south) = south;
        let mut families = north.and(south);
        if let Some(version) = north_version.or(south_version) {
            let schema = |server: &Server| server.schema.clone().unwrap_or_default();
            let (north, south) = (schema(&self.northbound), schema(&self.southbound));
            let labels = [
                ("version", version.as_str()),
                ("nb_schema_version", &north),
                ("sb_schema_version", &south),
            ];
            let help = "Always 1; the labels are the versions of server and schemas.";
            families.info("ovn_db_build_info", help, &labels);
        }
        families
    }
}

impl Server {
    /// The server's version, and its metrics.
    async fn read(&mut self) -> (Option<String>, MetricSet) {
        let mut families = MetricSet::default();
        let name = [self.name];
        let questions = [bare("version"), bare("memory/show"), ("cluster/status", &name[..])];
        let answer = answers(&mut self.control, questions).await;
        let Some([version, memory, status]) = noted(&mut families, self.name, answer) else {
            return (None, families);
        };
        let database = [("db_name", self.name)];
        let memory = numbers(&memory);
        for (metric, help, key) in [
            ("ovn_db_jsonrpc_server_sessions", "Sessions of clients.", "sessions"),
            ("ovn_db_ovsdb_monitors", "Monitors.", "monitors"),
        ] {
            families.set(metric, help, &database, memory.get(key).copied().unwrap_or_default());
        }
        if let Ok(metadata) = self.file.metadata() {
            let help = "Size of the database's file.";
            families.set("ovn_db_db_size_bytes", help, &database, metadata.len() as f64);
        }
        if self.schema.is_none() {
            let socket = Endpoint::Unix(self.run_dir.join(format!("{}.sock", self.files)));
            let options = ovsdb::Options { connect_timeout: PATIENCE, ..ovsdb::Options::small() };
            let opened = Connection::open(&socket, self.name, options).await;
            self.schema = opened.ok().and_then(|open| open.schema().version.clone());
        }
        // A server of a database that is not clustered has no such command.
        if !status.is_empty() {
            of_cluster(&mut families, self.name, &fields(&status));
        }
        (Some(versions(&version).0), families)
    }
}

fn of_cluster(families: &mut MetricSet, database: &str, status: &BTreeMap<&str, &str>) {
    let text = |field: &str| status.get(field).copied().unwrap_or_default();
    // `45ef (45ef51b9-9401-46e7-810d-6db0fc344ea2)`
    let whole = |field: &str| {
        let id = text(field).split_whitespace().nth(1).unwrap_or_default();
        id.trim_matches(['(', ')']).to_owned()
    };
    let (cluster, server) = (whole("Cluster ID"), whole("Server ID"));
    let labels =
        [("db_name", database), ("cluster_id", cluster.as_str()), ("server_id", server.as_str())];
    let info = "Always 1; the labels say what is so.";
    families.info("ovn_db_cluster_id", info, &labels[..2]);
    families.info("ovn_db_cluster_server_id", info, &labels);
    for (metric, label, field) in [
        ("cluster_server_status", "server_status", "Status"),
        ("cluster_server_role", "server_role", "Role"),
        ("cluster_server_vote", "server_vote", "Vote"),
    ] {
        let labels = [&labels[..], &[(label, text(field))]].concat();
        families.info(&format!("ovn_db_{metric}"), info, &labels);
    }
    let mut set = |metric: &str, help: &str, value: f64| {
        families.set(&format!("ovn_db_{metric}"), help, &labels, value);
    };
    for (metric, field, help) in NUMBERS {
        set(metric, help, text(field).parse().unwrap_or_default());
    }
    // `[2, 1108]`
    let mut log = text("Log").trim_matches(['[', ']']).split(", ");
    for (metric, help) in [
        ("cluster_log_index_start", "First entry of the log."),
        ("cluster_log_index_next", "Next entry of the log."),
    ] {
        let value = log.next().and_then(|text| text.parse().ok()).unwrap_or_default();
        set(metric, help, value);
    }
    for (metric, start) in CONNECTIONS {
        let all = text("Connections").split_whitespace();
        let count = all.filter(|word| word.starts_with(start)).fold(0.0, |count, _| count + 1.0);
        set(metric, "Connections with other servers of the cluster.", count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_of_a_cluster_is_described_with_its_connections() {
        let status = "1c4d\nName: OVN_Northbound\nCluster ID: 45ef (45ef51b9-9401)\n\
                      Server ID: 1c4d (1c4d0000-0001)\nAddress: tcp:192.0.2.1:6643\n\
                      Status: cluster member\nRole: leader\nTerm: 3\nLeader: self\nVote: self\n\n\
                      Election timer: 1000\nLog: [2, 1108]\nEntries not yet committed: 0\n\
                      Entries not yet applied: 1\nConnections: ->0000 (->56d7) <-46ac <-56d7\n";
        let mut families = MetricSet::default();
        of_cluster(&mut families, "OVN_Northbound", &fields(status));
        let text = families.text();
        for line in [
            "ovn_db_cluster_log_index_next",
            "1108",
            "server_role=\"leader\"",
            "server_status=\"cluster member\"",
            "server_id=\"1c4d0000-0001\"",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let count = |metric: &str, value: &str| {
            let mut lines = text.lines().filter(|line| line.starts_with(metric));
            assert!(lines.any(|line| line.ends_with(value)), "{metric}: {text}");
        };
        count("ovn_db_cluster_inbound_connections_total{", " 2");
        count("ovn_db_cluster_outbound_connections_total{", " 1");
        count("ovn_db_cluster_outbound_connections_error_total{", " 1");
        count("ovn_db_cluster_inbound_connections_error_total{", " 0");
        count("ovn_db_cluster_log_not_applied{", " 1");
    }
}
