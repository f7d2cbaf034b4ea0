//! One call, from the environment to the exit status: reads, dispatches, reports.

use std::{
    io::Write,
    os::fd::AsFd,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use cni_plugin::reply::ReplyPayload;
use contract::{
    error::CniError,
    names::Network,
    net_conf::{LogConf, NetConf},
    paths::{CALL_DONE, CALL_FAILED, PLUGIN_LOG},
    spec_version::SpecVersion,
    stage::StageTime,
    wire::{Metrics, Request},
};
use podnet::settings::Settings;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::Instrument;

use crate::{
    add::Add,
    ask::{self, Server, Way},
    check::check,
    del::del,
    error::{Cause, Failure},
    failpoint::{self, Side},
    gc::gc,
    invocation::{Call, Environment},
    netns_link::NetnsLinks,
    status::status,
    stdin::read_to_end,
    timeline::Timeline,
};

/// The highest priority. The scripts of Open vSwitch and OVN give their daemons -10 (ovs-ctl(8),
/// `--ovs-vswitchd-priority`).
const NICENESS: i32 = -20;
/// The server has to answer this much before the plugin's own deadline: its answer names what is
/// missing, the deadline does not. The server subtracts 200 ms more for the transport. The rest is
/// for a node where each process waits for its turn.
const ANSWER_MARGIN_MS: u64 = 500;

/// How long a DEL may take, whatever hangs: 15 s for an ADD that has to give up, 8 s for an answer
/// of OVSDB, and the rest for the kernel. Less than any runtime waits.
const DEL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a CHECK may take: 3 s for the server, 8 s for an answer of OVSDB, and the rest for the
/// kernel.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a GC may take. It is enough for 3,000 interfaces at 20 ms each, the kernel's time for
/// one. The next GC removes the others.
const GC_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a STATUS may take: less than the five seconds between two calls of a runtime.
const STATUS_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a call other than STATUS waits for its configuration. A runtime has it before it starts
/// the plugin, so a longer wait would only delay the error for a caller that leaves standard input
/// open.
const STDIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A reply other than the result of an ADD.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
struct Reply(Value);

impl ReplyPayload<'_> for Reply {
    /// 1 for every error, whatever its code, as in the Go library.
    fn code(&self) -> i32 {
        i32::from(self.0.get("code").is_some())
    }
}

/// Carries out the call that `environment` and `stdin` describe, and answers on `stdout`.
pub fn run(environment: &Environment, stdin: impl AsFd, stdout: &mut impl Write) -> ExitCode {
    let started = Instant::now();
    let call = match Call::parse(environment) {
        Ok(call) => call,
        // The answer to an invalid call still has the caller's version.
        Err(error) => {
            let config = read_to_end(stdin, STATUS_TIMEOUT).unwrap_or_default();
            return refuse(Cause::from(error), asked_version(&config), stdout);
        }
    };
    match call {
        Call::About => {
            let versions = SpecVersion::ALL.map(SpecVersion::as_str).join(", ");
            eprintln!(
                "ovn-k8s-cni-overlay {}: the CNI plugin of OVN-Kubernetes",
                env!("CARGO_PKG_VERSION")
            );
            eprintln!("CNI protocol versions supported: {versions}");
            ExitCode::SUCCESS
        }
        Call::Version => {
            let versions = SpecVersion::ALL.map(SpecVersion::as_str);
            reply(
                Reply(
                    json!({"cniVersion": SpecVersion::NEWEST.as_str(), "supportedVersions": versions}),
                ),
                stdout,
            )
        }
        call @ (Call::Add(_) | Call::Del(_) | Call::Check(_) | Call::Gc | Call::Status) => {
            let limit = if matches!(call, Call::Status) { STATUS_TIMEOUT } else { STDIN_TIMEOUT };
            let config = match read_to_end(stdin, limit) {
                Ok(config) => config,
                Err(error) => return refuse(Cause::from(error), SpecVersion::NEWEST, stdout),
            };
            // DEL has to succeed with a configuration that was damaged after ADD.
            let conf = if matches!(call, Call::Del(_)) {
                NetConf::parse_for_del(&config)
            } else {
                NetConf::parse(&config)
            };
            match conf.map_err(Cause::from).and_then(|conf| Ok((Settings::of(&conf)?, conf))) {
                Ok((settings, conf)) => {
                    // The runtime's clock started before the configuration was there.
                    let spent = started.elapsed();
                    let settings =
                        Settings { timeout: settings.timeout.saturating_sub(spent), ..settings };
                    Session { call, conf, settings, environment, config, spent }.run(stdout)
                }
                Err(cause) => refuse(cause, asked_version(&config), stdout),
            }
        }
    }
}

/// A valid call with its inputs.
struct Session<'a> {
    call: Call,
    conf: NetConf,
    settings: Settings,
    environment: &'a Environment,
    config: Vec<u8>,
    /// The time that had passed when the configuration was read.
    spent: Duration,
}

impl Session<'_> {
    fn run(&self, stdout: &mut impl Write) -> ExitCode {
        // A pod waits for ADD and DEL. The other verbs must not delay the daemons.
        if matches!(self.call, Call::Add(_) | Call::Del(_)) {
            come_first();
        }
        let LogConf { file, level } = &self.conf.log;
        ovslog::start(Path::new(file.as_deref().unwrap_or(PLUGIN_LOG)), level.as_deref());
        let timeline = Timeline::start(self.settings.timeout);
        let span = self.span();
        let (outcome, way) = self.carry_out(&timeline, stdout, &span);
        let _in_span = span.enter();
        let milliseconds = timeline.milliseconds();
        let failure = outcome.err();
        let error = failure.as_ref().map(|failure| failure.report(&self.context(), milliseconds));
        match &error {
            // Runtimes call STATUS every few seconds: a line for each would fill the log.
            None if matches!(self.call, Call::Status) => {
                tracing::debug!(ms = round(milliseconds), "{CALL_DONE}")
            }
            None => {
                let stages = stages(&timeline.times());
                tracing::info!(ms = round(milliseconds), %stages, "{CALL_DONE}")
            }
            Some(error) => {
                let CniError { code, msg, details, .. } = error;
                tracing::error!(
                    code,
                    ms = round(milliseconds),
                    stages = %stages(&timeline.times()),
                    error = %msg,
                    hint = %details,
                    "{CALL_FAILED}"
                );
            }
        }
        let exit = match &error {
            None => ExitCode::SUCCESS,
            Some(error) => print_error(error.clone(), self.conf.version, stdout),
        };
        // The report comes last: the runtime must not wait for it.
        self.report(way, &timeline, failure.as_ref(), error);
        exit
    }

    /// Carries the call out on one thread: the plugin serves one pod. Also returns the transport
    /// for the report.
    fn carry_out(
        &self,
        timeline: &Timeline,
        stdout: &mut impl Write,
        span: &tracing::Span,
    ) -> (Result<(), Failure>, Way) {
        if let Err(error) = self.call.allowed_by(&self.conf) {
            return (Err(Cause::from(error).into()), Way::New);
        }
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return (Err(Cause::Runtime(error).into()), Way::New),
        };
        let server = Server::at(&self.settings.server_socket);
        runtime.block_on(async {
            let outcome = self.dispatch(&server, timeline, stdout).instrument(span.clone()).await;
            // Inside the runtime, because the task that holds the connection runs on it.
            (outcome, server.into_way().await)
        })
    }

    async fn dispatch(
        &self,
        server: &Server,
        timeline: &Timeline,
        stdout: &mut impl Write,
    ) -> Result<(), Failure> {
        let Self { conf, settings, .. } = self;
        let request = self.request();
        self.tell();
        match &self.call {
            Call::Add(subject) => {
                Ok(Add { subject, conf, settings, request: &request, server, timeline }
                    .run(stdout)
                    .await?)
            }
            Call::Del(subject) => {
                if conf.netns_link && conf.network == Network::Default {
                    NetnsLinks::default().remove(&subject.sandbox);
                }
                let removed = self.within(DEL_TIMEOUT, del(subject, conf, settings)).await?;
                tracing::info!(ports = %removed.ports.join(","), links = %removed.links.join(","), "removed");
                Ok(())
            }
            Call::Check(subject) => Ok(self
                .within(CHECK_TIMEOUT, check(subject, conf, settings, server, &request))
                .await?),
            Call::Gc => {
                let removed = self.within(GC_TIMEOUT, gc(conf, settings)).await?;
                if conf.netns_link && conf.network == Network::Default {
                    removed
                        .iter()
                        .for_each(|identity| NetnsLinks::default().remove(&identity.sandbox));
                }
                tracing::info!(interfaces = removed.len(), "removed stale interfaces");
                Ok(())
            }
            Call::Status => match self
                .within(STATUS_TIMEOUT, async { Ok::<_, Cause>(status(&request, settings).await) })
                .await?
            {
                missing if missing.is_empty() => Ok(()),
                missing => Err(Failure::Status(missing)),
            },
            Call::About | Call::Version => Ok(()),
        }
    }

    /// Gives up once the call has taken `limit`. A runtime that waits for a call cannot do anything
    /// else for the pod. A request to rtnetlink, for which the kernel makes the only thread wait,
    /// is not interrupted: the call gives up after it.
    async fn within<T, E: Into<Cause>>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Cause> {
        let verb = self.call.verb();
        let guarded = async {
            failpoint::pass(Side::Before, verb).await?;
            let done = work.await.map_err(Into::into)?;
            failpoint::pass(Side::After, verb).await?;
            Ok(done)
        };
        let outcome = timeout(limit.saturating_sub(self.spent), guarded).await;
        outcome.unwrap_or_else(|_| Err(Cause::OutOfTime(limit)))
    }

    /// What the runtime asks for, to the letter. The name of the interface is in the span.
    fn tell(&self) {
        let subject = self.call.subject();
        tracing::debug!(
            container_id = subject.map(|subject| subject.sandbox.as_str()),
            netns = subject.and_then(|subject| subject.netns.as_ref()).map(|path| path.display().to_string()),
            args = self.environment.variables().get("CNI_ARGS").map(String::as_str),
            config = %String::from_utf8_lossy(&self.config),
            "called"
        );
    }

    fn request(&self) -> Request {
        let patience = u64::try_from(self.settings.timeout.as_millis()).unwrap_or(u64::MAX);
        Request {
            env: self.environment.variables().clone(),
            config: self.config.clone(),
            timeout_ms: Some(patience.saturating_sub(ANSWER_MARGIN_MS)),
        }
    }

    /// The call, for messages: `ADD shop/cart-0 (sandbox 0123456789ab…, eth0)`.
    fn context(&self) -> String {
        let verb = self.call.verb();
        let Some(subject) = self.call.subject() else {
            return format!("{verb} {}", self.conf.name);
        };
        let pod = subject.pod.as_ref().map(|args| format!(" {}", args.pod)).unwrap_or_default();
        format!("{verb}{pod} (sandbox {}, {})", subject.sandbox, subject.if_name)
    }

    fn span(&self) -> tracing::Span {
        let subject = self.call.subject();
        let pod = subject.and_then(|subject| subject.pod.as_ref()).map(|args| &args.pod);
        tracing::info_span!(
            "cni",
            cni.command = self.call.verb(),
            pod.namespace = pod.map(|pod| pod.namespace()),
            pod.name = pod.map(|pod| pod.name()),
            sandbox = subject.map(|subject| subject.sandbox.as_str()),
            ifname = subject.map(|subject| subject.if_name.as_str()),
        )
    }

    /// Reports the call to the server, except for STATUS, which runtimes call every few seconds.
    fn report(
        &self,
        way: Way,
        timeline: &Timeline,
        failure: Option<&Failure>,
        error: Option<CniError>,
    ) {
        if matches!(self.call, Call::Status) {
            return;
        }
        let subject = self.call.subject();
        let metrics = Metrics {
            command: self.call.verb().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            elapsed_time: timeline.milliseconds() / 1e3,
            has_err: error.is_some(),
            code: error.as_ref().map(|error| error.code),
            message: error.map(|error| error.msg),
            pod: subject.and_then(|subject| subject.pod.as_ref()).map(|args| args.pod.to_string()),
            sandbox: subject.map(|subject| subject.sandbox.to_string()),
            stages: timeline.times(),
            failed_stage: failure.and_then(Failure::stage),
            rollback: failure.and_then(Failure::rollback),
        };
        if let Err(error) = ask::report(way, &self.settings.server_socket, &metrics) {
            tracing::debug!(%error, "cannot report to the server");
        }
    }
}

/// Gives this process priority over the daemons of Open vSwitch and OVN, if that is allowed. Ports
/// of pods that start together are then written together, and the daemons, which go through
/// everything that they know for each change, have fewer changes to process.
fn come_first() {
    let _ = rustix::process::setpriority_process(None, NICENESS);
}

/// The version that a configuration asks for, even if the rest of it is invalid.
fn asked_version(config: &[u8]) -> SpecVersion {
    let asked = serde_json::from_slice::<Value>(config)
        .ok()
        .and_then(|value| value.get("cniVersion")?.as_str()?.parse().ok());
    asked.unwrap_or(SpecVersion::NEWEST)
}

/// Answers an invalid call. There is no log yet: the answer is the only output.
fn refuse(cause: Cause, version: SpecVersion, stdout: &mut impl Write) -> ExitCode {
    let failure = Failure::from(cause);
    print_error(failure.report("ovn-k8s-cni-overlay", 0.0), version, stdout)
}

fn print_error(error: CniError, version: SpecVersion, stdout: &mut impl Write) -> ExitCode {
    let stamped = CniError { cni_version: version.as_str().to_owned(), ..error };
    reply(Reply(json!(stamped)), stdout)
}

/// Prints a reply. If standard output is closed, the exit status is still an error.
fn reply(reply: Reply, stdout: &mut impl Write) -> ExitCode {
    let printed = serde_json::to_writer(&mut *stdout, &reply)
        .map_err(std::io::Error::from)
        .and_then(|()| writeln!(stdout));
    match (printed, reply.code()) {
        (Ok(()), 0) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// The milliseconds that each stage took: `ovsdb 1.2, annotation 0.8, …`.
fn stages(times: &[StageTime]) -> String {
    times
        .iter()
        .map(|time| format!("{} {:.1}", time.stage, time.end - time.start))
        .collect::<Vec<_>>()
        .join(", ")
}

fn round(milliseconds: f64) -> f64 {
    (milliseconds * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use rustix::process::{getpriority_process, setpriority_process};

    use super::*;

    #[test]
    fn the_process_comes_first_where_that_is_allowed() {
        let before = getpriority_process(None).unwrap();
        let allowed = setpriority_process(None, before - 1).is_ok();
        come_first();
        assert_eq!(getpriority_process(None).unwrap(), if allowed { NICENESS } else { before });
    }
}
