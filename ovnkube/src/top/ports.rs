//! Ports of pods as they come, wait and get their flows. Pure.

use std::{collections::BTreeMap, time::Duration};

use ovsdb::Uuid;
use tokio::time::Instant;

use crate::findings::{Finding, State};

/// Ports that wait and are named.
const NAMED: usize = 10;
/// The latest durations that are kept.
const KEPT: usize = 10_000;

ovsdb::table! {
    /// A logical port.
    pub(super) struct PortRow in "Port_Binding" {
        logical_port: String,
        /// Empty for ports of pods and nodes.
        kind: String = "type",
        chassis: Option<Uuid>,
        up: Option<bool>,
    }
}

/// What was seen of the ports.
#[derive(Debug, Default)]
pub(super) struct Ports {
    known: BTreeMap<Uuid, Seen>,
    /// Since the last report.
    came: usize,
    went: usize,
    /// From a port's row to its flows, of ports that came while this looked.
    took: Vec<Duration>,
}

#[derive(Debug)]
struct Seen {
    name: String,
    since: Instant,
    is_claimed: bool,
    is_up: bool,
    /// It was there before this looked.
    is_old: bool,
}

impl Ports {
    /// The ports that are there at the beginning.
    pub(super) fn of<'a>(rows: impl Iterator<Item = (Uuid, &'a PortRow)>, now: Instant) -> Self {
        let mut ports = Self::default();
        ports.note(rows, now);
        ports.known.values_mut().for_each(|seen| seen.is_old = true);
        ports.came = 0;
        ports.took.clear();
        ports
    }

    /// The ports as they are now.
    pub(super) fn note<'a>(
        &mut self,
        rows: impl Iterator<Item = (Uuid, &'a PortRow)>,
        now: Instant,
    ) {
        let mut there = BTreeMap::new();
        for (uuid, row) in rows.filter(|(_, row)| row.kind.is_empty()) {
            let before = self.known.remove(&uuid);
            self.came += usize::from(before.is_none());
            let was_up = before.as_ref().is_some_and(|seen| seen.is_up);
            let (since, is_old) = before.map_or((now, false), |seen| (seen.since, seen.is_old));
            let is_up = row.up == Some(true);
            if is_up && !was_up && !is_old && self.took.len() < KEPT {
                self.took.push(now - since);
            }
            let (name, is_claimed) = (row.logical_port.clone(), row.chassis.is_some());
            there.insert(uuid, Seen { name, since, is_claimed, is_up, is_old });
        }
        self.went += self.known.len();
        self.known = there;
    }

    /// What is said of them; the counts begin again.
    pub(super) fn findings(&mut self, interval: Duration, now: Instant) -> Vec<Finding> {
        let (came, went) = (std::mem::take(&mut self.came), std::mem::take(&mut self.went));
        let waiting: Vec<&Seen> = self.known.values().filter(|seen| !seen.is_up).collect();
        let all = self.known.len();
        let said = format!(
            "{all}, of which {} wait; {:.1} came and {:.1} went a second",
            waiting.len(),
            rate(came, interval),
            rate(went, interval)
        );
        let mut findings = vec![
            Finding::new("pods", "ports", State::Ok, &said)
                .with("ports", all)
                .with("waiting", waiting.len())
                .with("came", came)
                .with("went", went),
        ];
        findings.extend(self.latency());
        let mut oldest = waiting;
        oldest.sort_by_key(|seen| seen.since);
        for seen in oldest.iter().take(NAMED) {
            let for_what = match seen.is_claimed {
                true => "for its flows: its node's ovn-controller is behind",
                false => {
                    "to be claimed: its interface is not there, or ovn-controller not connected"
                }
            };
            let age = now.duration_since(seen.since).as_secs();
            let since = if seen.is_old { "from before this began" } else { "" };
            let said = format!("{for_what}; {age} s {since}");
            findings.push(Finding::new("waiting", &seen.name, State::Ok, said.trim_end()));
        }
        findings
    }

    /// From a port's row to its flows.
    fn latency(&self) -> Option<Finding> {
        let mut took = self.took.clone();
        took.sort_unstable();
        let last = took.len().saturating_sub(1);
        let of = |part: usize| Some(took.get(last * part / 100)?.as_millis());
        let (median, high) = (of(50)?, of(99)?);
        let said = format!("p50 {median} ms, p99 {high} ms, of {} ports", took.len());
        let whole = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
        let finding = Finding::new("pods", "row to flows", State::Ok, &said);
        Some(finding.with("p50", whole(median)).with("p99", whole(high)))
    }
}

/// So many a second.
pub(super) fn rate(count: usize, interval: Duration) -> f64 {
    let count = u32::try_from(count).map_or(f64::INFINITY, f64::from);
    count / interval.as_secs_f64().max(0.001)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, chassis: Option<Uuid>, up: bool) -> PortRow {
        PortRow { logical_port: name.to_owned(), kind: String::new(), chassis, up: Some(up) }
    }

    #[test]
    fn ports_are_counted_as_they_come_and_the_time_until_their_flows_is_taken() {
        let (first, second) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let start = Instant::now();
        let old = row("a", None, false);
        let mut ports = Ports::of([(first, &old)].into_iter(), start);
        let new = row("b", Some(first), false);
        ports.note([(first, &old), (second, &new)].into_iter(), start);
        let up = row("b", Some(first), true);
        let later = start + Duration::from_millis(250);
        ports.note([(first, &old), (second, &up)].into_iter(), later);
        let second_long = Duration::from_secs(1);
        let found = ports.findings(second_long, later);
        let said: Vec<&str> = found.iter().map(|finding| finding.summary.as_str()).collect();
        assert_eq!(said[0], "2, of which 1 wait; 1.0 came and 0.0 went a second");
        assert_eq!(said[1], "p50 250 ms, p99 250 ms, of 1 ports");
        assert!(said[2].contains("to be claimed"), "{said:?}");
        ports.note([(second, &up)].into_iter(), later);
        let found = ports.findings(second_long, later);
        assert!(found[0].summary.contains("0.0 came and 1.0 went"), "{found:?}");
    }
}
