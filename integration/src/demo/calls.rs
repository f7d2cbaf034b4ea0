//! Calls of the plugin as a container runtime makes them, and their results.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use integration::{CniError, Node, Outcome, Pod, Runtime, eventually, executable, runtime};
use serde_json::Value;

use super::{
    cast::title,
    line::{Line, Paint},
    screen::Screen,
};

/// The CNI configuration, which the node server writes as soon as it listens.
const CONFLIST: &str = "/etc/cni/net.d/10-ovn-kubernetes.conflist";

/// A runtime that uses the configuration that the node server wrote.
pub(crate) fn runtime_of(node: &Node) -> Result<Runtime<'_>> {
    // The server writes the file after it has started to listen, and the demo may be faster.
    let text =
        eventually(CONFLIST, Duration::from_secs(5), || Ok(std::fs::read_to_string(node.path(CONFLIST))?))?;
    let list: Value = serde_json::from_str(&text).context(CONFLIST)?;
    let mut runtime = node.runtime();
    runtime.config = plugin_config(&list).with_context(|| format!("{CONFLIST} has no plugin"))?;
    Ok(runtime)
}

/// The plugin's part of a list, with the keys that a runtime adds (CNI specification, section 3).
fn plugin_config(list: &Value) -> Option<Value> {
    let mut config = list["plugins"].get(0)?.clone();
    config["cniVersion"] = list["cniVersion"].clone();
    config["name"] = list["name"].clone();
    Some(config)
}

/// Makes one call and shows it as one step.
pub(crate) fn call(screen: &mut Screen, what: &str, call: impl FnOnce() -> Result<Outcome>) -> Result<Value> {
    screen.timed_step(what, || {
        let outcome = call()?;
        match (outcome.success(), outcome.failure()) {
            (Ok(result), _) => Ok((result, outcome.duration)),
            (Err(_), Ok(CniError { code, msg, details })) => bail!("CNI error {code}: {msg}\n{details}"),
            (Err(error), Err(_)) => Err(error),
        }
    })
}

/// The environment and the input with which the runtime adds `pod`.
pub(crate) fn shown(runtime: &Runtime<'_>, pod: &Pod) -> Vec<Line> {
    let name = |line: Line, name: &str| line.add(Paint::Faint, format!("{name}="));
    let first = name(Line::default().to(4), "CNI_COMMAND").text("ADD ");
    let first = name(first, "CNI_CONTAINERID").text(format!("{}… ", &pod.sandbox[..12]));
    let second = name(Line::default().to(4), "CNI_NETNS").text(format!("{} ", pod.netns.display()));
    let second = name(second, "CNI_IFNAME").text(runtime.ifname.clone());
    let arguments = runtime::cni_args(pod);
    // The UID and the container ID are too long for a line; the container ID is shown above.
    let short: Vec<&str> = arguments.split(';').filter(|argument| argument.len() < 40).collect();
    let third = name(Line::default().to(4), "CNI_ARGS").text(format!("{};…", short.join(";")));
    let input = ["cniVersion", "name"].map(|key| format!("\"{key}\":{}", runtime.config[key])).join(",");
    let command = Line::default().to(4).add(Paint::Strong, format!("/opt/cni/bin/{}", executable::PLUGIN));
    let input = Line::default().to(4).add(Paint::Faint, "<<< ").text(format!("{{{input},…}}"));
    vec![Line::default(), first, second, third, command, input, Line::default()]
}

/// The result of an ADD in readable form.
pub(crate) fn result(pod: &Pod, result: &Value) -> Result<Vec<Line>> {
    let text = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    let interfaces = result["interfaces"].as_array().context("the result has no interfaces")?;
    let inside = interfaces
        .iter()
        .find(|interface| interface["sandbox"].as_str().is_some_and(|sandbox| !sandbox.is_empty()));
    let outside =
        interfaces.iter().find(|interface| interface["sandbox"].as_str().unwrap_or_default().is_empty());
    let inside = inside.context("the result has no interface in the pod")?;
    let pair = Line::default().to(6).add(Paint::Pod, text(&inside["name"])).to(12).text(text(&inside["mac"]));
    let pair = pair
        .to(34)
        .add(Paint::Faint, format!("on {}  ", pod.node))
        .text(outside.map_or("none".into(), |it| text(&it["name"])));
    let addresses = result["ips"].as_array().context("the result has no addresses")?.iter().map(|ip| {
        let line = Line::default().to(12).add(Paint::Pod, text(&ip["address"]));
        line.to(34).add(Paint::Faint, "gateway ").text(text(&ip["gateway"]))
    });
    Ok(std::iter::once(pair).chain(addresses).collect())
}

/// `ADD shop/front on node1`
pub(crate) fn name(verb: &str, pod: &Pod) -> String {
    format!("{verb} {} on {}", title(pod), pod.node)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_plugin_gets_name_and_version_of_its_list() {
        let list = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "a", "logLevel": "4"}, {"type": "b"}]});
        assert_eq!(
            plugin_config(&list).unwrap(),
            json!({"cniVersion": "1.0.0", "name": "net", "type": "a", "logLevel": "4"})
        );
        assert!(plugin_config(&json!({"plugins": []})).is_none());
    }
}
