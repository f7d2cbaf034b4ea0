//! The reference: which links and rows there must be after a step. Pure; knows nothing of the lab. Where a step may end in several ways
//! (a plugin that dies between two of them), all are said.

use std::collections::{BTreeMap, BTreeSet};

use contract::stage::Stage;

use crate::step::{End, Net, PODS, Place, Step};

/// One interface: of which pod, in which of its sandboxes, on which network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) pod: usize,
    pub(crate) sandbox: u32,
    pub(crate) net: Net,
}

/// What is on the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Host ends of veths.
    pub(crate) links: BTreeSet<Key>,
    /// Rows in Open vSwitch that are the pod's port.
    pub(crate) rows: BTreeSet<Key>,
}

/// How the plugin must answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Success,
    /// With one of these codes.
    Error(&'static [u32]),
    /// With whatever: an error, a result, or no answer at all.
    Anything,
}

/// The reference model: what is there, and which sandbox is each pod's newest.
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

    /// The row of the newest sandbox takes the port from all others of the pod.
    fn with_port(&self, key: Key) -> Self {
        let mut state = self.with_link(key).without_port_of_others(key);
        state.rows.insert(key);
        state
    }

    fn without_port_of_others(&self, key: Key) -> Self {
        let mut state = self.clone();
        state.rows.retain(|other| (other.pod, other.net) != (key.pod, key.net) || other.sandbox == key.sandbox);
        state
    }

    /// Whether this is what is seen; or the server has meanwhile given a port that nobody has to a link of its pod, as it does after the
    /// loss of a database.
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
    /// The newest sandbox's interface.
    pub(crate) fn key(&self, pod: usize, net: Net) -> Key {
        Key { pod, sandbox: self.newest.get(&pod).copied().unwrap_or_default(), net }
    }

    /// The interface in the sandbox before, if there was one.
    pub(crate) fn older(&self, pod: usize, net: Net) -> Option<Key> {
        let key = self.key(pod, net);
        Some(Key { sandbox: key.sandbox.checked_sub(1)?, ..key })
    }

    /// A step that makes a sandbox; the others change nothing here.
    pub(crate) fn note(&mut self, step: Step) {
        if let Step::NewSandbox(pod) | Step::Recreate(pod) = step {
            *self.newest.entry(pod).or_default() += 1;
        }
    }

    /// What GC is told to keep: everything on the network but what is of the forgotten pod.
    pub(crate) fn valid(&self, net: Net, forgotten: Option<usize>) -> Vec<Key> {
        let all: BTreeSet<Key> = self.state.links.union(&self.state.rows).copied().collect();
        all.into_iter().filter(|key| key.net == net && Some(key.pod) != forgotten).collect()
    }

    /// How the step's call must end, and the states of which one must be found afterwards.
    pub(crate) fn expect(&self, step: Step, checked_before: bool) -> (Answer, Vec<State>) {
        let state = &self.state;
        let same = || vec![state.clone()];
        match step {
            Step::Add(pod, net) => {
                let key = self.key(pod, net);
                // One that is there already, whole or not, is a DEL's or a GC's to remove.
                if state.has(key) { (Answer::Error(&[101, 102]), same()) } else { (Answer::Success, vec![state.with_port(key)]) }
            }
            Step::Broken(pod, net, place, end) => {
                let key = self.key(pod, net);
                if state.has(key) {
                    // It gets as far as the link that is in its way.
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
                // The first if it has succeeded; after a failure the runtime calls DEL.
                (Answer::Anything, vec![state.with_port(key), state.clone(), state.without_port_of_others(key)])
            }
            Step::Del(pod, net) => (Answer::Success, vec![state.without(self.key(pod, net))]),
            Step::DelOlder(pod, net) => (Answer::Success, self.older(pod, net).map_or_else(same, |key| vec![state.without(key)])),
            Step::Check(pod, net) => {
                let key = self.key(pod, net);
                let whole = checked_before && state.links.contains(&key) && state.rows.contains(&key);
                let taken = state.rows.iter().any(|other| (other.pod, other.net) == (pod, net) && *other != key);
                let answer = match (whole, taken) {
                    (true, _) => Answer::Success,
                    (false, true) => Answer::Error(&[105]),
                    // The server may give the port back at this moment.
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
            Step::NewSandbox(_) | Step::Recreate(_) | Step::Restart(_) => (Answer::Anything, same()),
        }
    }

    /// An error is rolled back; what the older sandbox has lost by then stays lost, for the port is the newest one's.
    fn rolled_back(&self, key: Key, place: Place) -> Vec<State> {
        let state = &self.state;
        match (place.stage, place.before) {
            // What is written cannot be taken back, but the runtime sees the exit status, and the interface goes.
            (Stage::Ovsdb | Stage::Annotation | Stage::Veth, _) => vec![state.clone()],
            // Beside it the pod's end is configured.
            (Stage::Port, true) | (Stage::Pod, _) => vec![state.clone(), state.without_port_of_others(key)],
            (Stage::Port, false) | (Stage::Ofport | Stage::OvnInstalled | Stage::Result, _) => vec![state.without_port_of_others(key)],
        }
    }

    fn killed(&self, key: Key, place: Place) -> Vec<State> {
        let state = &self.state;
        match (place.stage, place.before) {
            (Stage::Ovsdb | Stage::Annotation, _) | (Stage::Veth, true) => vec![state.clone()],
            (Stage::Veth, false) => vec![state.with_link(key)],
            (Stage::Port, true) | (Stage::Pod, _) => vec![state.with_link(key), state.with_port(key)],
            (Stage::Port, false) | (Stage::Ofport | Stage::OvnInstalled | Stage::Result, _) => vec![state.with_port(key)],
        }
    }

    /// Every interface that the pods may have, for the DELs at the end.
    pub(crate) fn everything(&self) -> impl Iterator<Item = Key> {
        (0..PODS).flat_map(|pod| {
            let newest = self.key(pod, Net::Own).sandbox;
            (0..=newest).flat_map(move |sandbox| [Net::Own, Net::Blue].map(|net| Key { pod, sandbox, net }))
        })
    }
}

#[test]
fn only_a_port_that_nobody_has_may_be_given_back() {
    let [older, newest] = [0, 1].map(|sandbox| Key { pod: 0, sandbox, net: Net::Own });
    let links = || [older, newest].into();
    let nobody = State { links: links(), rows: [].into() };
    let taken = State { links: links(), rows: [newest].into() };
    assert!(nobody.explains(&taken) && nobody.explains(&State { links: links(), rows: [older].into() }));
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
    assert_eq!(model.expect(Step::DelOlder(0, Net::Own), false).1, [State { links: [newest].into(), rows: [newest].into() }]);
    assert_eq!(model.expect(Step::Gc(Net::Own, Some(0)), false).1, [State::default()]);
    assert_eq!(model.expect(Step::Gc(Net::Blue, Some(0)), false).1, [model.state.clone()]);
}
