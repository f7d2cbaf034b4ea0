//! The plugin as a contestant: called as a container runtime calls it, once per verb.

use std::{ffi::OsString, path::Path, process::ExitStatus};

use anyhow::{Context as _, Result, ensure};
use contract::paths::PLUGIN;
use serde_json::{Value, json};

use super::{
    exec::{self, Ended},
    floor::milliseconds,
    measurements::{Call, Verb},
    plan::PlannedPod,
};

/// Where the node has it.
const DIR: &str = "/opt/cni/bin";

/// What CHECK and DEL need to know of an ADD.
#[derive(Debug, Clone)]
pub(crate) struct Attached {
    pub(crate) sandbox: String,
    /// Its result, which the runtime hands back.
    result: Value,
}

/// ADD. The result is looked at after the clock has stopped.
pub(crate) fn add(pod: &PlannedPod, sandbox: &str) -> (Call, Option<Attached>) {
    let ended = call(Verb::Add, Some((pod, sandbox)), None);
    let mut attached = None;
    let call = judge(ended, |stdout| {
        let result: Value = serde_json::from_slice(stdout).context("the result is not JSON")?;
        must_describe(pod, &result)?;
        attached = Some(Attached { sandbox: sandbox.to_owned(), result });
        Ok(())
    });
    (call, attached)
}

/// DEL.
pub(crate) fn del(pod: &PlannedPod, attached: &Attached) -> Call {
    judge(call(Verb::Del, Some((pod, &attached.sandbox)), Some(&attached.result)), |_| Ok(()))
}

/// CHECK.
pub(crate) fn check(pod: &PlannedPod, attached: &Attached) -> Call {
    judge(call(Verb::Check, Some((pod, &attached.sandbox)), Some(&attached.result)), |_| Ok(()))
}

/// STATUS.
pub(crate) fn status() -> Call {
    judge(call(Verb::Status, None, None), |_| Ok(()))
}

/// VERSION.
pub(crate) fn version() -> Call {
    judge(call(Verb::Version, None, None), |stdout| {
        let answer: Value = serde_json::from_slice(stdout)?;
        ensure!(answer["supportedVersions"].is_array(), "no supportedVersions in {answer}");
        Ok(())
    })
}

/// `/bin/true`, started in the same way.
pub(crate) fn bin_true() -> Call {
    judge(exec::run(Path::new("/bin/true"), environment(Verb::Version, None), &config(None).to_string()), |_| Ok(()))
}

fn call(verb: Verb, subject: Option<(&PlannedPod, &str)>, prev_result: Option<&Value>) -> Result<Ended> {
    exec::run(&Path::new(DIR).join(PLUGIN), environment(verb, subject), &config(prev_result).to_string())
}

fn environment(verb: Verb, subject: Option<(&PlannedPod, &str)>) -> Vec<(&'static str, OsString)> {
    let mut variables =
        vec![("PATH", "/usr/sbin:/usr/bin:/sbin:/bin".into()), ("CNI_COMMAND", verb.to_string().into()), ("CNI_PATH", DIR.into())];
    if let Some((PlannedPod { namespace, name, uid, netns, .. }, sandbox)) = subject {
        let pod = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_INFRA_CONTAINER_ID={sandbox};K8S_POD_UID={uid}"
        );
        variables.extend([
            ("CNI_CONTAINERID", sandbox.into()),
            ("CNI_NETNS", netns.into()),
            ("CNI_IFNAME", "eth0".into()),
            ("CNI_ARGS", pod.into()),
        ]);
    }
    variables
}

fn config(prev_result: Option<&Value>) -> Value {
    let mut config = json!({"cniVersion": "1.1.0", "name": "ovn-kubernetes", "type": PLUGIN});
    if let Some(result) = prev_result {
        config["prevResult"] = result.clone();
    }
    config
}

fn must_describe(pod: &PlannedPod, result: &Value) -> Result<()> {
    let address = &result["ips"][0]["address"];
    ensure!(*address == pod.address.to_string(), "the result has address {address} instead of {}", pod.address);
    let interfaces = result["interfaces"].as_array().into_iter().flatten();
    ensure!(interfaces.clone().any(|interface| interface["mac"] == pod.mac), "no interface of the result has the pod's MAC {}", pod.mac);
    Ok(())
}

/// A call that ended as it should is one that counts.
fn judge(ended: Result<Ended>, verify: impl FnOnce(&[u8]) -> Result<()>) -> Call {
    let (duration, verdict) = match ended {
        Ok(Ended { status, stdout, duration }) => (milliseconds(duration), succeeded(status, &stdout).and_then(|()| verify(&stdout))),
        Err(error) => (0.0, Err(error)),
    };
    Call { duration, parts: Vec::new(), error: verdict.err().map(|error| format!("{error:#}")) }
}

fn succeeded(status: ExitStatus, stdout: &[u8]) -> Result<()> {
    ensure!(status.success(), "{status}: {}", String::from_utf8_lossy(stdout).trim());
    Ok(())
}
