//! Registration of metrics. Knows no particular metric.

use prometheus::{
    Counter, Gauge, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, Result, core::Collector, exponential_buckets,
};

/// Buckets from a millisecond to a minute: the first bound in seconds, and how many, each twice the
/// one before.
pub(super) const FINE: (f64, usize) = (0.001, 17);

/// Registers metrics in a registry that has no others of the same names.
pub(super) struct Register<'a>(pub(super) &'a Registry);

impl Register<'_> {
    pub(super) fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec> {
        self.known(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    pub(super) fn int_counter(&self, name: &str, help: &str) -> Result<IntCounter> {
        self.known(IntCounter::new(name, help)?)
    }

    pub(super) fn counter(&self, name: &str, help: &str) -> Result<Counter> {
        self.known(Counter::new(name, help)?)
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> Result<Gauge> {
        self.known(Gauge::new(name, help)?)
    }

    pub(super) fn int_gauge(&self, name: &str, help: &str) -> Result<IntGauge> {
        self.known(IntGauge::new(name, help)?)
    }

    pub(super) fn int_gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntGaugeVec> {
        self.known(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    /// A histogram with `buckets` buckets: `first` is the bound of the first one, each other is
    /// twice the one before.
    pub(super) fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        first: f64,
        buckets: usize,
    ) -> Result<HistogramVec> {
        let buckets = exponential_buckets(first, 2.0, buckets)?;
        self.known(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels)?)
    }

    pub(super) fn known<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C> {
        self.0.register(Box::new(collector.clone()))?;
        Ok(collector)
    }
}
