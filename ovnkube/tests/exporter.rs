//! Metrics of a machine with OVN's databases and ovn-northd, as those tell them.

use std::{collections::BTreeSet, process::Stdio, time::Duration};

use ovnkube::exporter::{Exported, Exporter, ExporterPlaces};
use testkit::{Database, Scratch, process::Process, program};
use tokio::time::{Instant, sleep};

const NORTHBOUND: &str = "/usr/share/ovn/ovn-nb.ovsschema";
const SOUTHBOUND: &str = "/usr/share/ovn/ovn-sb.ovsschema";
const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn databases_and_northd_are_measured_under_upstreams_names() {
    let scratch = Scratch::new();
    let directory = scratch.path().to_owned();
    let north = Database::of_schema(&directory, "ovnnb_db", NORTHBOUND);
    let south = Database::of_schema(&directory, "ovnsb_db", SOUTHBOUND);
    let mut command = program::unprivileged("ovn-northd");
    command
        .env("OVN_RUNDIR", &directory)
        .arg(format!("--ovnnb-db={}", north.endpoint()))
        .arg(format!("--ovnsb-db={}", south.endpoint()))
        .arg(format!("--pidfile={}", directory.join("ovn-northd.pid").display()))
        .arg(format!("--log-file={}", directory.join("ovn-northd.log").display()))
        .arg("-vconsole:off")
        .stdin(Stdio::null());
    let _northd = Process::start(&mut command);

    let places = ExporterPlaces {
        ovsdb: "unix:/nonexistent/db.sock".parse().unwrap(),
        ovs_run_dir: directory.clone(),
        ovn_run_dir: directory,
        northbound_file: north.file().to_owned(),
        southbound_file: south.file().to_owned(),
    };
    let exporter = Exporter::start(&places, Exported::Both);
    let deadline = Instant::now() + SOON;
    let text = loop {
        let text = exporter.text().await;
        if text.contains("ovn_northd_status 1")
            && text.contains("ovn_northd_nb_connection_status 1")
        {
            break text;
        }
        assert!(Instant::now() < deadline, "{text}");
        sleep(Duration::from_millis(100)).await;
    };
    let names: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for name in [
        "ovn_db_build_info",
        "ovn_db_db_size_bytes",
        "ovn_db_jsonrpc_server_sessions",
        "ovn_db_ovsdb_monitors",
        "ovn_northd_build_info",
        "ovn_northd_sb_connection_status",
        "ovn_northd_txn_success",
        "ovn_northd_ovn_northd_loop_95th_percentile",
        "ovn_northd_build_lflows_total_samples",
    ] {
        assert!(names.contains(name), "{name}: {names:#?}");
    }
    // A database that is not clustered has no cluster.
    assert!(!text.contains("ovn_db_cluster"), "{text}");
    let size = format!(
        "ovn_db_db_size_bytes{{db_name=\"OVN_Northbound\"}} {}",
        north.file().metadata().unwrap().len()
    );
    assert!(text.contains(&size), "{size}: {text}");
    let schema = text.lines().find(|line| line.starts_with("ovn_db_build_info{")).unwrap();
    assert!(!schema.contains("nb_schema_version=\"\""), "{schema}");
    // ovn-northd is a client of both.
    for database in ["OVN_Northbound", "OVN_Southbound"] {
        let sessions = format!("ovn_db_jsonrpc_server_sessions{{db_name=\"{database}\"}} 0");
        assert!(!text.contains(&sessions), "{text}");
    }
}
