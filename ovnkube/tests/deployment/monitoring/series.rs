//! What can be measured: each series with its labels, as programs tell it.

use std::collections::{BTreeMap, BTreeSet};

use contract::{error::Code, ovn::DryRun};
use ovnkube::{
    metrics::{ControlPlaneMetrics, Page},
    roles::{self, Roles},
};
use serde_json::json;
use server::{conditions::Conditions, metrics::Metrics};
use testkit::executable;

use super::machine::Machine;
use crate::manifests::read;

/// The labels of series, by the series' name.
pub(super) type Series = BTreeMap<String, BTreeSet<String>>;

/// Series that are not there before something has happened, and the files that register them.
const LATER: [(&str, &str); 7] = [
    ("ovnkube_clustermanager_nodes_lacking", "controller/src/cluster_manager/metrics.rs"),
    ("ovnkube_controller_annotation_patches_total", "controller/src/annotate/metrics.rs"),
    ("ovnkube_controller_annotations_refused", "controller/src/annotate/metrics.rs"),
    ("ovnkube_controller_annotations_waiting", "controller/src/annotate/metrics.rs"),
    ("ovnkube_controller_nb_rows_written_total", "controller/src/metrics.rs"),
    ("ovnkube_controller_nb_transactions_total", "controller/src/metrics.rs"),
    ("ovnkube_controller_watch_restarts_total", "kubeapi/src/metrics.rs"),
];

/// The datapath of the kernel alone has masks; a unit test of the exporter reads them.
const OF_THE_KERNEL: [&str; 3] =
    ["ovs_vswitchd_dp_masks_hit", "ovs_vswitchd_dp_masks_hit_ratio", "ovs_vswitchd_dp_masks_total"];

/// The series of a node's server and of a control plane.
pub(super) fn of_servers() -> Series {
    let log = tempfile::NamedTempFile::new().unwrap();
    let page = Page::of_node([log.path().to_owned()]).unwrap();
    let metrics = Metrics::register(page.registry()).unwrap();
    metrics.refused(Code::TryAgain);
    metrics.reported(
        &serde_json::from_value(json!({"command": "ADD", "elapsedTime": 1.0, "hasErr": true}))
            .unwrap(),
    );
    let dry_run =
        DryRun { namespace: "shop".to_owned(), policy: "db".to_owned(), direction: "Ingress" };
    metrics.count_dry_runs(move || Ok([(dry_run.clone(), 1)].into()));
    let mut text = page.text(&Conditions::default()).unwrap();
    for roles in [Roles::Both, Roles::ClusterManager] {
        let page = Page::of_control_plane(roles, log.path().to_owned()).unwrap();
        let _metrics = ControlPlaneMetrics::register(roles, page.registry()).unwrap();
        text += &page.text(&Conditions::of(roles::NEEDS)).unwrap();
    }
    let mut series = of_text(&text);
    series.extend(LATER.map(|(name, file)| (name.to_owned(), declared(name, file))));
    series
}

/// Those, and the series of OVN's and Open vSwitch's daemons.
pub(super) fn all() -> Series {
    let mut series = of_servers();
    series.extend(of_text(&Machine::start().metrics()));
    series.extend(OF_THE_KERNEL.map(|name| (name.to_owned(), ["datapath".to_owned()].into())));
    series
}

fn of_text(text: &str) -> Series {
    let mut series = Series::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, labels) = line.split_once('{').unwrap_or((line.split(' ').next().unwrap(), ""));
        let labels = labels
            .split("\",")
            .filter_map(|label| label.split_once("=\""))
            .map(|(label, _)| label.to_owned());
        series.entry(name.to_owned()).or_default().extend(labels);
    }
    series
}

/// The labels with which a file registers a series.
fn declared(name: &str, file: &str) -> BTreeSet<String> {
    let source = read(&executable::workspace().join(file));
    let own = name.splitn(3, '_').nth(2).unwrap();
    let (_, rest) = source
        .split_once(&format!("{own}\""))
        .unwrap_or_else(|| panic!("{file} registers no {name}"));
    let (_, rest) = rest.split_once("&[").unwrap();
    let (labels, _) = rest.split_once(']').unwrap();
    labels.split(',').map(|label| label.trim().trim_matches('"').to_owned()).collect()
}
