//! The zones that a node may be in, and the one where it should be. Pure.

use std::collections::BTreeMap;

use contract::node_annotation::{WANTED_ZONE, ZONE};

use crate::node::open_vswitch::Southbound;

/// A zone and its southbound database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::node) struct ZonePlace {
    pub(in crate::node) zone: String,
    pub(in crate::node) southbound: Southbound,
}

/// The zones of the options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::node) struct ZonePlaces {
    /// `--zone`
    pub(in crate::node) own: ZonePlace,
    /// `--other-zone`
    pub(in crate::node) other: Option<ZonePlace>,
}

impl ZonePlaces {
    /// Where the node should be. Without another zone in the options, no annotation counts. An
    /// annotation that names none of the zones is none.
    ///
    /// A node of which nobody has said where it should be stays where it is: another order of the
    /// two zones in its options moves no node.
    pub(super) fn target(
        &self,
        annotations: &BTreeMap<String, String>,
        followed: &Southbound,
    ) -> &ZonePlace {
        let named = |key| self.of(annotations.get(key)?);
        let there = self.all().find(|place| place.southbound.remote == followed.remote);
        match self.other {
            None => &self.own,
            Some(_) => named(WANTED_ZONE).or(named(ZONE)).or(there).unwrap_or(&self.own),
        }
    }

    pub(super) fn of(&self, zone: &str) -> Option<&ZonePlace> {
        self.all().find(|place| place.zone == zone)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &ZonePlace> {
        [&self.own].into_iter().chain(&self.other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(zone: &str) -> ZonePlace {
        let southbound = Southbound { remote: format!("unix:/{zone}"), tls: None };
        ZonePlace { zone: zone.to_owned(), southbound }
    }

    fn target(places: &ZonePlaces, wanted: &str, name: &str, followed: &str) -> String {
        let annotations = [(WANTED_ZONE, wanted), (ZONE, name)]
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        places.target(&annotations, &place(followed).southbound).zone.clone()
    }

    #[test]
    fn a_node_goes_where_it_is_wanted_and_else_stays_and_never_into_a_zone_of_no_option() {
        let both = ZonePlaces { own: place("n1"), other: Some(place("global")) };
        assert_eq!(target(&both, "n1", "global", "global"), "n1");
        assert_eq!(target(&both, "global", "n1", "n1"), "global");
        assert_eq!(target(&both, "", "global", "global"), "global");
        assert_eq!(target(&both, "", "n1", "n1"), "n1");
        // A node of before the annotations, and one that is new.
        assert_eq!(target(&both, "", "", "global"), "global");
        assert_eq!(target(&both, "", "", "elsewhere"), "n1");
        // Another node's zone, which an annotation may name.
        assert_eq!(target(&both, "n2", "global", "global"), "global");
        assert_eq!(target(&both, "n2", "n2", "n1"), "n1");

        let one = ZonePlaces { own: place("n1"), other: None };
        for wanted in ["", "n1", "global", "n2"] {
            assert_eq!(target(&one, wanted, "global", "global"), "n1");
        }
    }
}
