//! The ranges of Services' addresses: those of the ServiceCIDR objects, which come and go while the
//! controller runs. Without such objects, as before Kubernetes 1.33, those of the options.
//!
//! A range is a route in the annotations of later pods, it is what no pod may claim, an address in
//! it is not for `externalIPs`, and a Service outside of all ranges is named.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use crate::config::ClusterConfig;

/// Name of a ServiceCIDR object.
pub type RangeName = Arc<str>;

/// The ranges.
#[derive(Debug)]
pub(crate) struct Ranges {
    pub(crate) objects: BTreeMap<RangeName, Box<[IpNet]>>,
    /// The settings for later pods: those of the options, with the ranges of the objects.
    pub(crate) config: Arc<ClusterConfig>,
}

impl Ranges {
    pub(crate) fn new(config: Arc<ClusterConfig>) -> Self {
        Self { objects: BTreeMap::new(), config }
    }

    /// The settings for later pods. An existing annotation stays as it is: its routes go to the
    /// same gateway as the pod's default route.
    pub(crate) fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// Whether no object has the address in its ranges. False without objects: the options may be
    /// wrong.
    pub(crate) fn lack(&self, address: IpAddr) -> bool {
        !self.objects.is_empty()
            && !self.objects.values().flatten().any(|range| range.contains(&address))
    }

    /// Derives the settings anew, in an order that does not depend on that of events.
    pub(crate) fn follow(&mut self, options: &Arc<ClusterConfig>) {
        let mut ranges: Vec<IpNet> = self.objects.values().flatten().copied().collect();
        // The ranges of the options first and in their order: where both agree, nothing is
        // different.
        let place = |range: &IpNet| options.service_cidrs.iter().position(|own| own == range);
        ranges.sort_by_key(|range| (place(range).unwrap_or(usize::MAX), *range));
        ranges.dedup();
        self.config = if ranges.is_empty() || ranges == options.service_cidrs {
            Arc::clone(options)
        } else {
            Arc::new(ClusterConfig { service_cidrs: ranges, ..ClusterConfig::clone(options) })
        };
    }
}
