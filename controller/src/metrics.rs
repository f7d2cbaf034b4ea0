//! Metrics of the controller. Does not know how they are served.

use contract::limits;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// Metrics of the way from dirty keys to committed rows. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// By `result`: `committed`, `overtaken` by another writer, `refused`, `lost`.
    pub(crate) transactions: IntCounterVec,
    /// By `table`.
    pub(crate) rows: IntCounterVec,
    /// Keys per transaction.
    pub(crate) batch: Histogram,
    pub(crate) dirty: IntGauge,
    pub(crate) waiting: IntGauge,
    pub(crate) failing: IntGauge,
    pub(crate) doubted: IntGauge,
    /// Objects beyond a limit, by `kind`.
    pub(crate) beyond_limits: IntGaugeVec,
    /// Seconds.
    pub(crate) settle: Histogram,
    /// Services that the API server has.
    pub(crate) services: IntGauge,
    pub(crate) unanswered_names: IntGauge,
    /// Seconds from a change of endpoints until their rows are in the database.
    pub(crate) programming: Histogram,
}

impl Metrics {
    /// Registers the metrics.
    ///
    /// # Errors
    ///
    /// The registry already has a metric of one of these names.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let metrics = Self::new()?;
        let Self {
            transactions,
            rows,
            batch,
            dirty,
            waiting,
            failing,
            doubted,
            beyond_limits,
            settle,
            services,
            unanswered_names,
            programming,
        } = metrics.clone();
        registry.register(Box::new(transactions))?;
        registry.register(Box::new(rows))?;
        registry.register(Box::new(batch))?;
        for gauge in [dirty, waiting, failing, doubted, services, unanswered_names] {
            registry.register(Box::new(gauge))?;
        }
        registry.register(Box::new(beyond_limits))?;
        registry.register(Box::new(settle))?;
        registry.register(Box::new(programming))?;
        Ok(metrics)
    }

    /// The counter of committed transactions.
    pub fn committed(&self) -> IntCounter {
        self.transactions.with_label_values(&["committed"])
    }

    fn new() -> prometheus::Result<Self> {
        let name = |name: &str| format!("ovnkube_controller_{name}");
        let gauge = |text: &str, help: &str| IntGauge::new(name(text), help);
        let histogram = |text: &str, help: &str, buckets| {
            Histogram::with_opts(HistogramOpts::new(name(text), help).buckets(buckets))
        };
        Ok(Self {
            transactions: IntCounterVec::new(
                Opts::new(name("nb_transactions_total"), "Transactions sent to the northbound database."),
                &["result"],
            )?,
            rows: IntCounterVec::new(
                Opts::new(
                    name("nb_rows_written_total"),
                    "Rows inserted, changed or deleted in the northbound database.",
                ),
                &["table"],
            )?,
            batch: histogram(
                "nb_transaction_keys",
                "Objects whose rows one transaction wrote.",
                // 1 to 4,096 keys: a transaction holds about a thousand rows, and a key has at
                // least one.
                prometheus::exponential_buckets(1.0, 4.0, 7)?,
            )?,
            dirty: gauge(
                "dirty_objects",
                "Objects whose rows have to be compared with the northbound database.",
            )?,
            waiting: gauge("waiting_objects", "Objects whose rows refer to rows that are not there yet.")?,
            failing: gauge(
                "failing_objects",
                "Objects whose rows the northbound database refused; they are tried again.",
            )?,
            doubted: gauge(
                "doubted_objects",
                "Nodes and pods that the API server suddenly lists no more, kept until a second list.",
            )?,
            beyond_limits: {
                let gauges = IntGaugeVec::new(
                    Opts::new(
                        name("objects_beyond_limits"),
                        "Objects that cost more than docs/limits.md allows, and are closed.",
                    ),
                    &["kind"],
                )?;
                for kind in limits::KINDS {
                    gauges.with_label_values(&[kind]).set(0);
                }
                gauges
            },
            settle: histogram(
                "settle_seconds",
                "From an object's change until its rows are known to be as they should be.",
                // 1 ms to 33 s: from one transaction to a cluster of 10,000 pods that starts from
                // nothing.
                prometheus::exponential_buckets(0.001, 2.0, 16)?,
            )?,
            services: gauge("services", "Services that the API server has.")?,
            unanswered_names: gauge(
                "unanswered_names",
                "Names of the DNS in rules that have no addresses, because there was no answer yet.",
            )?,
            programming: Histogram::with_opts(
                HistogramOpts::new(
                    // The name that kube-proxy gives it: the indicator is Kubernetes'.
                    "kubeproxy_network_programming_duration_seconds",
                    "From a change of a Service's pods, as its EndpointSlices tell, until OVN's northbound \
                     database has it. Flows follow some milliseconds later.",
                )
                // Finer than kube-proxy's, which begin at a quarter of a second.
                .buckets(prometheus::exponential_buckets(0.001, 2.0, 18)?),
            )?,
        })
    }
}
