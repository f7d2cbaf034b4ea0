//! ADD: what the plugin has to configure, as soon as the pod's annotation says it.

use std::time::Duration;

use contract::{
    cni_args::PodArgs,
    mtu::Mtu,
    names::{IfName, SandboxId},
    net_conf::NetConf,
    wire::{PodInterface, Request, Response},
};
use tokio::time::{Instant, timeout_at};

use super::{
    Desk, Phase, Reply, millis,
    pod_wait::{Missing, PodWait, Step},
};
use crate::{
    events::LATE,
    pods::{PodWatch, Readiness},
    refusal::Refusal,
};

/// How long a pod may take to become known: the runtime may be ahead of what the source has heard.
const GRACE: Duration = Duration::from_secs(5);
/// How long is waited for an annotation if the caller does not say: less than a kubelet waits for its runtime (2 minutes).
const PATIENCE: Duration = Duration::from_secs(110);
/// No caller waits longer, whatever it says.
const MOST_PATIENCE: Duration = Duration::from_secs(3600);
/// The answer is under way this long before the caller stops waiting for it.
const MARGIN: Duration = Duration::from_millis(200);

/// The settings of pods that say nothing else.
#[derive(Debug, Clone, Copy)]
pub struct AddDefaults {
    pub mtu: Mtu,
    pub routable_mtu: Option<Mtu>,
}

impl Desk {
    pub(super) async fn add(&self, request: Request, started: Instant) -> Result<Reply, Refusal> {
        let patience = request.timeout_ms.map_or(PATIENCE, |ms| Duration::from_millis(ms).saturating_sub(MARGIN).min(MOST_PATIENCE));
        let Call { sandbox, args, conf } = Call::read(&request)?;

        // In this order: who looks whether nobody is at work has changed the phase before.
        let _at_work = self.adds.enter();
        if self.phase() != Phase::Running {
            return Err(Refusal::Draining);
        }
        let watch = self.source.watch(&args.pod);
        let (pod, asked_uid) = (args.pod.clone(), args.uid.clone());
        let wait = PodWait::new(args, conf.network.clone(), conf.mtu, self.add);
        let waiting = self.metrics.annotation_wait();
        let answer = tokio::select! {
            answer = self.wait(wait, watch, started, patience) => answer,
            () = self.reached(Phase::Stopping) => Err(Refusal::ShuttingDown),
        };
        waiting.ended(&answer);
        if let Err(refusal) = &answer {
            let uid = self.uid(&pod).or(asked_uid).unwrap_or_default();
            self.events.refused(&pod, &uid, refusal, &refusal.hint(&self.source.whereabouts()));
        }
        let answer = answer?;
        let addresses: Vec<String> = answer.addressing.addresses.iter().map(ToString::to_string).collect();
        tracing::info!(
            ms = millis(started.elapsed()),
            mac = %answer.addressing.mac,
            addresses = addresses.join(","),
            uid = answer.pod_uid,
            "answered"
        );
        Reply::json(&Response { bridge: self.ports.bridge_for(&sandbox, &conf.network), ..Response::to_plugin(answer) })
    }

    /// Looks at the pod now and after every change.
    async fn wait(&self, mut wait: PodWait, mut watch: PodWatch, started: Instant, patience: Duration) -> Result<PodInterface, Refusal> {
        let mut late = Some(started + LATE);
        loop {
            let missing = match wait.look(watch.now().as_deref())? {
                Step::Answer(answer) => return Ok(*answer),
                Step::Wait(missing) => missing,
            };
            if wait.is_new(&missing) {
                tracing::info!(%missing, ms = millis(started.elapsed()), "waiting");
                if !missing.is_worth_a_long_wait() {
                    self.source.look_up(wait.pod());
                }
            }
            let until = started + if missing.is_worth_a_long_wait() { patience } else { patience.min(GRACE) };
            if timeout_at(late.map_or(until, |late| late.min(until)), watch.changed()).await.is_err() {
                if Instant::now() < until {
                    late = None;
                    self.say_late(&wait, missing);
                    continue;
                }
                let why = match self.source.readiness() {
                    Readiness::Synced => None,
                    Readiness::Behind(why) | Readiness::NotSynced(why) => Some(why),
                };
                return Err(wait.refusal(missing, why));
            }
        }
    }

    /// Tells the pod's owner, and makes sure that it is not the source that is late.
    fn say_late(&self, wait: &PodWait, missing: Missing) {
        let pod = wait.pod();
        self.source.look_up(pod);
        let uid = self.uid(pod).unwrap_or_default();
        let text = missing.to_string();
        let hint = wait.refusal(missing, None).hint(&self.source.whereabouts());
        self.events.late_add(pod, &uid, &text, &hint);
    }
}

/// What a request is about, once all of it makes sense.
pub(super) struct Call {
    sandbox: SandboxId,
    pub(super) args: PodArgs,
    pub(super) conf: NetConf,
}

impl Call {
    pub(super) fn read(request: &Request) -> Result<Self, Refusal> {
        let Request { env, config, timeout_ms: _ } = request;
        let variable = |name| env.get(name).map(String::as_str).filter(|text| !text.is_empty()).ok_or(Refusal::Missing(name));
        let sandbox = variable("CNI_CONTAINERID")?.parse()?;
        let _: IfName = variable("CNI_IFNAME").unwrap_or("eth0").parse()?;
        Ok(Self { sandbox, args: PodArgs::parse(variable("CNI_ARGS")?)?, conf: NetConf::parse(config)? })
    }
}

#[cfg(test)]
mod tests;
