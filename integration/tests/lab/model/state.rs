//! The reference model: the links and rows that must exist after a step. Pure; knows nothing of the
//! lab. If a step may end in several states (e.g. a plugin that is killed between two of them), all
//! of them are listed.

use std::collections::{BTreeMap, BTreeSet};

use contract::stage::Stage;

use crate::model::step::{End, Net, PODS, Place, Step};

/// One interface: the pod, its sandbox, the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) pod: usize,
    pub(crate) sandbox: u32,
    pub(crate) net: Net,
}

/// The state of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The node's ends of veths.
    pub(crate) links: BTreeSet<Key>,
    /// Rows in Open vSwitch, each of which is a pod's port.
    pub(crate) rows: BTreeSet<Key>,
}

/// The plugin's answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Success,
    /// An error with one of these codes.
    Error(&'static [u32]),
    /// Any answer: an error, a result, or none.
    Anything,
}

/// The reference model: the state, and each pod's newest sandbox.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) state: State,
    newest: BTreeMap<usize, u32>,
}

impl State {
    fn without(&self, key: Key) -> Self {
        let mut state = self.clone();
        state.links.remove(&key);
        state.rows.remove(&key);
        state
    }

    fn with_link(&self, key: Key) -> Self {
        let mut state = self.clone();
        state.links.insert(key);
        state
    }

    /// The row of the newest sandbox takes the logical port from all other sandboxes of the pod.
    fn with_port(&self, key: Key) -> Self {
        let mut state = self.with_link(key).without_port_of_others(key);
        state.rows.insert(key);
        state
    }

    fn without_port_of_others(&self, key: Key) -> Self {
        let mut state = self.clone();
        state.rows.retain(|other| {
            (other.pod, other.net) != (key.pod, key.net) || other.sandbox == key.sandbox
        });
        state
    }

    /// Whether `seen` is this state, or this state after the server has put ports back: a logical
    /// port without a row may go to any link of its pod, as after the loss of a database.
    pub(crate) fn explains(&self, seen: &Self) -> bool {
        let port = |key: &Key| (key.pod, key.net);
        let given_back: Vec<&Key> = seen.rows.difference(&self.rows).collect();
        let mut ports: Vec<_> = seen.rows.iter().map(port).collect();
        ports.sort_unstable();
        self.links == seen.links
            && self.rows.is_subset(&seen.rows)
            && given_back.iter().all(|key| self.links.contains(key))
            && ports.windows(2).all(|pair| pair[0] != pair[1])
    }

    fn has(&self, key: Key) -> bool {
        self.links.contains(&key) || self.rows.contains(&key)
    }
}

impl Model {
    /// The interface in the pod's newest sandbox.
    pub(crate) fn key(&self, pod: usize, net: Net) -> Key {
        Key { pod, sandbox: self.newest.get(&pod).copied().unwrap_or_default(), net }
    }

    /// The interface in the sandbox before the newest one, if there was one.
    pub(crate) fn older(&self, pod: usize, net: Net) -> Option<Key> {
        let key = self.key(pod, net);
        Some(Key { sandbox: key.sandbox.checked_sub(1)?, ..key })
    }

    /// Counts the sandboxes: only steps that make one have an effect.
    pub(crate) fn note(&mut self, step: Step) {
        if let Step::NewSandbox(pod) | Step::Recreate(pod) = step {
            *self.newest.entry(pod).or_default() += 1;
        }
    }

    /// The valid attachments of a GC: all on the network except those of the forgotten pod.
    pub(crate) fn valid(&self, net: Net, forgotten: Option<usize>) -> Vec<Key> {
        let all: BTreeSet<Key> = self.state.links.union(&self.state.rows).copied().collect();
        all.into_iter().filter(|key| key.net == net && Some(key.pod) != forgotten).collect()
    }

    /// The expected answer of the step's call, and the permitted states after it.
    pub(crate) fn expect(&self, step: Step, checked_before: bool) -> (Answer, Vec<State>) {
        let state = &self.state;
        let same = || vec![state.clone()];
        match step {
            Step::Add(pod, net) => {
                let key = self.key(pod, net);
                // ADD never replaces an existing interface, complete or not: only DEL and GC remove
                // it.
                if state.has(key) {
                    (Answer::Error(&[101, 102]), same())
                } else {
                    (Answer::Success, vec![state.with_port(key)])
                }
            }
            Step::Broken(pod, net, place, end) => {
                let key = self.key(pod, net);
                if state.has(key) {
                    // The plugin gets no further than the existing link, if it gets past its
                    // failpoint.
                    return (Answer::Anything, same());
                }
                let states = match end {
                    End::Error => self.rolled_back(key, place),
                    End::Kill => self.killed(key, place),
                };
                (Answer::Anything, states)
            }
            Step::Disturbed(pod, net, _, _) => {
                let key = self.key(pod, net);
                if state.has(key) {
                    return (Answer::Anything, same());
                }
                // The first state is for success. After a failure the runtime calls DEL, and one of
                // the others applies.
                (
                    Answer::Anything,
                    vec![state.with_port(key), state.clone(), state.without_port_of_others(key)],
                )
            }
            Step::Del(pod, net) => (Answer::Success, vec![state.without(self.key(pod, net))]),
            Step::DelOlder(pod, net) => (
                Answer::Success,
                self.older(pod, net).map_or_else(same, |key| vec![state.without(key)]),
            ),
            Step::Check(pod, net) => {
                let key = self.key(pod, net);
                let whole =
                    checked_before && state.links.contains(&key) && state.rows.contains(&key);
                let taken = state
                    .rows
                    .iter()
                    .any(|other| (other.pod, other.net) == (pod, net) && *other != key);
                let answer = match (whole, taken) {
                    (true, _) => Answer::Success,
                    (false, true) => Answer::Error(&[105]),
                    // The server may be putting the port back at this moment.
                    (false, false) => Answer::Anything,
                };
                (answer, same())
            }
            Step::Gc(net, forgotten) => {
                let kept: BTreeSet<Key> = self.valid(net, forgotten).into_iter().collect();
                let mut after = state.clone();
                after.links.retain(|key| key.net != net || kept.contains(key));
                after.rows.retain(|key| key.net != net || kept.contains(key));
                (Answer::Success, vec![after])
            }
            Step::Status => (Answer::Success, same()),
            Step::NewSandbox(_) | Step::Recreate(_) | Step::Restart(_) => {
                (Answer::Anything, same())
            }
        }
    }

    /// The states after an error, which is rolled back. An older sandbox that has lost its port by
    /// then does not get it back: the port belongs to the newest one.
    fn rolled_back(&self, key: Key, place: Place) -> Vec<State> {
        let state = &self.state;
        match (place.stage, place.before) {
            // No row was written yet.
            (Stage::Netns | Stage::Ovsdb | Stage::Annotation | Stage::Veth, _) => {
                vec![state.clone()]
            }
            // The pod's end is configured while the port is written, so the row may or may not have
            // been there.
            (Stage::Port, true) | (Stage::Pod, _) => {
                vec![state.clone(), state.without_port_of_others(key)]
            }
            // After `Result` the output cannot be taken back, but the exit status tells the
            // runtime, and the interface is removed.
            (Stage::Port, false) | (Stage::Ofport | Stage::OvnInstalled | Stage::Result, _) => {
                vec![state.without_port_of_others(key)]
            }
        }
    }

    fn killed(&self, key: Key, place: Place) -> Vec<State> {
        let state = &self.state;
        match (place.stage, place.before) {
            (Stage::Netns | Stage::Ovsdb | Stage::Annotation, _) | (Stage::Veth, true) => {
                vec![state.clone()]
            }
            (Stage::Veth, false) => vec![state.with_link(key)],
            (Stage::Port, true) | (Stage::Pod, _) => {
                vec![state.with_link(key), state.with_port(key)]
            }
            (Stage::Port, false) | (Stage::Ofport | Stage::OvnInstalled | Stage::Result, _) => {
                vec![state.with_port(key)]
            }
        }
    }

    /// Every interface that the pods may ever have had, for the DELs at the end.
    pub(crate) fn everything(&self) -> impl Iterator<Item = Key> {
        (0..PODS).flat_map(|pod| {
            let newest = self.key(pod, Net::Own).sandbox;
            (0..=newest)
                .flat_map(move |sandbox| [Net::Own, Net::Blue].map(|net| Key { pod, sandbox, net }))
        })
    }
}

#[test]
fn only_a_port_that_nobody_has_may_be_given_back() {
    let [older, newest] = [0, 1].map(|sandbox| Key { pod: 0, sandbox, net: Net::Own });
    let links = || [older, newest].into();
    let nobody = State { links: links(), rows: [].into() };
    let taken = State { links: links(), rows: [newest].into() };
    assert!(
        nobody.explains(&taken) && nobody.explains(&State { links: links(), rows: [older].into() })
    );
    assert!(!taken.explains(&State { links: links(), rows: [older].into() }));
    assert!(!taken.explains(&State { links: links(), rows: [older, newest].into() }));
    assert!(!taken.explains(&nobody) && !State::default().explains(&taken));
}

#[test]
fn the_newest_sandbox_has_the_port_and_the_older_one_its_link() {
    let mut model = Model::default();
    let (_, states) = model.expect(Step::Add(0, Net::Own), false);
    model.state = states[0].clone();
    model.note(Step::NewSandbox(0));
    let (answer, states) = model.expect(Step::Add(0, Net::Own), false);
    let [older, newest] = [0, 1].map(|sandbox| Key { pod: 0, sandbox, net: Net::Own });
    assert_eq!(answer, Answer::Success);
    assert_eq!(states, [State { links: [older, newest].into(), rows: [newest].into() }]);
    model.state = states[0].clone();
    assert_eq!(
        model.expect(Step::DelOlder(0, Net::Own), false).1,
        [State { links: [newest].into(), rows: [newest].into() }]
    );
    assert_eq!(model.expect(Step::Gc(Net::Own, Some(0)), false).1, [State::default()]);
    assert_eq!(model.expect(Step::Gc(Net::Blue, Some(0)), false).1, [model.state.clone()]);
}
