//! Packets that NetworkPolicies would drop that are dry runs: read anew for each page.
//!
//! The names of policies are labels. Without them the numbers say nothing; they are few, because a
//! dry run is an annotation of one policy for the time of a trial, and bounded.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use contract::ovn::DryRun;
use prometheus::{
    IntCounterVec, Opts, Result,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use super::register::Register;

/// Policies and directions with series of their own. All others are one.
const MOST_SERIES: usize = 256;

/// Reads the packets that have matched until now.
type Read = Box<dyn Fn() -> io::Result<BTreeMap<DryRun, u64>> + Send + Sync>;

#[derive(Clone)]
pub(super) struct DryRuns {
    packets: IntCounterVec,
    read: Arc<OnceLock<Read>>,
    /// Why they could not be read the last time.
    trouble: Arc<Mutex<Option<String>>>,
}

impl DryRuns {
    pub(super) fn register(register: &Register<'_>) -> Result<Self> {
        let opts = Opts::new(
            "ovnkube_node_dry_run_would_drop_packets_total",
            "Packets from or to pods of this node that a NetworkPolicy would drop that is a dry run, since \
             ovn-controller made its flows.",
        );
        let packets = IntCounterVec::new(opts, &["namespace", "policy", "direction"])?;
        register.known(Self { packets, read: Arc::default(), trouble: Arc::default() })
    }

    /// Packets are counted by this from now on. The first one stays.
    pub(super) fn read_by(&self, read: Read) {
        let _ = self.read.set(read);
    }

    fn look(&self) {
        // A policy that is gone, or enforced now, must not keep its last number.
        self.packets.reset();
        let Some(read) = self.read.get() else { return };
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match read() {
            Ok(packets) => {
                if trouble.take().is_some() {
                    tracing::info!("packets of dry runs are counted again");
                }
                for (number, (DryRun { namespace, policy, direction }, packets)) in
                    packets.iter().enumerate()
                {
                    let labels = match number < MOST_SERIES {
                        true => [namespace.as_str(), policy.as_str(), direction],
                        // No namespace has an empty name.
                        false => ["", "others", direction],
                    };
                    self.packets.with_label_values(&labels).inc_by(*packets);
                }
            }
            Err(error) => {
                let why = error.to_string();
                if trouble.as_ref() != Some(&why) {
                    tracing::warn!(%error, "packets of dry runs cannot be counted");
                    *trouble = Some(why);
                }
            }
        }
    }
}

/// Blocks while it reads.
impl Collector for DryRuns {
    fn desc(&self) -> Vec<&Desc> {
        self.packets.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.look();
        self.packets.collect()
    }
}

impl std::fmt::Debug for DryRuns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_read = self.read.get().is_some();
        f.debug_struct("DryRuns").field("is_read", &is_read).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use prometheus::{Registry, TextEncoder};

    use super::*;

    fn dry_run(policy: &str) -> DryRun {
        DryRun { namespace: "shop".to_owned(), policy: policy.to_owned(), direction: "Ingress" }
    }

    fn series(registry: &Registry) -> Vec<String> {
        let mut text = String::new();
        TextEncoder::new().encode_utf8(&registry.gather(), &mut text).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn each_page_has_the_numbers_of_its_moment_and_none_while_they_cannot_be_read() {
        let registry = Registry::new();
        let metrics = DryRuns::register(&Register(&registry)).unwrap();
        assert_eq!(series(&registry), [""; 0]);
        let packets = Arc::new(AtomicU64::new(5));
        let read = Arc::clone(&packets);
        metrics.read_by(Box::new(move || match read.load(Ordering::Relaxed) {
            0 => Err(io::Error::other("nobody answers")),
            packets => Ok(BTreeMap::from([(dry_run("db"), packets)])),
        }));
        let expected = |number| {
            let labels = r#"direction="Ingress",namespace="shop",policy="db""#;
            format!("ovnkube_node_dry_run_would_drop_packets_total{{{labels}}} {number}")
        };
        assert_eq!(series(&registry), [expected(5)]);
        packets.store(7, Ordering::Relaxed);
        assert_eq!(series(&registry), [expected(7)]);
        packets.store(0, Ordering::Relaxed);
        assert_eq!(series(&registry), [""; 0]);
    }

    /// A page must not grow with what users write.
    #[test]
    fn policies_beyond_the_limit_are_one_series() {
        let registry = Registry::new();
        let metrics = DryRuns::register(&Register(&registry)).unwrap();
        let all =
            || (0..MOST_SERIES + 9).map(|number| (dry_run(&format!("p{number:04}")), 2)).collect();
        metrics.read_by(Box::new(move || Ok(all())));
        let found = series(&registry);
        assert_eq!(found.len(), MOST_SERIES + 1);
        let others = found.iter().find(|line| line.contains(r#"policy="others""#)).unwrap();
        assert!(others.ends_with(" 18"), "{others}");
    }
}
