//! The measured figures of the node ports of a node, their goals, and the text on the terminal.
//! Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    report::{gate::Gate, percentiles::Percentiles},
    scale::process::Usage,
};

/// Limit for the flows of a node port of one family: to the gateway router and, on a kernel's
/// datapath, back.
const FLOWS: f64 = 2.0;
/// Limit for the message that brings one more node port, in bytes: its two flows take 280.
const BYTES: f64 = 500.0;
/// Limit for the time until all flows are back after a start of ovs-vswitchd, in milliseconds.
const BACK: f64 = 1_000.0;
/// Limit for the wait for one more node port, as a multiple of that without others.
const WITH_OTHERS: f64 = 1.5;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct NodePorts {
    pub(crate) count: u16,
    /// The server's flows in the bridge, without node ports and with them.
    pub(crate) flows_without: usize,
    pub(crate) flows: usize,
    /// From the API server's last answer until the last flow, in seconds.
    pub(crate) created: f64,
    /// One node port that comes and goes, without others and beside them.
    pub(crate) alone: Vec<Round>,
    pub(crate) beside: Vec<Round>,
    /// From the first connection that a new ovs-vswitchd accepts until the last flow, in seconds.
    pub(crate) switch_restarted: f64,
    /// From the start of a server, which finds no flow of its own, until the last flow, in seconds.
    pub(crate) server_restarted: f64,
    /// Its largest message then.
    pub(crate) sent: Sent,
    /// Of that server, in the end.
    pub(crate) server: Usage,
}

/// One node port comes and goes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Round {
    /// From the request to the API server until its answer, in milliseconds.
    pub(crate) answered: f64,
    /// From the request to the API server until the flow was there, and until it was gone, in
    /// milliseconds.
    pub(crate) added: f64,
    pub(crate) removed: f64,
    /// Flows that came, went or changed until then.
    pub(crate) events: usize,
    /// Of the message that added it.
    pub(crate) bytes: usize,
}

/// A message to a bridge, as the server's log has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sent {
    pub(crate) added: usize,
    pub(crate) removed: usize,
    pub(crate) bytes: usize,
}

impl Sent {
    /// The message that a line of the log tells of; none if nothing was sent.
    pub(super) fn read(line: &str) -> Option<Self> {
        let (_, outcome) = line.split_once("Outcome {")?;
        let number = |name: &str| {
            let (_, rest) = outcome.split_once(&format!(" {name}: "))?;
            rest.split([',', ' ']).next()?.parse().ok()
        };
        let sent =
            Self { added: number("added")?, removed: number("removed")?, bytes: number("bytes")? };
        (sent.bytes > 0).then_some(sent)
    }
}

impl NodePorts {
    fn flows_of_each(&self) -> f64 {
        (self.flows as f64 - self.flows_without as f64) / f64::from(self.count)
    }

    /// Every goal.
    pub(crate) fn gates(&self) -> Vec<Gate> {
        let median =
            |rounds: &[Round], of: fn(&Round) -> f64| Percentiles::of(rounds.iter().map(of)).p50;
        let added = |rounds: &[Round]| median(rounds, |round| round.added);
        let answered = |rounds: &[Round]| median(rounds, |round| round.answered);
        // With many Services the API server itself looks longer for an address and a port.
        let answered_later = (answered(&self.beside) - answered(&self.alone)).max(0.0);
        let most =
            |of: fn(&Round) -> usize| self.beside.iter().map(of).max().unwrap_or_default() as f64;
        vec![
            Gate::at_most("flows of a node port", "", self.flows_of_each(), FLOWS),
            Gate::at_most(
                "flows that one more adds and removes",
                "",
                most(|round| round.events),
                2.0 * FLOWS,
            ),
            Gate::at_most("message for one more", "bytes", most(|round| round.bytes), BYTES),
            Gate::at_most(
                "one more, p50, without what the API server takes longer",
                "ms",
                added(&self.beside) - answered_later,
                WITH_OTHERS * added(&self.alone),
            ),
            Gate::at_most(
                "all flows back after ovs-vswitchd",
                "ms",
                self.switch_restarted * 1e3,
                BACK,
            ),
        ]
    }
}

impl fmt::Display for NodePorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodePorts {
            count,
            flows_without,
            flows,
            created,
            alone,
            beside,
            switch_restarted,
            server_restarted,
            sent,
            server,
        } = self;
        writeln!(
            f,
            "{count} node ports: {flows} flows in the bridge, {flows_without} without them: {:.2} for each",
            self.flows_of_each()
        )?;
        writeln!(f, "  created: the last flow {created:.2} s after the API server's last answer")?;
        for (rounds, what) in [(alone, "without others"), (beside, "beside them")] {
            let of = |wait: fn(&Round) -> f64| Percentiles::of(rounds.iter().map(wait));
            let (added, removed) = (of(|round| round.added), of(|round| round.removed));
            let answered = of(|round| round.answered).p50;
            let bytes = rounds.iter().map(|round| round.bytes).max().unwrap_or_default();
            writeln!(
                f,
                "  one more, {what}: answered after {answered:.1} ms p50, there after {:.1} p50, {:.1} p90; gone after {:.1} p50, {:.1} p90; {bytes} bytes",
                added.p50, added.p90, removed.p50, removed.p90
            )?;
        }
        writeln!(
            f,
            "  all from nothing: {:.0} ms after a new ovs-vswitchd answers",
            switch_restarted * 1e3
        )?;
        let Sent { added, bytes, .. } = sent;
        writeln!(
            f,
            "    {server_restarted:.2} s after the start of a server: {added} flows, {bytes} bytes at once"
        )?;
        writeln!(
            f,
            "  the server: {:.1} MB (peak {:.1}), {:.2} s CPU\n",
            server.rss, server.peak_rss, server.cpu
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_the_log() {
        let line = "2026-11-26T02:28:41.123Z|00031|gateway|DBG|the flows of the gateway's bridge are installed \
                    (bridge=breth0, outcome=Outcome { added: 2, removed: 0, bytes: 280, conflicts: [], refused: [] })";
        assert_eq!(Sent::read(line), Some(Sent { added: 2, removed: 0, bytes: 280 }));
        assert_eq!(Sent::read(&line.replace("added: 2", "added: 0").replace("280", "0")), None);
        assert_eq!(Sent::read("2026-11-26T02:28:41.123Z|00031|gateway|INFO|another line"), None);
    }

    type Spoil = fn(&mut NodePorts);

    #[test]
    fn each_gate_of_node_ports_is_missed_beyond_its_limit() {
        let round = Round { answered: 4.0, added: 10.0, removed: 10.0, events: 4, bytes: 500 };
        let limits = NodePorts {
            count: 100,
            flows_without: 50,
            flows: 250,
            created: 0.1,
            alone: vec![round],
            beside: vec![Round { answered: 6.0, added: 17.0, ..round }],
            switch_restarted: 1.0,
            server_restarted: 3.0,
            sent: Sent { added: 200, removed: 0, bytes: 20_000 },
            server: Usage::default(),
        };
        let missed = |figures: &NodePorts| -> Vec<String> {
            figures.gates().into_iter().filter(|gate| !gate.holds).map(|gate| gate.demand).collect()
        };
        assert!(missed(&limits).is_empty());
        let beyond: [(Spoil, &str); 5] = [
            (|figures| figures.flows = 251, "flows of a node port"),
            (|figures| figures.beside[0].events = 5, "flows that one more adds and removes"),
            (|figures| figures.beside[0].bytes = 501, "message for one more"),
            (
                |figures| (figures.beside[0].added, figures.beside[0].answered) = (18.1, 7.0),
                "one more, p50, without what the API server takes longer",
            ),
            (|figures| figures.switch_restarted = 1.1, "all flows back after ovs-vswitchd"),
        ];
        for (spoil, demand) in beyond {
            let mut figures = limits.clone();
            spoil(&mut figures);
            assert_eq!(missed(&figures), [demand]);
        }
    }
}
