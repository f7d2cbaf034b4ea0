//! The steps that can happen to a node, drawn at random. Any part of a sequence is a sequence
//! again, because a step names a pod and a network, never the result of an earlier step. Shrinking
//! relies on that.

use std::fmt;

use contract::stage::Stage;
use integration::Program;
use proptest::{prelude::*, sample::select};

/// Number of pods.
pub(crate) const PODS: usize = 3;

/// A network of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Net {
    /// The cluster's default network: `eth0`.
    Own,
    /// A secondary network: `net1`.
    Blue,
}

/// How a plugin ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Error,
    Kill,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// ADD in the pod's newest sandbox.
    Add(usize, Net),
    /// ADD whose plugin fails or dies at this place.
    Broken(usize, Net, Place, End),
    /// ADD during which this program is killed, after so many milliseconds.
    Disturbed(usize, Net, Program, u8),
    /// DEL in the newest sandbox.
    Del(usize, Net),
    /// DEL in the sandbox before the newest one.
    DelOlder(usize, Net),
    /// CHECK in the newest sandbox.
    Check(usize, Net),
    /// GC with all interfaces as valid attachments, except those of this pod.
    Gc(Net, Option<usize>),
    Status,
    /// The runtime makes another sandbox for the same pod.
    NewSandbox(usize),
    /// The pod is deleted and created again under its name.
    Recreate(usize),
    Restart(Program),
}

/// The place of a failpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) before: bool,
    pub(crate) stage: Stage,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", if self.before { "before" } else { "after" }, self.stage)
    }
}

/// Sequences of up to `longest` steps. Shrinking removes steps first, and then simplifies the
/// remaining ones.
pub(crate) fn sequences(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..=longest)
}

fn step() -> impl Strategy<Value = Step> {
    let pod = || 0..PODS;
    let net = || select(vec![Net::Own, Net::Own, Net::Blue]);
    let program = || {
        select(vec![
            Program::Server,
            Program::OvsdbServer,
            Program::OvnController,
            Program::Vswitchd,
        ])
    };
    let place = (any::<bool>(), select(Stage::ALL.to_vec()))
        .prop_map(|(before, stage)| Place { before, stage });
    prop_oneof![
        8 => (pod(), net()).prop_map(|(pod, net)| Step::Add(pod, net)),
        4 => (pod(), net(), place, select(vec![End::Error, End::Kill])).prop_map(|(pod, net, place, end)| Step::Broken(pod, net, place, end)),
        1 => (pod(), net(), program(), 0..80_u8).prop_map(|(pod, net, program, after)| Step::Disturbed(pod, net, program, after)),
        4 => (pod(), net()).prop_map(|(pod, net)| Step::Del(pod, net)),
        3 => (pod(), net()).prop_map(|(pod, net)| Step::DelOlder(pod, net)),
        3 => (pod(), net()).prop_map(|(pod, net)| Step::Check(pod, net)),
        2 => (net(), prop::option::of(pod())).prop_map(|(net, pod)| Step::Gc(net, pod)),
        1 => Just(Step::Status),
        4 => pod().prop_map(Step::NewSandbox),
        2 => pod().prop_map(Step::Recreate),
        1 => program().prop_map(Step::Restart),
    ]
}
