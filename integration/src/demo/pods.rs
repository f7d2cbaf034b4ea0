//! The pods of the demo: their state before the runtime calls the plugin, its calls as a container
//! runtime makes them, and their packets.

use std::{
    net::IpAddr,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use integration::{Lab, Pod, Runtime, executable, runtime, traffic::End, world::Machine};
use ipnet::IpNet;
use serde_json::Value;

use super::screen::{Paint, Screen};

/// The port of the world's server.
const WEB: u16 = 80;
/// Kubernetes namespace of the pods.
const NAMESPACE: &str = "shop";
/// Each pod with the index of its node.
const PODS: [(&str, usize); 3] = [(LIMITED, 0), ("cart", 0), ("stock", 1)];
/// The pod whose ingress rate is limited, the annotation that says so, and its value.
const LIMITED: &str = "front";
pub(crate) const LIMIT_ANNOTATION: &str = "kubernetes.io/ingress-bandwidth";
pub(crate) const LIMIT_MEGABITS: u32 = 100;

/// Plans the pods; nothing is created yet.
pub(crate) fn plan(lab: &Lab) -> [Pod; 3] {
    PODS.map(|(name, node)| {
        let mut pod = lab.plan_pod(&lab.nodes[node]);
        (pod.namespace, pod.name) = (NAMESPACE.to_owned(), name.to_owned());
        pod.netns = Path::new("/var/run/netns").join(name);
        if name == LIMITED {
            pod.annotations.push((LIMIT_ANNOTATION.to_owned(), format!("{LIMIT_MEGABITS}M")));
        }
        pod
    })
}

/// The environment and the input with which the runtime adds `pod`.
pub(crate) fn shown(runtime: &Runtime<'_>, pod: &Pod) -> [String; 7] {
    let set = |name: &str, value: &str| format!("{}{value} ", Paint::FAINT.on(format!("{name}=")));
    let arguments = runtime::cni_args(pod);
    // The UID and the container ID are too long for a line; the container ID is shown above.
    let short: Vec<&str> = arguments.split(';').filter(|argument| argument.len() < 40).collect();
    let input =
        ["cniVersion", "name"].map(|key| format!("\"{key}\":{}", runtime.config[key])).join(",");
    let lines = [
        String::new(),
        set("CNI_COMMAND", "ADD") + &set("CNI_CONTAINERID", &format!("{}…", &pod.sandbox[..12])),
        set("CNI_NETNS", &pod.netns.to_string_lossy()) + &set("CNI_IFNAME", &runtime.ifname),
        set("CNI_ARGS", &format!("{};…", short.join(";"))),
        Paint::STRONG.on(format!("/opt/cni/bin/{}", executable::PLUGIN)).to_string(),
        format!("{}{{{input},…}}", Paint::FAINT.on("<<< ")),
        String::new(),
    ];
    lines.map(|line| format!("    {line}"))
}

/// The result of an ADD in readable form.
pub(crate) fn result(pod: &Pod, result: &Value) -> Result<Vec<String>> {
    let text = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    let interfaces = result["interfaces"].as_array().context("the result has no interfaces")?;
    let is_in_pod =
        |interface: &&Value| !interface["sandbox"].as_str().unwrap_or_default().is_empty();
    let inside =
        interfaces.iter().find(is_in_pod).context("the result has no interface in the pod")?;
    let outside = interfaces.iter().find(|interface| !is_in_pod(interface)).unwrap_or(&Value::Null);
    let (name, on_node) =
        (Paint::POD.on(text(&inside["name"])), Paint::FAINT.on(format!("on {}  ", pod.node)));
    let mut lines = vec![format!(
        "      {name:<6}{:<22}{on_node}{}",
        text(&inside["mac"]),
        text(&outside["name"])
    )];
    for ip in result["ips"].as_array().context("the result has no addresses")? {
        let (address, gateway) = (Paint::POD.on(text(&ip["address"])), Paint::FAINT.on("gateway "));
        lines.push(format!("            {address:<22}{gateway}{}", text(&ip["gateway"])));
    }
    Ok(lines)
}

/// The head of the table of packets.
pub(crate) fn packets_head(bytes: u64) -> String {
    let tcp = format!("TCP, {} MiB", bytes >> 20);
    Paint::FAINT
        .on(format!(
            "    {:<8}{:<8}{:<19}{:<16}{:>9}{tcp:>16}",
            "from", "to", "address", "path", "ping"
        ))
        .to_string()
}

/// Ping and TCP from one pod to every address of another, with a line for each. Returns the rates
/// in Mbit/s.
pub(crate) fn exchange(
    screen: &mut Screen,
    lab: &Lab,
    [from, to]: [&Pod; 2],
    bytes: u64,
) -> Result<Vec<f64>> {
    let (here, there) = (&from.node, &to.node);
    let path = if here == there { format!("inside {here}") } else { format!("{here} → {there}") };
    let mut rates = Vec::new();
    for address in to.addresses.iter().map(IpNet::addr) {
        let what = format!("{} sends to {} at {address}", from.name, to.name);
        screen.working_on(&what)?;
        let (ping, megabits) = measure(lab, from, to, address, bytes).context(what)?;
        let [from, to] = [from, to].map(|pod| Paint::POD.on(&pod.name));
        let (path, ping) = (Paint::FAINT.on(&path), format!("{ping:.2} ms"));
        screen.tick(format!(
            "{from:<8}{to:<8}{address:<19}{path:<16}{ping:>9}{:>16}",
            rate(megabits)
        ))?;
        rates.push(megabits);
    }
    Ok(rates)
}

/// The average round-trip time in milliseconds, and the rate in Mbit/s.
fn measure(lab: &Lab, from: &Pod, to: &Pod, address: IpAddr, bytes: u64) -> Result<(f64, f64)> {
    // Warm-up: the first packet waits for address resolution.
    lab.ping(from, address)?;
    let words = format!("ping -n -q -c 10 -i 0.01 -W 1 {address}");
    let report = lab.node_of(from).run_in_pod(from, words.split(' '))?;
    let ping = average(&report)
        .with_context(|| format!("ping does not say what it measured:\n{report}"))?;
    let began = Instant::now();
    lab.tcp_to(from, to, address, bytes)?;
    #[expect(clippy::cast_precision_loss, reason = "a rate of three digits")]
    let megabits = bytes as f64 * 8.0 / 1e6 / began.elapsed().as_secs_f64();
    Ok((ping, megabits))
}

/// The average in a line such as `rtt min/avg/max/mdev = 0.498/0.558/0.621/0.050 ms`.
fn average(report: &str) -> Option<f64> {
    let (_, numbers) = report.lines().find(|line| line.contains("min/avg/max"))?.split_once('=')?;
    numbers.split('/').nth(1)?.trim().parse().ok()
}

fn rate(megabits: f64) -> String {
    if megabits < 1000.0 {
        format!("{megabits:.0} Mbit/s")
    } else {
        format!("{:.1} Gbit/s", megabits / 1000.0)
    }
}

/// Each pod connects to a server of the world, in each family, with a line for each.
pub(crate) fn visit_world(screen: &mut Screen, lab: &Lab, pods: &[Pod]) -> Result<()> {
    screen.section(
        "The world outside",
        "A server behind a router, which knows no way to pods. It tells whose connection\n\
         it sees: the node's, which sends the answers back to the pod.",
    )?;
    let (_server, web) = lab.mirroring_outside(Machine::Web, WEB)?;
    screen.line(Paint::FAINT.on(format!("    {:<8}{:<24}seen as", "from", "to")))?;
    for pod in pods {
        let what = format!("{} connects to the world", pod.name);
        screen.working_on(&what)?;
        let node = lab.world().of_node(lab.node_of(pod));
        let expected: Vec<_> = web.iter().copied().zip(node).collect();
        // The first packets wait for address resolution.
        lab.answers(&what, &End::Pod(pod), &expected, Duration::from_secs(10))?;
        for (to, seen) in expected {
            screen.tick(format!("{:<8}{:<24}{seen}", Paint::POD.on(&pod.name), to.to_string()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_of_a_ping_is_read_and_rates_are_short() {
        assert_eq!(
            average("5 received\nrtt min/avg/max/mdev = 0.498/0.558/0.621/0.050 ms\n"),
            Some(0.558)
        );
        assert_eq!(average("round-trip min/avg/max = 0.1/0.2/0.3 ms"), Some(0.2));
        assert_eq!(average("5 packets transmitted, 0 received"), None);
        assert_eq!([99.7, 1960.0].map(rate), ["100 Mbit/s", "2.0 Gbit/s"]);
    }
}
