//! Metrics of OVN's and Open vSwitch's daemons, under upstream's names.
//!
//! ```text
//! scrapes ─▶ Exporter ─▶ reader ─┬─▶ Open vSwitch: database, control socket, OpenFlow of bridges
//!                                ├─▶ ovn-controller, ovn-northd: control sockets
//!                                └─▶ servers of OVN's databases: control sockets, files
//! ```
//!
//! The reader keeps its connections, starts no program, and reads once a second at most: scrapes in
//! between get the same text. A daemon that is not on this machine has no metrics, and one that
//! does not answer has `ovnkube_exporter_up` 0.
//!
//! | module | what it reads |
//! |---|---|
//! | `open_vswitch` | `ovs_…`, and what `chassis` makes of the database |
//! | `chassis` | `ovn_controller_…` of a node's configuration |
//! | `daemon` | `ovn_controller_…`, `ovn_northd_…` of the daemons |
//! | `database` | `ovn_db_…` |
//! | `counters` | which counters of a daemon have which name |
//! | `output` | the texts of daemons |
//! | `families` | the text of metrics |

use std::{path::PathBuf, sync::Arc, time::Duration};

use ovsdb::Endpoint;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use self::{
    daemon::{ControllerReader, NorthdReader},
    database::DatabaseReader,
    families::MetricSet,
    open_vswitch::SwitchReader,
};

mod chassis;
mod counters;
mod daemon;
mod database;
mod families;
mod open_vswitch;
mod output;

/// How long a daemon may take. Prometheus gives up after 10 s.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a reading is good for.
const FRESH: Duration = Duration::from_secs(1);
/// Scrapes that wait for one reading.
const WAITING: usize = 256;

/// Where the daemons are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExporterPlaces {
    pub ovsdb: Endpoint,
    pub ovs_run_dir: PathBuf,
    pub ovn_run_dir: PathBuf,
    pub northbound_file: PathBuf,
    pub southbound_file: PathBuf,
}

/// Which daemons are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exported {
    Ovn,
    OpenVSwitch,
    Both,
}

impl Exported {
    fn has_ovn(self) -> bool {
        matches!(self, Self::Ovn | Self::Both)
    }

    fn has_open_vswitch(self) -> bool {
        matches!(self, Self::OpenVSwitch | Self::Both)
    }
}

/// The metrics. Clones share the reader, which ends with the last one.
#[derive(Debug, Clone)]
pub struct Exporter(mpsc::Sender<oneshot::Sender<Arc<str>>>);

impl Exporter {
    /// Reads when it is asked. Needs a tokio runtime.
    pub fn start(places: &ExporterPlaces, exported: Exported) -> Self {
        let (sender, asked) = mpsc::channel(WAITING);
        tokio::spawn(ExporterReader::new(places, exported).serve(asked));
        Self(sender)
    }

    /// All metrics in Prometheus' text format; empty if the reader has ended.
    pub async fn text(&self) -> Arc<str> {
        let (reply, text) = oneshot::channel();
        match self.0.send(reply).await {
            Ok(()) => text.await.unwrap_or_default(),
            Err(_) => Arc::default(),
        }
    }
}

/// The connections.
struct ExporterReader {
    switch: SwitchReader,
    ovn: Option<OvnReaders>,
}

struct OvnReaders {
    controller: ControllerReader,
    northd: NorthdReader,
    databases: DatabaseReader,
}

impl ExporterReader {
    fn new(places: &ExporterPlaces, exported: Exported) -> Self {
        Self {
            switch: SwitchReader::new(places, exported),
            ovn: exported.has_ovn().then(|| OvnReaders {
                controller: ControllerReader::new(places),
                northd: NorthdReader::new(places),
                databases: DatabaseReader::new(places),
            }),
        }
    }

    async fn serve(mut self, mut asked: mpsc::Receiver<oneshot::Sender<Arc<str>>>) {
        let mut last: Option<(Instant, Arc<str>)> = None;
        while let Some(reply) = asked.recv().await {
            let fresh = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH);
            let text = match fresh {
                Some((_, text)) => Arc::clone(text),
                None => {
                    let text: Arc<str> = self.read().await.text().into();
                    last = Some((Instant::now(), Arc::clone(&text)));
                    text
                }
            };
            // The scrape may have ended.
            let _ = reply.send(text);
        }
    }

    async fn read(&mut self) -> MetricSet {
        let of_ovn = async {
            let Some(OvnReaders { controller, northd, databases }) = &mut self.ovn else {
                return MetricSet::default();
            };
            let (controller, northd, databases) =
                tokio::join!(controller.read(), northd.read(), databases.read());
            controller.and(northd).and(databases)
        };
        let (switch, ovn) = tokio::join!(self.switch.read(), of_ovn);
        switch.and(ovn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_machine_without_daemons_has_no_metrics_and_that_is_no_error() {
        let nowhere = PathBuf::from("/nonexistent");
        let places = ExporterPlaces {
            ovsdb: "unix:/nonexistent/db.sock".parse().unwrap(),
            ovs_run_dir: nowhere.clone(),
            ovn_run_dir: nowhere.clone(),
            northbound_file: nowhere.clone(),
            southbound_file: nowhere,
        };
        assert_eq!(&*Exporter::start(&places, Exported::Both).text().await, "");
    }
}
