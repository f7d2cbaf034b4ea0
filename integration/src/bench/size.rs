//! The size of a run: the options that say what is measured, and how often.

use std::path::Path;

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;

use super::measurements::Contestant;

/// Size of the measurement.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize)]
pub(crate) struct Size {
    /// Less than two minutes: what the gates need, in fewer rounds.
    #[arg(long)]
    #[serde(skip)]
    quick: bool,
    /// Pods that each contestant adds and deletes in each round; at least the number of calls at once.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) pods: usize,
    /// Of these, how many with fewer than 32 calls at once, or by upstream's plugin.
    #[arg(long, value_name = "N", default_value_t = 60, default_value_if("quick", "true", "16"))]
    pub(crate) few_pods: usize,
    /// Stale attachments that one GC removes. The valid attachments are the pods that stay.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) stale: usize,
    /// Rounds that count; one more comes before them, to warm up.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// The first of them, in which upstream's plugin takes part.
    #[arg(long, value_name = "N", default_value_t = 5, default_value_if("quick", "true", "2"))]
    pub(crate) slow_rounds: u32,
    /// How many calls at the same time; 1 is always among them, because of its gates.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,8,32,100")]
    #[arg(default_value_if("quick", "true", "1,32,100"))]
    pub(crate) at_once: Vec<usize>,
    /// How many pods are attached already while others come and go; 0 is always among them.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0,100,250")]
    #[arg(default_value_if("quick", "true", "0"))]
    pub(crate) ports: Vec<usize>,
    /// Of the numbers of calls at the same time, those that are measured with other pods, too: without any
    /// competition, and under load.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,32")]
    pub(crate) at_once_with_ports: Vec<usize>,
    /// Contestants that attach pods.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "floor,ours,bridge")]
    pub(crate) contestants: Vec<Contestant>,
}

impl Size {
    /// The same size with what has to be in it.
    pub(crate) fn completed(mut self, upstream: Option<&Path>) -> Result<Self> {
        ensure!(!self.at_once.contains(&0), "0 calls at once measure nothing");
        self.at_once.push(1);
        self.ports.push(0);
        for list in [&mut self.at_once, &mut self.ports] {
            list.sort_unstable();
            list.dedup();
        }
        self.at_once_with_ports.retain(|one| self.at_once.contains(one));
        // At least one pod for each caller, also where `--pods` asks for fewer.
        self.pods = self.at_once.iter().copied().fold(self.pods, usize::max);
        (self.few_pods, self.stale) = (self.few_pods.min(self.pods), self.stale.min(self.pods));
        self.slow_rounds = self.slow_rounds.min(self.rounds);
        self.contestants.extend(upstream.map(|_| Contestant::Upstream));
        ensure!(self.all_pods() <= 2000, "{} pods: the node has room for 2000", self.all_pods());
        Ok(self)
    }

    /// How many pods `contestant` adds and deletes in a round.
    pub(crate) fn share(&self, contestant: Contestant, at_once: usize) -> usize {
        let few = at_once < 32 || contestant == Contestant::Upstream;
        if few { self.few_pods.max(at_once) } else { self.pods }
    }

    /// Whether `contestant` takes part in a round (0 is the warm-up) while `ports` other pods are attached.
    pub(crate) fn has_part(&self, contestant: Contestant, ports: usize, round: u32) -> bool {
        contestant != Contestant::Upstream || ports == 0 && round <= self.slow_rounds
    }

    /// Pods on the node: those that come and go, and those that stay.
    pub(crate) fn all_pods(&self) -> usize {
        self.pods + self.ports.last().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn one_at_once_is_always_measured_and_a_size_that_measures_nothing_is_refused() {
        #[derive(Debug, Parser)]
        struct Arguments {
            #[command(flatten)]
            size: Size,
        }
        let size = |words: &str| {
            Arguments::try_parse_from(["bench"].into_iter().chain(words.split(' ')))?.size.completed(None)
        };
        let usual = size("--pods 4 --at-once 32,8,8").unwrap();
        assert_eq!((usual.at_once, usual.pods), (vec![1, 8, 32], 32));
        assert_eq!((usual.ports, usual.at_once_with_ports), (vec![0, 100, 250], vec![1, 32]));
        let quick = size("--quick").unwrap();
        assert_eq!((quick.few_pods, quick.at_once, quick.ports), (16, vec![1, 32, 100], vec![0]));
        for words in ["--at-once 0", "--pods 3000", "--contestants upstream"] {
            assert!(size(words).is_err(), "{words}");
        }
    }
}
