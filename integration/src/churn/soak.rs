//! Soak: thousands of pods come and go on one node while a constant number stays attached; the
//! resources of the node must not grow.
//!
//! No process is killed here: each call must succeed. After each round no call is under way and as
//! many pods are attached as at the start. So rows, links and files must have the same numbers
//! again; memory may differ by what the allocator keeps.
//!
//! | part | what it is |
//! |---|---|
//! | [`Soak`] | the number of cycles; runs the soak and makes the report |
//! | `pod_queue` | the pods: rounds in which the oldest go and new ones come, several at once |
//! | [`quantity`] | the quantities that are sampled, and their demands |
//! | `sample` | reads all of it from the kernel and from Open vSwitch |
//! | [`trend`] | first, last, slope of a series; pure |
//! | [`report`] | the verdicts and the table |

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;

use crate::Lab;

mod pod_queue;
pub mod quantity;
pub mod report;
mod sample;
pub mod trend;

use pod_queue::PodQueue;
pub use report::Report;
pub use sample::Sample;

/// After this many failures the run ends: further ones add no information.
const MOST_FAILURES: usize = 10;
/// Interval of progress messages: often enough to show that the run is alive, without flooding a
/// log of hours.
const SAYING: Duration = Duration::from_secs(15);

/// Let pods come and go for a long time; fail if the server or what is left of them grows, or if
/// any call fails.
///
/// All samples, with their fields, go to soak/soak.json in cargo's target directory.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Soak {
    /// A cycle is a DEL of the oldest pod and an ADD of a new one.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub cycles: usize,
    /// Pods that are attached at any time.
    #[arg(long, value_name = "PODS", default_value_t = 100)]
    pub churn: usize,
    /// Calls at the same time.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub at_once: usize,
}

impl Soak {
    /// Cycles between two samples: even a short run has at least a dozen samples.
    fn round(&self) -> usize {
        (self.cycles / 12).clamp(1, 100).min(self.churn)
    }

    /// Soaks the first node of `lab`, reports progress to `say`, and returns the results. A missed
    /// demand is in the report, not an error.
    ///
    /// # Errors
    ///
    /// A size that is too small, a server that does not start, or a failure of the lab's own
    /// commands. Failed CNI calls are in the report.
    pub fn run(&self, lab: &Lab, say: &mut dyn FnMut(&str)) -> Result<Report> {
        ensure!(
            self.cycles > 0 && self.churn > 1 && self.at_once > 0,
            "a soak needs at least one cycle, two pods and one caller"
        );
        let node = lab.node_with_server()?;
        let mut pods = PodQueue::new(lab, node, self.churn, self.at_once);
        let before = node.census()?;
        say(&format!("attaching {} pods", self.churn));
        pods.fill(self.churn)?;
        // Compacted before the first sample and before the last, so that both sizes are those of
        // live rows only.
        sample::compact(node)?;

        let began = Instant::now();
        let mut said = began;
        let first = Sample::take(lab, node, 0, began)?.with_compacted();
        let mut samples = vec![first.clone()];
        let mut done = 0;
        while done < self.cycles && pods.failures.len() < MOST_FAILURES {
            let cycles = self.round().min(self.cycles - done);
            let times = pods.round(cycles)?;
            done += cycles;
            pods.see_network()?;
            samples.push(Sample::take_settled(lab, node, done, began, &first)?.with_times(&times));
            if said.elapsed() >= SAYING {
                said = Instant::now();
                say(&format!(
                    "{done} of {} cycles after {:.0} s",
                    self.cycles,
                    began.elapsed().as_secs_f64()
                ));
            }
        }
        sample::compact(node)?;
        samples.push(Sample::take(lab, node, done, began)?.with_compacted());
        let seconds = began.elapsed().as_secs_f64();
        pods.empty()?;
        let left =
            before.must_equal(&node.census()?).err().map(|difference| format!("{difference:#}"));
        Ok(Report::new(self.clone(), seconds, done, samples, pods.failures, left))
    }
}
