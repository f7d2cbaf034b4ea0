//! A plugin as a contestant: called as a container runtime calls it, one exec per verb.
//!
//! There is no shell and no change of namespace, so that the standard library can start the program with
//! `posix_spawn` instead of copying this process.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};
use contract::paths::PLUGIN;
use integration::{Pod, runtime::cni_args};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::measurements::{Call, Verb, milliseconds};

/// Directory of this project's plugin on the node.
const DIR: &str = "/opt/cni/bin";
/// Debian's directory for the plugins of the CNI project (containernetworking-plugins).
const BRIDGE_DIR: &str = "/usr/lib/cni";
/// Name of their bridge; unique on the node.
pub(crate) const BRIDGE: &str = "bench0";
/// What `host-local` has reserved, in the node's own `/var/lib/cni`.
const RESERVATIONS: &str = "/var/lib/cni/networks";
/// Subnet of the pods on the bridge: outside all networks of the lab, with room for 65,000 pods.
const SUBNET: &str = "10.88.0.0/16";
/// Upstream's log and standard error, in the node's directory of the lab's logs.
const UPSTREAM_LOG: &str = "/var/log/ovn/upstream-cni.log";
const UPSTREAM_STDERR: &str = "/var/log/ovn/upstream-cni.err";

/// An installed plugin with its configuration.
#[derive(Debug, Clone)]
pub(crate) struct Plugin {
    program: PathBuf,
    config: Value,
    /// Name of the interface in the pod.
    ifname: &'static str,
    /// ADD must return any address of this network; the pod's address and MAC from OVN if there is none.
    network: Option<IpNet>,
    /// Where standard error goes, if something is expected on it.
    stderr: Option<&'static str>,
}

/// A pod between its ADD and its DEL.
#[derive(Debug)]
pub(crate) struct Attached {
    plugin: Arc<Plugin>,
    /// With this attachment's sandbox.
    pod: Pod,
    /// The result of ADD, which the runtime passes to later verbs as `prevResult`.
    result: Value,
}

impl Plugin {
    /// This project's plugin.
    pub(crate) fn ours() -> Self {
        let config = json!({"cniVersion": "1.1.0", "name": "ovn-kubernetes", "type": PLUGIN});
        Self { program: Path::new(DIR).join(PLUGIN), config, ifname: "eth0", network: None, stderr: None }
    }

    /// `bridge`, which calls `host-local`: a Linux bridge, without Open vSwitch, OVN or a server.
    pub(crate) fn bridge() -> Result<Self> {
        let dir = Path::new(BRIDGE_DIR);
        ensure!(
            dir.join("bridge").exists() && dir.join("host-local").exists(),
            "bridge and host-local are not in {BRIDGE_DIR}; install them with: integration/prerequisites.sh bench"
        );
        let config = json!({
            "cniVersion": "1.0.0", "name": BRIDGE, "type": "bridge", "bridge": BRIDGE, "isGateway": true,
            "ipam": {
                "type": "host-local", "dataDir": RESERVATIONS, "ranges": [[{"subnet": SUBNET}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        });
        Ok(Self { program: dir.join("bridge"), config, network: Some(SUBNET.parse()?), ..Self::ours() })
    }

    /// Upstream's plugin at `program`. It does the plumbing itself, because this project's server answers
    /// with what to configure.
    pub(crate) fn upstream(program: &Path) -> Self {
        let config = json!({
            "cniVersion": "1.0.0", "name": "ovn-kubernetes", "type": PLUGIN, "ipam": {}, "dns": {},
            "logFile": UPSTREAM_LOG, "logLevel": "4",
        });
        // It logs to standard error as well as to its log file.
        Self { program: program.to_owned(), config, stderr: Some(UPSTREAM_STDERR), ..Self::ours() }
    }

    /// `/bin/true`, started in the same way.
    pub(crate) fn bin_true() -> Self {
        Self { program: "/bin/true".into(), config: Value::Null, ..Self::ours() }
    }

    /// The same plugin for pods that have an `eth0` from this project's plugin.
    pub(crate) fn beside_others(&self) -> Self {
        Self { ifname: "eth1", ..self.clone() }
    }

    /// ADD. The result is verified after the clock has stopped.
    pub(crate) fn add(self: &Arc<Self>, pod: &Pod, sandbox: &str) -> (Call, Option<Attached>) {
        let mut pod = pod.clone();
        sandbox.clone_into(&mut pod.sandbox);
        let (call, stdout) = self.call(Verb::Add, Some(&pod), &self.config);
        let result: Value = serde_json::from_slice(&stdout).unwrap_or_default();
        let call = call.and(self.must_be_right(&pod, &result));
        if call.error.is_some() {
            // A container runtime sends DEL after a failed ADD. Without it, the leftover port would make
            // later calls fail.
            drop(self.call(Verb::Del, Some(&pod), &self.config));
            return (call, None);
        }
        (call, Some(Attached { plugin: Arc::clone(self), pod, result }))
    }

    /// DEL of a sandbox, whichever contestant attached it.
    pub(crate) fn del(&self, pod: &Pod, sandbox: &str) -> Call {
        let mut pod = pod.clone();
        sandbox.clone_into(&mut pod.sandbox);
        self.call(Verb::Del, Some(&pod), &self.config).0
    }

    /// A verb that needs no pod: VERSION, with its answer, or STATUS.
    pub(crate) fn plain(&self, verb: Verb) -> Call {
        let (call, stdout) = self.call(verb, None, &self.config);
        if verb != Verb::Version || self.config.is_null() {
            return call;
        }
        let answer: Value = serde_json::from_slice(&stdout).unwrap_or_default();
        let is_answer = answer["supportedVersions"].is_array();
        call.and(is_answer.then_some(()).with_context(|| format!("no supportedVersions in {answer}")))
    }

    /// GC with the valid attachments `valid`; the links of `stale` must be gone afterwards.
    pub(crate) fn gc(&self, valid: &[&Attached], stale: &[&Attached]) -> Call {
        let valid = valid
            .iter()
            .map(|Attached { plugin, pod, .. }| json!({"containerID": pod.sandbox, "ifname": plugin.ifname}));
        let (call, _) =
            self.call(Verb::Gc, None, &self.config_with("cni.dev/valid-attachments", valid.collect()));
        let mut links = stale.iter().map(|attached| attached.pod.host_interface());
        let left = links.find(|link| Path::new("/sys/class/net").join(link).exists());
        call.and(left.map_or(Ok(()), |link| bail!("{link} is stale and still there")))
    }

    fn config_with(&self, key: &str, value: Value) -> Value {
        let mut config = self.config.clone();
        config[key] = value;
        config
    }

    /// One call, which fails if the program does, and what it printed.
    fn call(&self, verb: Verb, pod: Option<&Pod>, config: &Value) -> (Call, Vec<u8>) {
        let (mut duration, mut stdout) = (0.0, Vec::with_capacity(4096));
        let done = self.exec(verb, pod, &config.to_string(), &mut duration, &mut stdout);
        let sandbox = pod.map(|pod| pod.sandbox.clone()).unwrap_or_default();
        (Call { duration, sandbox, ..Call::default() }.and(done), stdout)
    }

    /// Runs the program. The clock starts before its process does, and stops when that was waited for.
    fn exec(
        &self,
        verb: Verb,
        pod: Option<&Pod>,
        input: &str,
        duration: &mut f64,
        stdout: &mut Vec<u8>,
    ) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("CNI_COMMAND", verb.to_string());
        command.env("CNI_PATH", format!("{DIR}:{BRIDGE_DIR}"));
        if let Some(pod) = pod {
            command.env("CNI_CONTAINERID", &pod.sandbox).env("CNI_NETNS", &pod.netns);
            command.env("CNI_IFNAME", self.ifname).env("CNI_ARGS", cni_args(pod));
        }
        // The pipe holds the whole input before the clock starts; a longer one would block (pipe(7)).
        ensure!(input.len() <= 65536, "an input of {} bytes", input.len());
        let (reader, mut writer) = io::pipe()?;
        writer.write_all(input.as_bytes())?;
        drop(writer);
        command.stdin(reader).stdout(Stdio::piped());
        if let Some(file) = self.stderr {
            command.stderr(File::options().append(true).create(true).open(file).context(file)?);
        }
        let began = Instant::now();
        let mut child = command.spawn().with_context(|| format!("start {}", self.program.display()))?;
        child.stdout.take().context("standard output is a pipe")?.read_to_end(stdout)?;
        let status = child.wait()?;
        *duration = milliseconds(began.elapsed());
        ensure!(status.success(), "{status}: {}", String::from_utf8_lossy(stdout).trim());
        Ok(())
    }

    fn must_be_right(&self, pod: &Pod, result: &Value) -> Result<()> {
        let address = &result["ips"][0]["address"];
        let parsed: Option<IpNet> = address.as_str().and_then(|text| text.parse().ok());
        if let Some(network) = self.network {
            let is_in = parsed.is_some_and(|found| network.contains(&found));
            ensure!(is_in, "the result has address {address}, which is not of {network}");
            return Ok(());
        }
        let expected = pod.addresses[0];
        ensure!(parsed == Some(expected), "the result has address {address} instead of {expected}");
        let mut interfaces = result["interfaces"].as_array().into_iter().flatten();
        let found = interfaces.any(|interface| interface["mac"] == pod.mac);
        ensure!(found, "no interface of the result has the pod's MAC {}", pod.mac);
        Ok(())
    }
}

impl Attached {
    /// DEL.
    pub(crate) fn del(&self) -> Call {
        self.call(Verb::Del)
    }

    /// CHECK.
    pub(crate) fn check(&self) -> Call {
        self.call(Verb::Check)
    }

    fn call(&self, verb: Verb) -> Call {
        let config = self.plugin.config_with("prevResult", self.result.clone());
        self.plugin.call(verb, Some(&self.pod), &config).0
    }
}

/// Removes the reservations of `host-local`. A remaining one is an error: it has leaked an address.
pub(crate) fn remove_reservations() -> Result<()> {
    let dir = Path::new(RESERVATIONS).join(BRIDGE);
    let Ok(entries) = fs::read_dir(&dir) else { return Ok(()) };
    let names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    let is_address = |name: &&OsString| name.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit);
    let leaked = names.iter().find(is_address);
    ensure!(leaked.is_none(), "host-local keeps {leaked:?} of a pod that is gone, in {}", dir.display());
    fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))
}
