//! ADD: attaches one interface of one pod, or leaves nothing behind.
//!
//! Validates first, then acts. Steps that do not depend on each other run at the same time. Once
//! the veth exists, any failure runs the code of DEL for this sandbox and interface.

use std::{collections::BTreeSet, io::Write, net::IpAddr, pin::pin, time::Duration};

use contract::{
    cni_args::PodArgs,
    error::chain,
    names::Network,
    net_conf::NetConf,
    stage::Stage,
    wire::{Request, WatchRequest},
};
use ipnet::IpNet;
use podnet::{
    bridge::{ArmedMonitor, Bridge, Datapath},
    detach::{Connections, Detacher, flush_before_use},
    installed::Goal,
    interface_lock::InterfaceLock,
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
    netns_link::NetnsLinks,
    port::{Port, watch_interface},
    result::{CniResult, convert},
    timeline::Timeline,
};

/// How long the server's answer may take before the plugin connects to OVSDB itself. An ADD on a
/// node without Open vSwitch then fails at once, and not when its pod gets an annotation. Much
/// shorter, and the ADDs of a burst connect too, and write their ports alone instead of in the
/// server's common transaction.
const LOOK_AFTER: Duration = Duration::from_millis(100);
/// How long the wait for a port lasts before the plugin asks the server to watch the pod. With 50
/// ms every ADD under load asked. The ADD of a pod that is deleted meanwhile ends this much later.
const WATCH_AFTER: Duration = Duration::from_secs(1);

/// The inputs of one ADD.
#[derive(Debug)]
pub struct Add<'a> {
    pub subject: &'a Subject,
    pub conf: &'a NetConf,
    pub settings: &'a Settings,
    pub request: &'a Request,
    pub server: &'a Server,
    pub timeline: &'a Timeline,
}

/// The state that attaching needs, and that rollback needs if attaching fails. It exists before the
/// veth does.
struct Begun<'a> {
    attachment: Attachment,
    port: Port<'a>,
    datapath: Datapath,
    sockets: Sockets,
    /// OVN has installed the port's flows: from then on packets may have come and gone.
    worked: bool,
}

/// The kernel's side of an ADD: the pod's namespace, and a socket on either side of it.
struct Sockets {
    netns: Netns,
    host: Netlink,
    inside: Inside,
}

impl<'a> Add<'a> {
    /// Attaches the pod and writes the result to `stdout`.
    ///
    /// # Errors
    /// The call names no pod or no usable namespace, another call works on the interface, a stage
    /// fails or passes the deadline, or a DEL of the interface arrives. [`AddError`] tells whether
    /// a rollback ran.
    pub async fn run(&self, stdout: &mut impl Write) -> Result<(), AddError> {
        let pod = self.subject.pod.as_ref().ok_or(Cause::NoPod)?;
        let path = self.subject.netns.as_deref().ok_or(Cause::NoNetns)?;
        let netns = Netns::open(path).map_err(Cause::from)?;
        let identity = self.identity();
        // The lock comes before the first question: a DEL that arrives from now on cancels this
        // ADD. Without it, DEL could find nothing and succeed, and the ADD would attach the pod
        // afterwards.
        let interface_lock = InterfaceLock::take_in_turn(&self.settings.calls, &identity)
            .await
            .map_err(Cause::from)?;

        // Outside of the cancellable future, so that rollback still has it after a DEL has
        // cancelled the work.
        let mut begun = None;
        let outcome = tokio::select! {
            outcome = self.work(identity, pod, netns, &mut begun, stdout) => outcome,
            () = interface_lock.challenged() => Err(match begun {
                None => Cause::Cancelled.into(),
                Some(_) => self.timeline.interrupted(Cause::Cancelled).into(),
            }),
        };
        // Rollback runs outside of the `select!`: the DEL waits for the lock, and must not cancel
        // it too.
        match (outcome, begun) {
            (Err(AddError::Stage(stage)), Some(begun)) if !made_nothing(&stage) => {
                Err(self.roll_back(begun, stage).await)
            }
            (outcome, _) => outcome,
        }
    }

    /// The whole ADD except its rollback. The caller may drop this future at any `await`.
    async fn work(
        &self,
        identity: Identity,
        pod: &PodArgs,
        netns: Netns,
        begun: &mut Option<Begun<'a>>,
        stdout: &mut impl Write,
    ) -> Result<(), AddError> {
        let ((answer, own), sockets) = try_join!(self.ask(&identity), self.open(netns))?;
        let (interface, bridge) = match answer {
            Answer::Interface(interface, bridge) => (interface, bridge),
            Answer::Finished(result) => {
                let result = convert(result, self.conf.version);
                return Ok(self.stage(Stage::Result, self.print(&result, stdout)).await?);
            }
            Answer::Nothing | Answer::Unknown => return Err(Cause::NoAnswer.into()),
        };
        let decide =
            Port::decide(self.server, self.settings, &identity, &sockets.host, bridge, own);
        let (port, datapath) = self.stage(Stage::Ovsdb, decide).await?;
        let attachment = Attachment::plan(identity, &pod.pod, pod.uid.as_deref(), *interface);
        Ok(self
            .attach(
                begun.insert(Begun { attachment, port, datapath, sockets, worked: false }),
                pod,
                stdout,
            )
            .await?)
    }

    /// Runs one stage of this ADD.
    async fn stage<T, E: Into<Cause>>(
        &self,
        stage: Stage,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, StageError> {
        self.timeline.stage(stage, work).await
    }

    fn identity(&self) -> Identity {
        Identity {
            sandbox: self.subject.sandbox.clone(),
            if_name: self.subject.if_name.clone(),
            network: self.conf.network.clone(),
        }
    }

    /// Opens the kernel's sockets while the server works on the request. Creates nothing.
    async fn open(&self, netns: Netns) -> Result<Sockets, StageError> {
        // Lets `ask` send the request first: opening the sockets blocks the only thread.
        yield_now().await;
        let open =
            async { Ok::<_, Cause>((Netlink::open().map_err(Cause::Netlink)?, netns.inside()?)) };
        let (host, inside) = self.stage(Stage::Netns, open).await?;
        Ok(Sockets { netns, host, inside })
    }

    /// Asks the server. If the answer takes longer than `LOOK_AFTER`, connects to OVSDB meanwhile;
    /// the session and the monitor of the port are returned with the answer.
    async fn ask(
        &self,
        identity: &Identity,
    ) -> Result<(Answer, Option<(Bridge, ArmedMonitor)>), StageError> {
        let mut ask = pin!(self.stage(Stage::Annotation, self.server.ask(self.request)));
        let meanwhile = async {
            sleep(failpoint::patience(LOOK_AFTER)).await;
            self.stage(Stage::Ovsdb, watch_interface(self.settings, identity)).await
        };
        tokio::select! {
            // The session first: one that is open when the answer comes is used.
            biased;
            own = meanwhile => {
                let own = own?;
                Ok((ask.await?, Some(own)))
            }
            answer = &mut ask => Ok((answer?, None)),
        }
    }

    async fn attach(
        &self,
        begun: &mut Begun<'_>,
        pod: &PodArgs,
        stdout: &mut impl Write,
    ) -> Result<(), StageError> {
        let Begun { attachment, port, datapath, sockets: Sockets { netns, host, inside }, worked } =
            begun;
        tell(attachment);
        // The link before the port: ovs-vswitchd opens the device as soon as the port is in the
        // database, and reports an error if there is no such device.
        let create = async {
            // Before the pod can send: a later flush would take its own connections, too.
            if let Err(error) =
                flush_before_use(self.settings, attachment.addresses.iter().map(IpNet::addr)).await
            {
                tracing::warn!(
                    error = chain(&error),
                    "tracked connections that a DEL had left are not removed"
                );
            }
            link::create(host, &inside.netlink, netns, attachment)
        };
        let end = self.stage(Stage::Veth, create).await?;
        let HostEnd { name, mac, index, pod_index } = &end;
        tracing::debug!(%name, %mac, index, pod_index, "made the veth: the host's end, and the index of the pod's");
        self.stage(Stage::Port, port.write(attachment, name, *datapath)).await?;
        tracing::debug!(%name, iface_id = %attachment.iface_id, by = port.writer(), "the port is in Open vSwitch");

        // ovs-vswitchd and ovn-controller take up the port while the pod's end is configured.
        let configure = self
            .stage(Stage::Pod, async { pod_end::configure(inside, attachment, &end, *datapath) });
        let wait = async {
            self.stage(Stage::Ofport, port.reach(Goal::Ofport, attachment, &end.name)).await?;
            let installed = port.reach(Goal::OvnInstalled, attachment, &end.name);
            self.stage(Stage::OvnInstalled, self.unless_changed(installed, attachment, pod))
                .await?;
            *worked = true;
            Ok::<_, StageError>(())
        };
        try_join!(configure, wait)?;
        tracing::debug!("addresses and routes are in the pod, and OVN has installed the port");

        if let Some((links, path)) = self.netns_links().zip(self.subject.netns.as_deref()) {
            links.make(&self.subject.sandbox, path);
        }
        let result = self.result(attachment, &end);
        let print = async {
            // A runtime that has given up deletes the namespace. A result would be for nobody.
            netns.is_reachable()?;
            self.print(&result, stdout).await
        };
        self.stage(Stage::Result, print).await?;
        tracing::info!(
            mac = %attachment.mac,
            addresses = ?attachment.addresses,
            gateways = ?attachment.routes.iter().filter_map(|route| route.next_hop).collect::<BTreeSet<_>>(),
            mtu = %attachment.mtu,
            port = %end.name,
            "attached"
        );
        Ok(())
    }

    /// Ends a wait as soon as the pod is deleted or replaced, or its annotation is gone or
    /// different.
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
        // Most ports work sooner than this, which spares the server a request. The server answers a
        // late request at once if the pod has changed meanwhile.
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

    /// Prints the result. If the runtime cannot read it, the stage fails and the pod is detached
    /// again.
    async fn print(&self, result: &Value, stdout: &mut impl Write) -> Result<(), Cause> {
        tracing::debug!(%result, "the result");
        serde_json::to_writer(&mut *stdout, result).map_err(|error| Cause::Stdout(error.into()))?;
        writeln!(stdout).and_then(|()| stdout.flush()).map_err(Cause::Stdout)
    }

    /// `None` if namespaces get no names, and for further networks of a pod: the first one's has
    /// named it.
    fn netns_links(&self) -> Option<NetnsLinks> {
        (self.conf.netns_link && self.conf.network == Network::Default).then(NetnsLinks::default)
    }

    async fn roll_back(&self, begun: Begun<'_>, stage: StageError) -> AddError {
        if let Some(links) = self.netns_links() {
            links.remove(&self.subject.sandbox);
        }
        let Begun { attachment, port, datapath: _, sockets, worked } = begun;
        let stage = without_namespace(stage, &sockets.netns);
        // An outstanding write comes to its end first, so that the removal below finds its rows.
        let addresses: Vec<IpAddr> = attachment.addresses.iter().map(IpNet::addr).collect();
        let bridge = port.give_up().await;
        // Connections of an address that this pod has never used are another pod's, here or on
        // another node, if the annotation is wrong.
        let connections = if worked { Connections::Of(&addresses) } else { Connections::Stay };
        let detacher = Detacher::go_on(bridge, sockets.host, self.settings, ROLLBACK_TIMEOUT).await;
        match detacher.detach(&attachment.identity, connections).await {
            Ok(_) => AddError::RolledBack(stage),
            Err(leftover) => AddError::NotRolledBack { stage, leftover },
        }
    }
}

/// What the server said of the pod's annotation, which the pod's end is made of.
fn tell(attachment: &Attachment) {
    let Attachment { pod_uid, mac, mtu, addresses, routes, skip_ip_config, bandwidth, .. } =
        attachment;
    tracing::debug!(
        pod_uid,
        %mac,
        %mtu,
        ?addresses,
        routes = ?routes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        skip_ip_config,
        ?bandwidth,
        "the pod's annotation"
    );
}

/// A namespace that was deleted meanwhile is the reason why there was no time left: its runtime has
/// given up, and need not try again.
fn without_namespace(error: StageError, netns: &Netns) -> StageError {
    let out_of_time = matches!(*error.source, Cause::Deadline(_));
    match netns.is_reachable() {
        Err(deleted) if out_of_time => StageError { source: Box::new(deleted.into()), ..error },
        Ok(()) | Err(_) => error,
    }
}

/// Whether the stage failed before it created anything that a rollback would remove.
fn made_nothing(error: &StageError) -> bool {
    match (error.stage, &*error.source) {
        (Stage::Veth, Cause::Link(error)) => error.made_nothing(),
        (Stage::Veth, Cause::Failpoint(hit)) => hit.0 == failpoint::Side::Before,
        _ => false,
    }
}
