//! A plugin as a contestant: called as a container runtime calls it, one exec per verb.
//!
//! There is no shell and no change of namespace, so that the standard library can start the program
//! with `posix_spawn` instead of copying this process.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use contract::paths::PLUGIN;
use integration::{Node, Pod, Runtime, cluster::reference};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::measurements::{Call, Verb};
use crate::report::milliseconds;

/// Directory of this project's plugin on the node.
const DIR: &str = "/opt/cni/bin";
/// Name of their bridge; unique on the node.
const BRIDGE: &str = "bench0";
/// Removes the bridge, and what `host-local` has reserved in the node's own `/var/lib/cni`. Any
/// file left in the directory is an address that has leaked.
pub(crate) const REMOVE_BRIDGE: &str = "
    ip link del bench0
    cd /var/lib/cni/networks
    rm -f bench0/last_reserved_ip.* bench0/lock
    ls bench0 >&2
    rmdir bench0";
/// Subnet of the pods on the bridge: outside all networks of the lab, with room for 65,000 pods.
const SUBNET: &str = "10.88.0.0/16";
/// Upstream's log, in the node's directory of the lab's logs.
const UPSTREAM_LOG: &str = "/var/log/ovn/upstream-cni.log";

/// A plugin with its configuration.
#[derive(Debug, Clone)]
pub(crate) struct Plugin<'node> {
    runtime: Runtime<'node>,
    /// ADD must return an address of this network; the pod's address and MAC from OVN if there is
    /// none.
    network: Option<IpNet>,
}

impl<'node> Plugin<'node> {
    /// This project's plugin.
    pub(crate) fn ours(node: &'node Node) -> Self {
        let config = json!({"cniVersion": "1.1.0", "name": "ovn-kubernetes", "type": PLUGIN});
        Self::new(node, Path::new(DIR).join(PLUGIN), config)
    }

    /// `bridge`, which calls `host-local`: a Linux bridge, without Open vSwitch, OVN or a server.
    pub(crate) fn bridge(node: &'node Node) -> Result<Self> {
        let mut config = reference::bridge(BRIDGE, SUBNET);
        (config["cniVersion"], config["name"]) = (json!("1.0.0"), json!(BRIDGE));
        Ok(Self {
            network: Some(SUBNET.parse()?),
            ..Self::new(node, reference::plugin("bridge")?, config)
        })
    }

    /// Upstream's plugin at `program`. It does the plumbing itself, because this project's server
    /// answers with what to configure.
    pub(crate) fn upstream(node: &'node Node, program: &Path) -> Self {
        let config = json!({
            "cniVersion": "1.0.0", "name": "ovn-kubernetes", "type": PLUGIN, "ipam": {}, "dns": {},
            "logFile": UPSTREAM_LOG, "logLevel": "4",
        });
        Self::new(node, program.to_owned(), config)
    }

    /// `/bin/true`, started in the same way.
    pub(crate) fn bin_true(node: &'node Node) -> Self {
        Self::new(node, "/bin/true".into(), Value::Null)
    }

    fn new(node: &'node Node, program: PathBuf, config: Value) -> Self {
        let mut runtime = node.runtime();
        (runtime.program, runtime.config) = (Some(program), config);
        Self { runtime, network: None }
    }

    /// ADD, and its result, which is verified after the clock has stopped.
    pub(crate) fn add(&self, pod: &Pod) -> (Call, Option<Value>) {
        let (call, result) = self.call(Verb::Add, Some(pod), None);
        let call = call.and(self.must_be_right(pod, &result));
        if call.error.is_some() {
            // A container runtime sends DEL after a failed ADD. Without it, the leftover port would
            // make later calls fail.
            self.del(pod, None);
            return (call, None);
        }
        (call, Some(result))
    }

    /// DEL of a pod, whichever contestant attached it; with the result of its ADD, as a runtime
    /// passes it.
    pub(crate) fn del(&self, pod: &Pod, result: Option<&Value>) -> Call {
        self.call(Verb::Del, Some(pod), result.map(|result| ("prevResult", result.clone()))).0
    }

    /// CHECK of a pod, with the result of its ADD.
    pub(crate) fn check(&self, pod: &Pod, result: &Value) -> Call {
        self.call(Verb::Check, Some(pod), Some(("prevResult", result.clone()))).0
    }

    /// A verb that needs no pod: VERSION, with its answer, or STATUS.
    pub(crate) fn plain(&self, verb: Verb) -> Call {
        let (call, answer) = self.call(verb, None, None);
        let is_answer = verb != Verb::Version
            || self.runtime.config.is_null()
            || answer["supportedVersions"].is_array();
        call.and(
            is_answer.then_some(()).with_context(|| format!("no supportedVersions in {answer}")),
        )
    }

    /// GC with the valid attachments `valid`; the links of `stale` must be gone afterwards.
    pub(crate) fn gc(&self, valid: &[Pod], stale: &[Pod]) -> Call {
        let valid = valid.iter().map(|pod| json!({"containerID": pod.sandbox, "ifname": "eth0"}));
        let (call, _) =
            self.call(Verb::Gc, None, Some(("cni.dev/valid-attachments", valid.collect())));
        let mut links = stale.iter().map(Pod::host_interface);
        let left = links.find(|link| Path::new("/sys/class/net").join(link).exists());
        call.and(left.map_or(Ok(()), |link| bail!("{link} is stale and still there")))
    }

    /// One call, which fails if the program does, and what it answers.
    fn call(&self, verb: Verb, pod: Option<&Pod>, key: Option<(&str, Value)>) -> (Call, Value) {
        let runtime = match key {
            Some((key, value)) => &self.runtime.with(key, value),
            None => &self.runtime,
        };
        let call = runtime
            .call(&verb.to_string(), pod)
            .env("CNI_PATH", format!("{DIR}:{}", reference::PLUGINS));
        let outcome = call.run();
        let duration = outcome.as_ref().map_or(0.0, |outcome| milliseconds(outcome.duration));
        let sandbox = pod.map(|pod| pod.sandbox.clone()).unwrap_or_default();
        let call = Call { duration, sandbox, ..Call::default() };
        match outcome.and_then(|outcome| outcome.success()) {
            Ok(answer) => (call, answer),
            Err(error) => (call.and(Err(error)), Value::Null),
        }
    }

    fn must_be_right(&self, pod: &Pod, result: &Value) -> Result<()> {
        let Pod { name, mac, addresses, .. } = pod;
        let address =
            result["ips"][0]["address"].as_str().and_then(|text| text.parse::<IpNet>().ok());
        let is_right = match self.network {
            Some(network) => address.is_some_and(|address| network.contains(&address)),
            None => {
                let mut interfaces = result["interfaces"].as_array().into_iter().flatten();
                address == Some(addresses[0])
                    && interfaces.any(|interface| interface["mac"] == *mac)
            }
        };
        ensure!(is_right, "not the network of {name} with {} and {mac}: {result}", addresses[0]);
        Ok(())
    }
}
