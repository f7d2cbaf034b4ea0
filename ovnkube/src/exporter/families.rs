//! Metrics by name, and their text.

use std::collections::BTreeMap;

use prometheus::{
    TextEncoder,
    proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType},
};

/// The metrics of one reading.
#[derive(Debug, Default)]
pub(super) struct MetricSet(BTreeMap<String, MetricFamily>);

impl MetricSet {
    /// Sets a gauge. Names and labels are upstream's, which has gauges for counters, too.
    pub(super) fn set(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        let mut metric = Metric::from_gauge(gauge);
        metric.set_label(pairs(labels));
        self.push(name, help, MetricType::GAUGE, metric);
    }

    /// Sets a counter.
    pub(super) fn count(&mut self, name: &str, help: &str, value: f64) {
        let mut counter = Counter::default();
        counter.set_value(value);
        let mut metric = Metric::default();
        metric.set_counter(counter);
        self.push(name, help, MetricType::COUNTER, metric);
    }

    /// A gauge of 1 whose labels say something.
    pub(super) fn info(&mut self, name: &str, help: &str, labels: &[(&str, &str)]) {
        self.set(name, help, labels, 1.0);
    }

    /// Whether a daemon that is here answers.
    pub(super) fn up(&mut self, daemon: &str, is_up: bool) {
        let help = "Whether a daemon of this machine answers (1) or not (0).";
        self.set("ovnkube_exporter_up", help, &[("daemon", daemon)], f64::from(u8::from(is_up)));
    }

    /// These and the others.
    pub(super) fn and(mut self, others: Self) -> Self {
        for (name, family) in others.0 {
            match self.0.get_mut(&name) {
                Some(own) => family.get_metric().iter().for_each(|metric| {
                    own.mut_metric().push(metric.clone());
                }),
                None => {
                    self.0.insert(name, family);
                }
            }
        }
        self
    }

    /// In Prometheus' text format.
    pub(super) fn text(&self) -> String {
        let families: Vec<MetricFamily> = self.0.values().cloned().collect();
        // Every family has metrics, and so every one has a text.
        TextEncoder::new().encode_to_string(&families).unwrap_or_default()
    }

    fn push(&mut self, name: &str, help: &str, kind: MetricType, metric: Metric) {
        let family = self.0.entry(name.to_owned()).or_insert_with(|| {
            let mut family = MetricFamily::default();
            family.set_name(name.to_owned());
            family.set_help(help.to_owned());
            family.set_field_type(kind);
            family
        });
        family.mut_metric().push(metric);
    }
}

fn pairs(labels: &[(&str, &str)]) -> Vec<LabelPair> {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    labels.iter().map(pair).collect()
}
