//! A plugin as a contestant: called as a container runtime calls it, one exec per verb.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::Arc,
};

use anyhow::{Context as _, Result, bail, ensure};
use contract::paths::PLUGIN;
use ipnet::IpNet;
use serde_json::{Value, json};

use super::{
    bridge,
    exec::{self, Chatter, Ended},
    floor::milliseconds,
    measurements::{Call, Verb},
    plan::PlannedPod,
};

/// Directory of this project's plugin on the node.
const DIR: &str = "/opt/cni/bin";
/// Upstream's log, in the node's directory of the lab's logs.
const UPSTREAM_LOG: &str = "/var/log/ovn/upstream-cni.log";
const UPSTREAM_CHATTER: &str = "/var/log/ovn/upstream-cni.err";

/// An installed plugin with its configuration.
#[derive(Debug, Clone)]
pub(crate) struct Plugin {
    program: PathBuf,
    /// `CNI_PATH`: the directory of the plugins that this plugin calls.
    dir: PathBuf,
    config: Value,
    /// Name of the interface in the pod.
    ifname: &'static str,
    addresses: Addresses,
    chatter: Chatter,
}

/// The address that ADD must return.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Addresses {
    /// The pod's address and MAC from OVN.
    OfThePod,
    /// Any address of this network.
    Of(IpNet),
}

/// The data that CHECK and DEL need from an ADD.
#[derive(Debug, Clone)]
pub(crate) struct Attached {
    plugin: Arc<Plugin>,
    sandbox: String,
    /// The result of ADD, which the runtime passes to later verbs as `prevResult`.
    result: Value,
}

impl Plugin {
    /// This project's plugin.
    pub(crate) fn ours() -> Self {
        let config = json!({"cniVersion": "1.1.0", "name": "ovn-kubernetes", "type": PLUGIN});
        Self {
            program: Path::new(DIR).join(PLUGIN),
            dir: DIR.into(),
            config,
            ifname: "eth0",
            addresses: Addresses::OfThePod,
            chatter: Chatter::Shown,
        }
    }

    /// `bridge`, which calls `host-local`.
    pub(crate) fn bridge() -> Result<Self> {
        bridge::installed()?;
        Ok(Self {
            program: Path::new(bridge::DIR).join("bridge"),
            dir: bridge::DIR.into(),
            config: bridge::config(),
            ifname: "eth0",
            addresses: Addresses::Of(bridge::SUBNET.parse()?),
            chatter: Chatter::Shown,
        })
    }

    /// Upstream's plugin at `program`. It does the plumbing itself, because this project's server answers
    /// with what to configure.
    pub(crate) fn upstream(program: &Path) -> Self {
        let config = json!({
            "cniVersion": "1.0.0",
            "name": "ovn-kubernetes",
            "type": PLUGIN,
            "ipam": {},
            "dns": {},
            "logFile": UPSTREAM_LOG,
            "logLevel": "4",
        });
        Self {
            program: program.to_owned(),
            dir: DIR.into(),
            config,
            ifname: "eth0",
            addresses: Addresses::OfThePod,
            // It logs to standard error as well as to its log file.
            chatter: Chatter::Kept(Path::new(UPSTREAM_CHATTER)),
        }
    }

    /// The same plugin for pods that have an `eth0` from this project's plugin: its interface is `eth1`.
    pub(crate) fn beside_others(self: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self { ifname: "eth1", ..Self::clone(self) })
    }

    /// ADD. The result is verified after the clock has stopped.
    pub(crate) fn add(self: &Arc<Self>, pod: &PlannedPod, sandbox: &str) -> (Call, Option<Attached>) {
        let ended = self.call(Verb::Add, Some((pod, sandbox)), None);
        let mut attached = None;
        let call = judge(ended, |stdout| {
            let result: Value = serde_json::from_slice(stdout).context("the result is not JSON")?;
            self.addresses.must_be_in(pod, &result)?;
            attached = Some(Attached { plugin: Arc::clone(self), sandbox: sandbox.to_owned(), result });
            Ok(())
        });
        if call.error.is_some() {
            // A container runtime sends DEL after a failed ADD. Without it, the leftover port would make
            // later calls fail.
            drop(self.call(Verb::Del, Some((pod, sandbox)), None));
        }
        (call, attached)
    }

    /// DEL of a sandbox, whichever contestant attached it.
    pub(crate) fn del(&self, pod: &PlannedPod, sandbox: &str) -> Call {
        judge(self.call(Verb::Del, Some((pod, sandbox)), None), |_| Ok(()))
    }

    /// STATUS.
    pub(crate) fn status(&self) -> Call {
        judge(self.call(Verb::Status, None, None), |_| Ok(()))
    }

    /// VERSION.
    pub(crate) fn version(&self) -> Call {
        judge(self.call(Verb::Version, None, None), |stdout| {
            let answer: Value = serde_json::from_slice(stdout)?;
            ensure!(answer["supportedVersions"].is_array(), "no supportedVersions in {answer}");
            Ok(())
        })
    }

    /// GC with the valid attachments `valid`; the links of `stale` must be gone afterwards.
    pub(crate) fn gc(&self, valid: &[&Attached], stale: &[&Attached]) -> Call {
        let mut config = self.config.clone();
        config["cni.dev/valid-attachments"] = valid.iter().map(|attached| attached.identity()).collect();
        judge(
            exec::run(&self.program, self.environment(Verb::Gc, None), &config.to_string(), self.chatter),
            |_| {
                let left = stale
                    .iter()
                    .map(|attached| attached.link())
                    .find(|link| Path::new("/sys/class/net").join(link).exists());
                left.map_or(Ok(()), |link| bail!("{link} is stale and still there"))
            },
        )
    }

    /// `/bin/true`, started in the same way.
    pub(crate) fn bin_true(&self) -> Call {
        judge(
            exec::run(
                Path::new("/bin/true"),
                self.environment(Verb::Version, None),
                &self.config(None).to_string(),
                self.chatter,
            ),
            |_| Ok(()),
        )
    }

    fn call(
        &self,
        verb: Verb,
        subject: Option<(&PlannedPod, &str)>,
        prev_result: Option<&Value>,
    ) -> Result<Ended> {
        exec::run(
            &self.program,
            self.environment(verb, subject),
            &self.config(prev_result).to_string(),
            self.chatter,
        )
    }

    fn environment(&self, verb: Verb, subject: Option<(&PlannedPod, &str)>) -> Vec<(&'static str, OsString)> {
        let path = "/usr/sbin:/usr/bin:/sbin:/bin";
        let mut variables = vec![
            ("PATH", path.into()),
            ("CNI_COMMAND", verb.command().into()),
            ("CNI_PATH", self.dir.clone().into()),
        ];
        if let Some((PlannedPod { namespace, name, uid, netns, .. }, sandbox)) = subject {
            let pod = format!(
                "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};\
                 K8S_POD_INFRA_CONTAINER_ID={sandbox};K8S_POD_UID={uid}"
            );
            variables.extend([
                ("CNI_CONTAINERID", sandbox.into()),
                ("CNI_NETNS", netns.into()),
                ("CNI_IFNAME", self.ifname.into()),
                ("CNI_ARGS", pod.into()),
            ]);
        }
        variables
    }

    fn config(&self, prev_result: Option<&Value>) -> Value {
        let mut config = self.config.clone();
        if let Some(result) = prev_result {
            config["prevResult"] = result.clone();
        }
        config
    }
}

impl Attached {
    /// DEL.
    pub(crate) fn del(&self, pod: &PlannedPod) -> Call {
        judge(self.call(Verb::Del, pod), |_| Ok(()))
    }

    /// CHECK.
    pub(crate) fn check(&self, pod: &PlannedPod) -> Call {
        judge(self.call(Verb::Check, pod), |_| Ok(()))
    }

    /// The attachment as an entry of `cni.dev/valid-attachments`.
    fn identity(&self) -> Value {
        json!({"containerID": self.sandbox, "ifname": self.plugin.ifname})
    }

    /// Name of the link on the node; only for attachments of this project's plugin.
    fn link(&self) -> &str {
        &self.sandbox[..15]
    }

    fn call(&self, verb: Verb, pod: &PlannedPod) -> Result<Ended> {
        self.plugin.call(verb, Some((pod, &self.sandbox)), Some(&self.result))
    }
}

impl Addresses {
    fn must_be_in(&self, pod: &PlannedPod, result: &Value) -> Result<()> {
        let address = &result["ips"][0]["address"];
        match self {
            Self::OfThePod => {
                ensure!(
                    *address == pod.address.to_string(),
                    "the result has address {address} instead of {}",
                    pod.address
                );
                let mut interfaces = result["interfaces"].as_array().into_iter().flatten();
                let found = interfaces.any(|interface| interface["mac"] == pod.mac);
                ensure!(found, "no interface of the result has the pod's MAC {}", pod.mac);
            }
            Self::Of(network) => {
                let parsed = address.as_str().and_then(|text| text.parse::<IpNet>().ok());
                ensure!(
                    parsed.is_some_and(|found| network.contains(&found)),
                    "the result has address {address}, which is not of {network}"
                );
            }
        }
        Ok(())
    }
}

/// Makes a call of an ended program: it counts if the program succeeded and `verify` accepts its output.
fn judge(ended: Result<Ended>, verify: impl FnOnce(&[u8]) -> Result<()>) -> Call {
    let (duration, verdict) = match ended {
        Ok(Ended { status, stdout, duration }) => {
            (milliseconds(duration), succeeded(status, &stdout).and_then(|()| verify(&stdout)))
        }
        Err(error) => (0.0, Err(error)),
    };
    Call { duration, parts: Vec::new(), error: verdict.err().map(|error| format!("{error:#}")) }
}

fn succeeded(status: ExitStatus, stdout: &[u8]) -> Result<()> {
    ensure!(status.success(), "{status}: {}", String::from_utf8_lossy(stdout).trim());
    Ok(())
}
