//! The text of `/metrics`: a registry in which each part of the process registers its metrics, and
//! metrics that are read anew for each page. Knows nothing of how it is served.
//!
//! | module | what it does |
//! |---|---|
//! | `control_plane` | metrics of the control plane |
//! | `process` | the standard `process_*` metrics |
//! | `files` | sizes of the logs, lost lines |

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use ovslog::background::LostLines;
use prometheus::{IntGaugeVec, Opts, Registry, TextEncoder, core::Collector};
use server::conditions::{Conditions, Part};

use self::{
    files::{LogFiles, LostLogLines},
    process::Process,
};
use crate::roles::{self, Roles};

mod control_plane;
mod files;
mod process;

pub use control_plane::ControlPlaneMetrics;
pub(crate) use process::of_process;

/// The media type of [`Page::text`] (Prometheus, "Exposition formats").
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The prefix of a node's metrics.
const NODE: &str = "ovnkube_node";

/// All metrics of a process.
#[derive(Debug)]
pub struct Page {
    registry: Registry,
    conditions: Vec<Met>,
    log_files: LogFiles,
    lost_log_lines: LostLogLines,
    process: Process,
    /// Held while a page is collected: two scrapes at once would both reset and set the same
    /// gauges.
    collecting: Mutex<()>,
}

/// A gauge for each of these conditions.
#[derive(Debug)]
struct Met {
    parts: &'static [Part],
    gauges: IntGaugeVec,
}

impl Page {
    /// The page of a node's server. `log_files`: the logs whose sizes it shows.
    ///
    /// # Errors
    ///
    /// If two metrics have one name, which is a defect.
    pub fn of_node(log_files: impl IntoIterator<Item = PathBuf>) -> prometheus::Result<Self> {
        let page = Self::of(NODE, log_files)?;
        page.with_conditions(
            NODE,
            "What the server needs before a pod can have its network",
            &Part::NODE,
        )
    }

    /// The page of a process that is the control plane and nothing else. `log_file`: the log whose
    /// size it shows.
    ///
    /// # Errors
    ///
    /// As [`of_node`](Self::of_node).
    pub fn of_control_plane(roles: Roles, log_file: PathBuf) -> prometheus::Result<Self> {
        Self::of(prefix(roles), [log_file])?.with_control_plane(roles)
    }

    /// Counts the lines that this process's log has lost. Until then there are none.
    #[must_use]
    pub fn with_lost_log_lines(mut self, lost: LostLines) -> Self {
        self.lost_log_lines.of(lost);
        self
    }

    /// Adds the conditions of the control plane, for a process that has these roles, too.
    ///
    /// # Errors
    ///
    /// As [`of_node`](Self::of_node).
    pub fn with_control_plane(self, roles: Roles) -> prometheus::Result<Self> {
        self.with_conditions(
            prefix(roles),
            "What the control plane needs to do its work",
            &roles::NEEDS,
        )
    }

    fn of(prefix: &str, log_files: impl IntoIterator<Item = PathBuf>) -> prometheus::Result<Self> {
        let registry = Registry::new();
        build_info(&registry, &format!("{prefix}_build_info"))?;
        Ok(Self {
            conditions: Vec::new(),
            log_files: LogFiles::register(
                &registry,
                &format!("{prefix}_logfile_size_bytes"),
                log_files,
            )?,
            lost_log_lines: LostLogLines::register(
                &registry,
                &format!("{prefix}_log_lines_lost_total"),
            )?,
            process: Process::register(&registry)?,
            collecting: Mutex::new(()),
            registry,
        })
    }

    fn with_conditions(
        mut self,
        prefix: &str,
        what: &str,
        parts: &'static [Part],
    ) -> prometheus::Result<Self> {
        let help = format!("{what}: 1 if it is there, 0 if not (see /readyz for the reason).");
        let gauges =
            IntGaugeVec::new(Opts::new(format!("{prefix}_condition_met"), help), &["condition"]);
        self.conditions.push(Met { parts, gauges: known(&self.registry, gauges)? });
        Ok(self)
    }

    /// The registry in which each part of the process registers its metrics.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// All metrics in Prometheus' text format; see [`CONTENT_TYPE`]. Blocks: it reads `/proc` and
    /// the sizes of the logs.
    ///
    /// # Errors
    ///
    /// If a metric cannot be written as text, which is a defect.
    pub fn text(&self, conditions: &Conditions) -> prometheus::Result<String> {
        // A poisoned lock is no reason to have no metrics: it protects no data.
        let collecting = self.collecting.lock().unwrap_or_else(PoisonError::into_inner);
        self.conditions.iter().for_each(|met| met.look(conditions));
        self.log_files.look();
        self.lost_log_lines.look();
        self.process.look();
        let families = self.registry.gather();
        // `gather` has copied the values: the text can be made beside the next collection.
        drop(collecting);
        let mut text = String::new();
        TextEncoder::new().encode_utf8(&families, &mut text)?;
        Ok(text)
    }
}

impl Met {
    /// Sets the gauge of each condition that this process has.
    fn look(&self, conditions: &Conditions) {
        let missing = conditions.all_missing();
        for part in conditions.parts().iter().filter(|part| self.parts.contains(part)) {
            self.gauges
                .with_label_values(&[part.name()])
                .set(i64::from(!missing.contains_key(part)));
        }
    }
}

/// Upstream's prefix for a controller, and for what both roles share.
const CONTROLLER: &str = "ovnkube_controller";

/// Upstream's prefix for a process with this role.
fn prefix(roles: Roles) -> &'static str {
    match roles {
        Roles::ClusterManager => "ovnkube_clustermanager",
        Roles::Controller | Roles::Both => CONTROLLER,
    }
}

/// Version and revision, under upstream's labels. Labels that do not apply are empty: dashboards
/// for upstream expect them.
fn build_info(registry: &Registry, name: &str) -> prometheus::Result<()> {
    let labels = ["version", "revision", "branch", "build_user", "build_date", "goversion"];
    let info = IntGaugeVec::new(
        Opts::new(name, "Always 1; the labels say which program this is."),
        &labels,
    );
    let revision = option_env!("OVNKUBE_REVISION").unwrap_or_default();
    known(registry, info)?
        .with_label_values(&[env!("CARGO_PKG_VERSION"), revision, "", "", "", ""])
        .set(1);
    Ok(())
}

/// Registers a metric; fails if the registry has another of its name.
fn known<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: prometheus::Result<C>,
) -> prometheus::Result<C> {
    let collector = collector?;
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

#[cfg(test)]
mod tests;
