//! ADD: answers what the plugin has to configure, as soon as the pod's annotation says it.

use std::time::Duration;

use contract::{
    cni_args::PodArgs,
    mtu::Mtu,
    names::{IfName, SandboxId},
    net_conf::NetConf,
    wire::{PodInterface, Request, Response},
};
use podnet::bridge::Datapath;
use tokio::time::{Instant, timeout_at};

use super::{
    ApiResponse, HandlerState, Phase, millis,
    pod_wait::{Missing, PodWait, WaitStep},
};
use crate::{api_error::ApiError, events::LATE, pods::PodWatch};

/// How long a pod may take to become known: the runtime may be ahead of the server's watch. The
/// source is asked for the pod meanwhile; a longer time would only delay the error for a pod that
/// is gone.
const GRACE: Duration = Duration::from_secs(5);
/// How long an ADD waits for the annotation if the caller names no timeout: less than a kubelet
/// waits for its runtime (2 minutes), so that the error is ours to word.
const PATIENCE: Duration = Duration::from_secs(110);
/// Upper limit of the timeout that a caller names: no runtime waits that long, and no request stays
/// for ever.
const MOST_PATIENCE: Duration = Duration::from_secs(3600);
/// The answer is sent this long before the caller's timeout, so that it arrives in time on a busy
/// node, too.
const MARGIN: Duration = Duration::from_millis(200);

/// Settings that apply unless the CNI configuration has others.
#[derive(Debug, Clone, Copy)]
pub struct AddDefaults {
    pub mtu: Mtu,
    pub routable_mtu: Option<Mtu>,
}

impl HandlerState {
    pub(super) async fn add(
        &self,
        request: Request,
        started: Instant,
    ) -> Result<ApiResponse, ApiError> {
        let patience = request.timeout_ms.map_or(PATIENCE, |ms| {
            Duration::from_millis(ms).saturating_sub(MARGIN).min(MOST_PATIENCE)
        });
        let Call { sandbox, args, conf } = Call::read(&request)?;

        // Count first, then read the phase: shutdown sets the phase and then waits for the count to
        // reach zero.
        let _at_work = self.adds.enter();
        if self.phase() != Phase::Running {
            return Err(ApiError::Draining);
        }
        let watch = self.source.watch(&args.pod);
        let (pod, asked_uid) = (args.pod.clone(), args.uid.clone());
        let wait = PodWait::new(args, conf.network.clone(), conf.mtu, self.add);
        let waiting = self.metrics.annotation_wait();
        let answer = tokio::select! {
            answer = self.wait(wait, watch, started, patience) => answer,
            () = self.reached(Phase::Stopping) => Err(ApiError::ShuttingDown),
        };
        waiting.ended(&answer);
        if let Err(refusal) = &answer {
            // The UID of the existing pod, if known, so that `kubectl describe` shows the event.
            let uid = self.uid(&pod).or(asked_uid).unwrap_or_default();
            self.events.refused(
                &pod,
                &uid,
                refusal,
                &refusal.hint(&self.source.source_description()),
            );
        }
        let answer = answer?;
        let addresses: Vec<String> =
            answer.addressing.addresses.iter().map(ToString::to_string).collect();
        tracing::info!(
            ms = millis(started.elapsed()),
            mac = %answer.addressing.mac,
            addresses = addresses.join(","),
            uid = answer.pod_uid,
            "answered"
        );
        if answer.bandwidth.egress.is_some() && self.ports.datapath() == Some(Datapath::Userspace) {
            tracing::warn!(
                "the pod's egress limit has no effect in Open vSwitch's userspace datapath"
            );
            self.events.not_limited(&pod, &answer.pod_uid);
        }
        // The bridge is asked for last: it may have gone while the ADD waited.
        ApiResponse::json(&Response {
            bridge: self.ports.bridge_for(&sandbox, &conf.network, self.calls.count()),
            ..Response::to_plugin(answer)
        })
    }

    /// Waits for the annotation: looks at the pod now and after every change.
    async fn wait(
        &self,
        mut wait: PodWait,
        mut watch: PodWatch,
        started: Instant,
        patience: Duration,
    ) -> Result<PodInterface, ApiError> {
        let mut late = Some(started + LATE);
        loop {
            let missing = match wait.look(watch.now().as_deref())? {
                WaitStep::Answer(answer) => return Ok(*answer),
                WaitStep::Wait(missing) => missing,
            };
            if wait.is_new(&missing) {
                tracing::info!(%missing, ms = millis(started.elapsed()), "waiting");
                if !missing.is_worth_a_long_wait() {
                    // The watch may lag behind the runtime: the source is asked at once.
                    self.source.look_up(wait.pod());
                }
            }
            let until = started
                + if missing.is_worth_a_long_wait() { patience } else { patience.min(GRACE) };
            // One timer for both: the event about a late network, and the end of the wait.
            if timeout_at(late.map_or(until, |late| late.min(until)), watch.changed())
                .await
                .is_err()
            {
                if Instant::now() < until {
                    late = None;
                    self.say_late(&wait, missing);
                    continue;
                }
                return Err(wait.refusal(missing, self.not_synced()));
            }
        }
    }

    /// Tells the pod's owner that the network is late, and asks the source again, in case it is the
    /// source that lags.
    fn say_late(&self, wait: &PodWait, missing: Missing) {
        let pod = wait.pod();
        self.source.look_up(pod);
        let uid = self.uid(pod).unwrap_or_default();
        let text = missing.to_string();
        let hint = wait.refusal(missing, None).hint(&self.source.source_description());
        self.events.late_add(pod, &uid, &text, &hint);
    }
}

/// The values of a request, all of them valid.
pub(super) struct Call {
    sandbox: SandboxId,
    pub(super) args: PodArgs,
    pub(super) conf: NetConf,
}

impl Call {
    pub(super) fn read(request: &Request) -> Result<Self, ApiError> {
        let Request { env, config, timeout_ms: _ } = request;
        let variable = |name| {
            env.get(name)
                .map(String::as_str)
                .filter(|text| !text.is_empty())
                .ok_or(ApiError::Missing(name))
        };
        let sandbox = variable("CNI_CONTAINERID")?.parse()?;
        // Validated only: no answer depends on it.
        let _: IfName = variable("CNI_IFNAME").unwrap_or("eth0").parse()?;
        Ok(Self {
            sandbox,
            args: PodArgs::parse(variable("CNI_ARGS")?)?,
            conf: NetConf::parse(config)?,
        })
    }
}

#[cfg(test)]
mod tests;
