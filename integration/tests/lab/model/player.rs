//! Plays a sequence on the lab, and compares the node with the reference model after every step.

use std::{collections::BTreeMap, iter::Enumerate, ops::ControlFlow, slice, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Census, Lab, Node, Outcome, Pod, Program, Runtime,
    churn::{Actor, round},
    eventually, let_pass,
};
use serde_json::{Value, json};

use crate::model::{
    seen,
    state::{Answer, Key, Model, State},
    step::{End, Net, PODS, Step},
};
use crate::support::second::Second;

/// Limit for the daemons to reconnect after one of them was killed.
const RECOVERY: Duration = Duration::from_secs(30);
/// The environment variable that makes a plugin fail or die on purpose.
const FAILPOINT: &str = "OVN_CNI_FAILPOINT";

/// The state of the player: a node, its pods with their sandboxes so far, and the census before all
/// of them.
pub(crate) struct Player<'lab> {
    lab: &'lab Lab,
    node: &'lab Node,
    blue: Second,
    /// The sandboxes of each pod, oldest first.
    pods: Vec<Vec<Pod>>,
    model: Model,
    /// Results of ADDs, as a runtime keeps them.
    results: BTreeMap<Key, Value>,
    untouched: Census,
}

impl<'lab> Player<'lab> {
    /// Starts the server and plans the pods; none is attached yet.
    pub(crate) fn new(lab: &'lab Lab) -> Result<Self> {
        let node = &lab.nodes[0];
        node.start_server()?;
        let blue = Second::create(lab, "blue")?;
        let pods = blue.new_pods(lab, node, PODS)?.into_iter().map(|pod| vec![pod]).collect();
        let untouched = node.census()?;
        Ok(Self {
            lab,
            node,
            blue,
            pods,
            model: Model::default(),
            results: BTreeMap::new(),
            untouched,
        })
    }

    /// Plays all steps, then deletes everything; the node must be as it was before.
    pub(crate) fn play(&mut self, steps: &[Step]) -> Result<()> {
        self.begin();
        round(
            &mut [&mut Sequence { steps: steps.iter().enumerate(), of: steps.len(), player: self }],
            None,
        )?;
        self.has_network().context("after the last step")?;
        self.clear().context("after the last step")
    }

    /// Restores the lab after a failure, for the next try.
    pub(crate) fn recover(&mut self) -> Result<()> {
        for program in Program::ALL {
            if !self.node.daemon(program).is_running() {
                self.node.start_program(program)?;
            }
        }
        self.is_ready()?;
        self.clear()
    }

    fn begin(&mut self) {
        self.model = Model::default();
        self.results.clear();
        for sandboxes in &mut self.pods {
            // The last sandbox of a sequence is the first of the next one.
            let last = sandboxes.pop().expect("a pod has a sandbox");
            *sandboxes = vec![last];
        }
    }

    fn step(&mut self, step: Step) -> Result<()> {
        let known = matches!(step, Step::Check(pod, net) if self.results.contains_key(&self.model.key(pod, net)));
        let (answer, mut allowed) = self.model.expect(step, known);
        if let Some(outcome) = self.act(step)? {
            let result = must_answer(&outcome, answer)?;
            if let Step::Disturbed(pod, net, ..) = step {
                allowed =
                    self.disturbed(self.model.key(pod, net), outcome.status.success(), allowed)?;
            }
            if let (Step::Add(pod, net) | Step::Disturbed(pod, net, ..), Some(result)) =
                (step, result)
            {
                self.results.insert(self.model.key(pod, net), result);
            }
        }
        if let Step::Recreate(pod) = step {
            // OVN takes the logical port away from the interfaces of the previous pod.
            self.results.retain(|key, _| key.pod != pod);
        }
        self.model.note(step);
        self.model.state = self.is_one_of(&allowed)?;
        self.results.retain(|key, _| self.model.state.links.contains(key));
        Ok(())
    }

    /// Performs a step. Returns the outcome of the plugin's call, if the step is one.
    fn act(&mut self, step: Step) -> Result<Option<Outcome>> {
        let outcome = match step {
            Step::Add(pod, net) => self.runtime(net).add(self.pod(self.model.key(pod, net)))?,
            Step::Broken(pod, net, place, end) => {
                let how = match end {
                    End::Error => "error",
                    End::Kill => "kill",
                };
                let pod = self.pod(self.model.key(pod, net));
                self.runtime(net)
                    .call("ADD", Some(pod))
                    .env(FAILPOINT, format!("{place}={how}"))
                    .run()?
            }
            Step::Disturbed(pod, net, program, after) => {
                let add = self
                    .runtime(net)
                    .call("ADD", Some(self.pod(self.model.key(pod, net))))
                    .start()?;
                let_pass(Duration::from_millis(after.into()));
                self.restart(program)?;
                add.wait()?
            }
            Step::Del(pod, net) => self.runtime(net).del(self.pod(self.model.key(pod, net)))?,
            Step::DelOlder(pod, net) => match self.model.older(pod, net) {
                Some(key) => self.runtime(net).del(self.pod(key))?,
                None => return Ok(None),
            },
            Step::Check(pod, net) => {
                let key = self.model.key(pod, net);
                let Some(result) = self.results.get(&key) else { return Ok(None) };
                // A restarted ovs-vswitchd may not have assigned all port numbers yet.
                let check = || self.runtime(net).check(self.pod(key), result);
                let whole =
                    self.model.state.links.contains(&key) && self.model.state.rows.contains(&key);
                if whole {
                    eventually("CHECK", RECOVERY, || check()?.success().map(drop))?;
                }
                check()?
            }
            Step::Gc(net, forgotten) => {
                let valid: Vec<&Pod> =
                    self.model.valid(net, forgotten).into_iter().map(|key| self.pod(key)).collect();
                self.runtime(net).gc(&valid)?
            }
            Step::Status => self.node.runtime().status()?,
            Step::NewSandbox(pod) => {
                let next = self.newest(pod).next_sandbox();
                return self.add_sandbox(pod, next).map(|()| None);
            }
            Step::Recreate(pod) => {
                let next = self.newest(pod).recreated();
                self.lab.central.nbctl([
                    "set",
                    "Logical_Switch_Port",
                    &next.port(),
                    &format!("options:iface-id-ver={}", next.uid),
                ])?;
                self.write_manifest(&next)?;
                return self.add_sandbox(pod, next).map(|()| None);
            }
            Step::Restart(program) => return self.restart(program).map(|()| None),
        };
        Ok(Some(outcome))
    }

    /// An ADD that was disturbed has either attached the interface, or failed. After a failure the
    /// runtime calls DEL, and nothing may be left.
    fn disturbed(&self, key: Key, succeeded: bool, mut allowed: Vec<State>) -> Result<Vec<State>> {
        // Only one state is allowed if the interface was attached before: the ADD fails, and no DEL
        // follows.
        if allowed.len() > 1 {
            let after_failure = allowed.split_off(1);
            if !succeeded {
                eventually("DEL after the failed ADD", RECOVERY, || {
                    self.runtime(key.net).del(self.pod(key))?.success().map(drop)
                })?;
                allowed = after_failure;
            }
        }
        Ok(allowed)
    }

    fn restart(&self, program: Program) -> Result<()> {
        self.node.daemon(program).kill()?;
        self.node.start_program(program)?;
        self.is_ready()
    }

    fn is_ready(&self) -> Result<()> {
        eventually("an ADD could succeed", RECOVERY, || {
            self.node.runtime().status()?.success().map(drop)
        })
    }

    fn is_one_of(&self, allowed: &[State]) -> Result<State> {
        let sandboxes: BTreeMap<&str, (usize, u32)> = self
            .pods
            .iter()
            .enumerate()
            .flat_map(|(pod, sandboxes)| {
                sandboxes
                    .iter()
                    .zip(0..)
                    .map(move |(sandbox, number)| (sandbox.sandbox.as_str(), (pod, number)))
            })
            .collect();
        let seen = seen::on(self.node, &sandboxes)?;
        ensure!(
            allowed.iter().any(|state| state.explains(&seen)),
            "the node has {seen:#?}\nit should be one of {allowed:#?}"
        );
        Ok(seen)
    }

    /// Pods whose interface is complete and known to the runtime reach their gateway.
    fn has_network(&self) -> Result<()> {
        for key in self
            .results
            .keys()
            .filter(|key| key.net == Net::Own && self.model.state.rows.contains(key))
        {
            let pod = self.pod(*key);
            eventually(&format!("{key:?} has its network"), RECOVERY, || {
                self.lab.reaches_gateway(pod)
            })?;
        }
        Ok(())
    }

    /// DEL of every sandbox that ever existed, then removal of their namespaces: nothing may be
    /// left.
    fn clear(&mut self) -> Result<()> {
        for key in self.model.everything() {
            if let Some(pod) = self.pods[key.pod].get(usize::try_from(key.sandbox)?) {
                self.runtime(key.net)
                    .del(pod)?
                    .success()
                    .with_context(|| format!("DEL of {key:?}"))?;
            }
        }
        for sandboxes in &self.pods {
            let [older @ .., _] = sandboxes.as_slice() else { continue };
            self.node.remove_namespaces(older)?;
        }
        let without_namespaces = |census: &Census| {
            census
                .to_string()
                .lines()
                .filter(|line| !line.starts_with("netns "))
                .collect::<Vec<_>>()
                .join("\n")
        };
        eventually("the node is as before", RECOVERY, || {
            let now = self.node.census()?;
            if without_namespaces(&now) == without_namespaces(&self.untouched) {
                Ok(())
            } else {
                self.untouched.must_equal(&now)
            }
        })
    }

    /// Adds a sandbox whose ID differs early. The host's end of a secondary network has at most the
    /// first 13 digits of the ID in its name, while the lab counts sandboxes in the last of 15.
    fn add_sandbox(&mut self, pod: usize, mut sandbox: Pod) -> Result<()> {
        sandbox.sandbox = format!("{}{}", &sandbox.sandbox[11..15], &sandbox.sandbox[..11])
            + &sandbox.sandbox[15..];
        self.node.add_namespaces(slice::from_ref(&sandbox))?;
        self.pods[pod].push(sandbox);
        Ok(())
    }

    fn write_manifest(&self, pod: &Pod) -> Result<()> {
        let mut annotation = pod.annotation();
        let (address, mac) = (self.blue.address(pod), self.blue.mac(pod));
        annotation[self.blue.nad()] = json!({"ip_addresses": [format!("{address}/24")], "mac_address": mac, "role": "secondary"});
        self.node.write_manifest_text(pod, &pod.manifest(Some(&annotation)))
    }

    fn newest(&self, pod: usize) -> &Pod {
        self.pods[pod].last().expect("a pod has a sandbox")
    }

    fn pod(&self, key: Key) -> &Pod {
        &self.pods[key.pod][usize::try_from(key.sandbox).expect("a small number")]
    }

    fn runtime(&self, net: Net) -> Runtime<'lab> {
        match net {
            Net::Own => self.node.runtime(),
            Net::Blue => self.blue.runtime(self.node),
        }
    }
}

/// The steps that are still to be played.
struct Sequence<'steps, 'lab> {
    player: &'steps mut Player<'lab>,
    steps: Enumerate<slice::Iter<'steps, Step>>,
    of: usize,
}

impl Actor for Sequence<'_, '_> {
    /// Plays a step, and compares the node with the reference model.
    fn turn(&mut self) -> Result<ControlFlow<()>> {
        let Some((index, step)) = self.steps.next() else { return Ok(ControlFlow::Break(())) };
        let number = || format!("step {} of {}: {step:?}", index + 1, self.of);
        self.player.step(*step).with_context(number)?;
        Ok(ControlFlow::Continue(()))
    }
}

/// Checks that a call ended as expected. Returns the result of a call that succeeded.
fn must_answer(outcome: &Outcome, answer: Answer) -> Result<Option<Value>> {
    match answer {
        Answer::Success => outcome.success().map(Some),
        Answer::Error(codes) => {
            let error = outcome.failure()?;
            ensure!(
                codes.contains(&error.code),
                "code {} is none of {codes:?}: {error:?}",
                error.code
            );
            Ok(None)
        }
        Answer::Anything => Ok(outcome.success().ok()),
    }
}
