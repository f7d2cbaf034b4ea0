//! ADD: one interface for one pod, or nothing at all.
//!
//! Validate, then act. Steps that do not depend on each other run at the same time. From the moment the veth exists, any failure
//! runs the code of DEL for this sandbox and interface.

use std::{io::Write, net::IpAddr, pin::pin, time::Duration};

use contract::{
    cni_args::PodArgs,
    net_conf::NetConf,
    stage::Stage,
    wire::{BridgeFacts, Request, WatchRequest},
};
use podnet::{
    bridge::{BridgeError, Datapath},
    detach::{Connections, Detacher},
    fence::Fence,
    installed::Goal,
    link::{self, HostEnd},
    netlink::Netlink,
    netns::{Inside, Netns},
    plan::{Attachment, Identity},
    pod_end,
    settings::{ROLLBACK_TIMEOUT, Settings},
};
use serde_json::Value;
use tokio::{task::yield_now, time::sleep, try_join};

use crate::{
    ask::{Answer, Server},
    error::{AddError, Cause, StageError},
    failpoint,
    invocation::Subject,
    port::Port,
    result::{CniResult, convert},
    timeline::Timeline,
};

/// How long the server's answer may take before Open vSwitch's database is looked at.
const LOOK_AFTER: Duration = Duration::from_millis(100);
/// How long a port is waited for before the server is asked to say when the pod changes.
const WATCH_AFTER: Duration = Duration::from_secs(1);

/// Everything that an ADD works with.
#[derive(Debug)]
pub struct Add<'a> {
    pub subject: &'a Subject,
    pub conf: &'a NetConf,
    pub settings: &'a Settings,
    pub request: &'a Request,
    pub server: &'a Server,
    pub timeline: &'a Timeline,
}

/// What stands before the veth is made.
struct Ready<'a> {
    port: Port<'a>,
    datapath: Datapath,
    sockets: Sockets,
}

/// What speaks with the kernel.
struct Sockets {
    netns: Netns,
    host: Netlink,
    inside: Inside,
}

impl Add<'_> {
    /// Attaches the pod and writes the result to `stdout`.
    pub async fn run(&self, stdout: &mut impl Write) -> Result<(), AddError> {
        let pod = self.subject.pod.as_ref().ok_or(Cause::NoPod)?;
        let path = self.subject.netns.as_deref().ok_or(Cause::NoNetns)?;
        let netns = Netns::open(path).map_err(Cause::from)?;
        let identity = self.identity();
        let fence = Fence::take_in_turn(&self.settings.calls, &identity).await.map_err(Cause::from)?;

        let mut port = Port::of_server(self.server, &self.settings.ovsdb, self.timeline.remaining());

        let begin = async { try_join!(self.ask(&mut port), self.open(netns)) };
        let ((answer, datapath), sockets) = tokio::select! {
            begun = begin => begun?,
            () = fence.challenged() => return Err(Cause::Cancelled.into()),
        };
        let (interface, bridge) = match answer {
            Answer::Interface(interface, bridge) => (interface, bridge),
            Answer::Finished(result) => {
                let result = convert(result, self.conf.version);
                return Ok(self.stage(Stage::Result, self.print(&result, stdout)).await?);
            }
            Answer::Nothing => return Err(Cause::NoAnswer.into()),
        };
        let datapath = tokio::select! {
            datapath = self.prepare(&mut port, &identity, &sockets.host, bridge, datapath) => datapath?,
            () = fence.challenged() => return Err(Cause::Cancelled.into()),
        };
        let mut ready = Ready { port, datapath, sockets };
        let attachment = Attachment::plan(identity, &pod.pod, pod.uid.as_deref(), *interface);
        let outcome = tokio::select! {
            outcome = self.attach(&mut ready, &attachment, pod, stdout) => outcome,
            () = fence.challenged() => Err(self.timeline.interrupted(Cause::Cancelled)),
        };
        match outcome {
            Ok(()) => Ok(()),
            Err(stage) if made_nothing(&stage) => Err(stage.into()),
            Err(stage) => Err(self.roll_back(ready, &attachment, stage).await),
        }
    }

    /// One stage of this ADD.
    async fn stage<T, E: Into<Cause>>(&self, stage: Stage, work: impl Future<Output = Result<T, E>>) -> Result<T, StageError> {
        self.timeline.stage(stage, work).await
    }

    fn identity(&self) -> Identity {
        Identity { sandbox: self.subject.sandbox.clone(), if_name: self.subject.if_name.clone(), network: self.conf.network.clone() }
    }

    /// Opens the kernel's sockets, once the server's request is on its way; makes nothing.
    async fn open(&self, netns: Netns) -> Result<Sockets, StageError> {
        yield_now().await;
        let open = || Ok((Netlink::open().map_err(Cause::Netlink)?, netns.inside()?));
        match open() {
            Ok((host, inside)) => Ok(Sockets { netns, host, inside }),
            Err(cause) => self.stage(Stage::Ovsdb, async { Err::<_, Cause>(cause) }).await,
        }
    }

    /// Asks the server. If that takes a while, looks at Open vSwitch's database meanwhile: an ADD that lacks it fails now and not when its pod
    /// has its annotation.
    async fn ask(&self, port: &mut Port<'_>) -> Result<(Answer, Option<Datapath>), StageError> {
        let mut ask = pin!(self.stage(Stage::Annotation, self.server.ask(self.request)));
        let meanwhile = async {
            sleep(failpoint::patience(LOOK_AFTER)).await;
            self.stage(Stage::Ovsdb, self.look_out(port)).await
        };
        tokio::select! {
            biased;
            answer = &mut ask => Ok((answer?, None)),
            datapath = meanwhile => {
                let datapath = datapath?;
                Ok((ask.await?, Some(datapath)))
            }
        }
    }

    /// Gets ready for the veth: with what the server says of the bridge, if it can write the port and the link's name is free; else in Open
    /// vSwitch's database. `known`: what was seen there already.
    async fn prepare(
        &self,
        port: &mut Port<'_>,
        identity: &Identity,
        host: &Netlink,
        of_server: Option<BridgeFacts>,
        known: Option<Datapath>,
    ) -> Result<Datapath, StageError> {
        let prepare = async {
            let datapath = match (known, &of_server) {
                (Some(datapath), _) => datapath,
                (None, Some(BridgeFacts { datapath_type })) => Datapath::of(datapath_type),
                (None, None) => self.look_out(port).await?,
            };
            if of_server.is_none() {
                port.vacate(identity, host).await?;
            }
            Ok::<_, Cause>(datapath)
        };
        self.stage(Stage::Ovsdb, prepare).await
    }

    /// Connects to Open vSwitch's database, and looks at the bridge.
    async fn look_out(&self, port: &mut Port<'_>) -> Result<Datapath, BridgeError> {
        port.look_out(self.subject.sandbox.host_if_name_beforehand(&self.conf.network)).await
    }

    async fn attach(
        &self,
        ready: &mut Ready<'_>,
        attachment: &Attachment,
        pod: &PodArgs,
        stdout: &mut impl Write,
    ) -> Result<(), StageError> {
        let Ready { port, datapath, sockets: Sockets { netns, host, inside } } = ready;
        let end = self.stage(Stage::Veth, async { link::create(host, &inside.netlink, netns, attachment) }).await?;
        self.stage(Stage::Port, port.write(attachment, &end.name)).await?;

        let configure = self.stage(Stage::Pod, async { pod_end::configure(inside, attachment, &end, *datapath) });
        let wait = async {
            self.stage(Stage::Ofport, port.reach(Goal::Ofport, attachment, &end.name)).await?;
            let installed = port.reach(Goal::OvnInstalled, attachment, &end.name);
            self.stage(Stage::OvnInstalled, self.unless_changed(installed, attachment, pod)).await
        };
        try_join!(configure, wait)?;

        let result = self.result(attachment, &end);
        self.stage(Stage::Result, self.print(&result, stdout)).await
    }

    /// Gives a wait up as soon as the pod is no longer the one that is waited for.
    async fn unless_changed<E: Into<Cause>>(
        &self,
        wait: impl Future<Output = Result<(), E>>,
        attachment: &Attachment,
        pod: &PodArgs,
    ) -> Result<(), Cause> {
        let request = WatchRequest {
            namespace: pod.pod.namespace().to_owned(),
            name: pod.pod.name().to_owned(),
            uid: attachment.pod_uid.clone(),
            mac: attachment.mac.to_string(),
            nad: attachment.network.annotation_key().to_owned(),
        };
        // Most ports work sooner than this, and the server is spared a question. What changed meanwhile it answers at once.
        let changed = async {
            sleep(WATCH_AFTER).await;
            self.server.watch(&request).await
        };
        tokio::select! {
            biased;
            outcome = wait => outcome.map_err(Into::into),
            change = changed => Err(Cause::PodChanged(change)),
        }
    }

    fn result(&self, attachment: &Attachment, end: &HostEnd) -> Value {
        let netns = self.subject.netns.as_deref().unwrap_or_else(|| "".as_ref());
        CniResult::of(attachment, end, &netns.to_string_lossy()).render(self.conf.version)
    }

    /// A result that the runtime cannot read is no result: then the pod is detached again.
    async fn print(&self, result: &Value, stdout: &mut impl Write) -> Result<(), Cause> {
        serde_json::to_writer(&mut *stdout, result).map_err(|error| Cause::Stdout(error.into()))?;
        writeln!(stdout).and_then(|()| stdout.flush()).map_err(Cause::Stdout)
    }

    async fn roll_back(&self, ready: Ready<'_>, attachment: &Attachment, stage: StageError) -> AddError {
        let addresses: Vec<IpAddr> = attachment.addresses.iter().map(ipnet::IpNet::addr).collect();
        let bridge = ready.port.give_up().await;
        // Refused because another pod works with an address: its connections are not this one's to flush.
        let connections = match &*stage.source {
            Cause::Bridge(BridgeError::AddressTaken { .. }) => Connections::Stay,
            _ => Connections::Of(&addresses),
        };
        let detacher = Detacher::go_on(bridge, ready.sockets.host, self.settings, ROLLBACK_TIMEOUT).await;
        match detacher.detach(&attachment.identity, connections).await {
            Ok(_) => AddError::RolledBack(stage),
            Err(leftover) => AddError::NotRolledBack { stage, leftover },
        }
    }
}

/// Whether a stage failed before anything was made that is ours to remove.
fn made_nothing(error: &StageError) -> bool {
    match (error.stage, &*error.source) {
        (Stage::Veth, Cause::Link(error)) => error.made_nothing(),
        (Stage::Veth, Cause::Failpoint(hit)) => hit.0 == failpoint::Side::Before,
        _ => false,
    }
}
