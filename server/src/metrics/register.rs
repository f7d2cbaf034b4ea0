//! How a measurement gets its name. Knows no particular one.

use prometheus::{
    Counter, Gauge, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, core::Collector,
    exponential_buckets,
};

const OURS: &str = "names are valid and differ: each is written down once";

/// Buckets from a millisecond to a minute: the first one and how many, each twice the one before.
pub(super) const FINE: (f64, usize) = (0.001, 17);

/// Makes measurements known to a registry.
pub(super) struct Register<'a>(pub(super) &'a Registry);

impl Register<'_> {
    pub(super) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.known(IntCounterVec::new(Opts::new(name, help), labels))
    }

    pub(super) fn int_counter(&self, name: &str, help: &str) -> IntCounter {
        self.known(IntCounter::new(name, help))
    }

    pub(super) fn counter(&self, name: &str, help: &str) -> Counter {
        self.known(Counter::new(name, help))
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> Gauge {
        self.known(Gauge::new(name, help))
    }

    pub(super) fn int_gauge(&self, name: &str, help: &str) -> IntGauge {
        self.known(IntGauge::new(name, help))
    }

    pub(super) fn int_gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.known(IntGaugeVec::new(Opts::new(name, help), labels))
    }

    /// With a bucket for each of `buckets` values from `first` on, each twice the one before.
    pub(super) fn histograms(&self, name: &str, help: &str, labels: &[&str], first: f64, buckets: usize) -> HistogramVec {
        let buckets = exponential_buckets(first, 2.0, buckets).expect(OURS);
        self.known(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels))
    }

    /// The program and what it was built from, under upstream's labels; what does not apply is empty.
    pub(super) fn build_info(&self, name: &str) {
        let labels = ["version", "revision", "branch", "build_user", "build_date", "goversion"];
        let info = self.int_gauges(name, "Always 1; the labels say which program this is.", &labels);
        let revision = option_env!("OVNKUBE_REVISION").unwrap_or_default();
        info.with_label_values(&[env!("CARGO_PKG_VERSION"), revision, "", "", "", ""]).set(1);
    }

    fn known<C: Collector + Clone + 'static>(&self, collector: prometheus::Result<C>) -> C {
        let collector = collector.expect(OURS);
        self.0.register(Box::new(collector.clone())).expect(OURS);
        collector
    }
}
