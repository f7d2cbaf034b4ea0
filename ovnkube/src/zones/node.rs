//! A node on its way between two zones, as its annotations tell. Pure.

use std::collections::BTreeMap;

use contract::node_annotation::{
    CHASSIS_ID, ENCAP_IPS, NEXT_ZONE, NODE_ID, TRANSIT_ADDRESSES, WANTED_ZONE, ZONE, ZONE_CHOICES,
};
use serde_json::Value;

use super::Direction;

/// What an object says of its node's zones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NodeZones {
    pub(super) name: String,
    annotations: BTreeMap<String, String>,
}

/// How far a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MoveStep {
    /// Nobody has asked it to move.
    Elsewhere,
    /// It should move, and its server has not begun.
    Asked,
    /// The new zone has not all rows of the node yet.
    Filling,
    /// ovn-controller goes from one database to the other.
    Switching,
    Arrived,
}

impl MoveStep {
    /// For people, with the step before which the node is.
    pub(super) fn text(&self, target: &str) -> String {
        match self {
            Self::Elsewhere => format!("is about to be asked to zone {target}"),
            Self::Asked => format!("is asked to zone {target}; its server has not begun"),
            Self::Filling => format!("zone {target} gets the node's rows"),
            Self::Switching => format!("ovn-controller goes to the database of zone {target}"),
            Self::Arrived => format!("is in zone {target}"),
        }
    }
}

impl NodeZones {
    /// Those of a Node object.
    pub(super) fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        let all = metadata["annotations"].as_object();
        let text =
            |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        Self {
            name: metadata["name"].as_str().unwrap_or_default().to_owned(),
            annotations: all.into_iter().flatten().filter_map(text).collect(),
        }
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Where the node is.
    pub(super) fn zone(&self) -> Option<&str> {
        self.annotation(ZONE)
    }

    /// The zones that its server knows, with what each lacks.
    fn choices(&self) -> BTreeMap<String, String> {
        let text = self.annotation(ZONE_CHOICES).unwrap_or_default();
        serde_json::from_str(text).unwrap_or_default()
    }

    /// What the zone lacks, as the node's server says.
    pub(super) fn lacking(&self, zone: &str) -> Option<String> {
        self.choices().remove(zone).filter(|what| !what.is_empty())
    }

    /// The zone to which the direction leads from here.
    ///
    /// # Errors
    ///
    /// Why there is none: the server knows one zone.
    pub(super) fn target(&self, direction: Direction) -> Result<String, String> {
        let choices = self.choices();
        let zone = match direction {
            Direction::Own => choices.keys().find(|zone| **zone == self.name),
            Direction::Back => choices.keys().find(|zone| **zone != self.name),
        };
        if let Some(zone) = zone {
            return Ok(zone.clone());
        }
        // A server without a choice: only where it is can be said.
        match (direction, self.zone()) {
            (Direction::Own, Some(zone)) if zone == self.name => Ok(zone.to_owned()),
            (Direction::Back, Some(zone)) if zone != self.name => Ok(zone.to_owned()),
            _ => Err("its server knows no other zone: start it with --other-zone and \
                      --other-sb-address (with the chart: layout both)"
                .to_owned()),
        }
    }

    pub(super) fn step(&self, target: &str) -> MoveStep {
        let [wanted, next] = [WANTED_ZONE, NEXT_ZONE].map(|key| self.annotation(key));
        let is_here = self.zone() == Some(target);
        let is_other_wanted = wanted.is_some_and(|wanted| wanted != target);
        match (is_here, next) {
            (true, None) if !is_other_wanted => MoveStep::Arrived,
            _ if wanted != Some(target) => MoveStep::Elsewhere,
            (true, Some(_)) => MoveStep::Switching,
            (false, Some(next)) if next == target => MoveStep::Filling,
            _ => MoveStep::Asked,
        }
    }

    /// What other zones need of this node.
    pub(super) fn unconnected(&self) -> Option<&'static str> {
        let missing = |keys: &[&str]| keys.iter().any(|key| self.annotation(key).is_none());
        if missing(&[CHASSIS_ID]) {
            Some("no server has written its chassis: it does not run there, or cannot write")
        } else if missing(&[ENCAP_IPS]) {
            Some("its server runs without --enable-interconnect")
        } else if missing(&[NODE_ID, TRANSIT_ADDRESSES]) {
            Some(
                "it has no address between zones: the cluster manager does not run, or without \
                 --enable-interconnect",
            )
        } else {
            None
        }
    }

    /// What keeps the node from moving.
    pub(super) fn problem(&self, target: &str) -> Option<String> {
        if let Some(why) = self.unconnected() {
            return Some(why.to_owned());
        }
        if !self.choices().contains_key(target) {
            return Some(format!("its server does not know the zone {target}"));
        }
        self.lacking(target).map(|what| format!("zone {target} is not ready: {what}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(annotations: &[(&str, &str)]) -> NodeZones {
        let annotations: BTreeMap<&str, &str> = annotations.iter().copied().collect();
        NodeZones::of(&json!({"metadata": {"name": "n1", "annotations": annotations}}))
    }

    const CHOICES: (&str, &str) = (ZONE_CHOICES, r#"{"global":"","n1":"chassis n2"}"#);

    #[test]
    fn each_step_of_a_move_is_told_from_annotations_alone() {
        let steps: [(&[(&str, &str)], MoveStep); 8] = [
            (&[(ZONE, "global")], MoveStep::Elsewhere),
            (&[(ZONE, "global"), (WANTED_ZONE, "n1")], MoveStep::Asked),
            (&[(ZONE, "global"), (WANTED_ZONE, "n1"), (NEXT_ZONE, "n1")], MoveStep::Filling),
            (&[(ZONE, "n1"), (WANTED_ZONE, "n1"), (NEXT_ZONE, "n1")], MoveStep::Switching),
            (&[(ZONE, "n1"), (WANTED_ZONE, "n1")], MoveStep::Arrived),
            (&[(ZONE, "n1")], MoveStep::Arrived),
            // It is about to leave.
            (&[(ZONE, "n1"), (WANTED_ZONE, "global")], MoveStep::Elsewhere),
            // It was on the way back when it was asked.
            (&[(ZONE, "global"), (WANTED_ZONE, "n1"), (NEXT_ZONE, "global")], MoveStep::Asked),
        ];
        for (annotations, step) in steps {
            assert_eq!(node(annotations).step("n1"), step, "{annotations:?}");
        }
    }

    #[test]
    fn the_way_leads_to_the_zone_of_the_nodes_name_and_back_to_the_other() {
        let both = node(&[(ZONE, "global"), CHOICES]);
        assert_eq!(both.target(Direction::Own).unwrap(), "n1");
        assert_eq!(both.target(Direction::Back).unwrap(), "global");
        let alone = node(&[(ZONE, "n1")]);
        assert_eq!(alone.target(Direction::Own).unwrap(), "n1");
        assert!(alone.target(Direction::Back).unwrap_err().contains("--other-zone"));
        let garbled = node(&[(ZONE, "global"), (ZONE_CHOICES, "[]")]);
        assert!(garbled.target(Direction::Own).is_err());
    }

    #[test]
    fn what_keeps_a_node_from_moving_is_said() {
        let problem = |annotations: &[(&str, &str)]| node(annotations).problem("n1").unwrap();
        assert!(problem(&[CHOICES]).contains("no server"));
        let mut all = vec![CHOICES, (CHASSIS_ID, "c")];
        assert!(problem(&all).contains("--enable-interconnect"));
        all.push((ENCAP_IPS, "[]"));
        assert!(problem(&all).contains("cluster manager"));
        all.extend([(NODE_ID, "2"), (TRANSIT_ADDRESSES, "{}")]);
        assert_eq!(problem(&all), "zone n1 is not ready: chassis n2");
        assert_eq!(node(&all).problem("global"), None);
        assert!(node(&all).problem("n2").unwrap().contains("does not know the zone n2"));
    }
}
