//! What an event of a ServiceCIDR changes.

use std::collections::BTreeMap;

use ipnet::IpNet;

use crate::{key::Dirty, kinds::service::ranges::RangeName, world::Store};

impl Store {
    /// The ranges of Services' addresses.
    pub fn service_ranges(&self) -> &[IpNet] {
        &self.ranges.config.service_cidrs
    }

    pub(crate) fn replace_ranges(
        &mut self,
        ranges: Vec<(RangeName, Box<[IpNet]>)>,
        dirty: &mut Dirty<'_>,
    ) {
        self.change_ranges(|objects| *objects = ranges.into_iter().collect(), dirty);
    }

    pub(crate) fn put_range(
        &mut self,
        name: RangeName,
        ranges: Box<[IpNet]>,
        dirty: &mut Dirty<'_>,
    ) {
        self.change_ranges(|objects| drop(objects.insert(name, ranges)), dirty);
    }

    pub(crate) fn remove_range(&mut self, name: &RangeName, dirty: &mut Dirty<'_>) {
        self.change_ranges(|objects| drop(objects.remove(name)), dirty);
    }

    fn change_ranges(
        &mut self,
        change: impl FnOnce(&mut BTreeMap<RangeName, Box<[IpNet]>>),
        dirty: &mut Dirty<'_>,
    ) {
        let before = self.ranges.objects.clone();
        change(&mut self.ranges.objects);
        if before != self.ranges.objects {
            self.ranges.follow(&self.config);
            self.service_ranges_changed(self.service_ranges().to_vec(), dirty);
            self.tell_services();
        }
    }
}
