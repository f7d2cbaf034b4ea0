//! The sections of the demo, in order: each does something real and shows it.

use std::{
    env,
    io::{self, Read as _},
    slice,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{Census, Families, Lab, Node, Pod, Versions, eventually, executable, node};
use serde_json::Value;

use super::{
    pods,
    screen::{Paint, Screen, WIDTH, milliseconds},
    timeline::Timeline,
    view,
};
use crate::show;

/// Bytes of a TCP transfer.
const BULK: u64 = 8 << 20;
/// Bytes of a TCP transfer to a pod whose rate is limited: at 100 Mbit/s it takes a third of a
/// second.
const LIMITED_BULK: u64 = 4 << 20;

/// Shows all sections. With `keep`, the pods stay until standard input ends.
pub(crate) fn tell(screen: &mut Screen, keep: bool) -> Result<()> {
    let began = Instant::now();
    screen.line(
        Paint::STRONG.on("OVN-Kubernetes: how pods get their network, and how they lose it again"),
    )?;
    let lab = start(screen)?;
    let before = censuses(&lab)?;
    let pods = pods::plan(&lab);
    let results = add(screen, &lab, &pods)?;
    show_time(screen, &lab, &pods)?;
    show_databases(screen, &lab, &pods)?;
    send(screen, &lab, &pods)?;
    pods::visit_world(screen, &lab, &pods)?;
    check(screen, &lab, &pods, &results)?;
    let with_pods = censuses(&lab)?;
    let kept = if keep { stay(screen, &lab, &pods)? } else { Duration::ZERO };
    delete(screen, &lab, &pods)?;
    compare(screen, &lab.nodes, &[before, with_pods, censuses(&lab)?])?;
    let took = milliseconds(began.elapsed().saturating_sub(kept));
    screen.line(format!("\n  {}", Paint::GOOD.on(format!("Everything worked, in {took}."))))?;
    if !keep {
        let hint = "`make demo KEEP=1` leaves the pods there to look around.";
        screen.line(format!("  {}", Paint::FAINT.on(hint)))?;
    }
    Ok(())
}

fn start(screen: &mut Screen) -> Result<Lab> {
    screen.section(
        "Two nodes",
        "Each has a real Open vSwitch, OVN's agent and this project's node server, in\nnamespaces of its own.",
    )?;
    let Versions { open_vswitch, ovn } = Versions::installed()?;
    let lab = screen.step(
        &format!("Open vSwitch {open_vswitch} and OVN {ovn} run, and a tunnel joins the nodes"),
        || Lab::of_nodes(2).families(Families::Dual).world().build(),
    )?;
    lab.route_to_hosts()?;
    for node in &lab.nodes {
        node.configure_server(&node.subnets)?;
        let what = format!("ovnkube --init-node {} --pod-manifests {}", node.name, node::MANIFESTS);
        screen.step(&what, || {
            node.start_server()?;
            // The server writes its configuration after it has started to listen.
            eventually("it is written", Duration::from_secs(5), || {
                node.configured_runtime().map(drop)
            })
        })?;
    }
    Ok(lab)
}

fn add(screen: &mut Screen, lab: &Lab, pods: &[Pod]) -> Result<Vec<Value>> {
    screen.section(
        "Three pods get their network (ADD)",
        "A container runtime calls the plugin once per pod: the pod's identity comes in\n\
         the environment, the network's configuration on standard input.",
    )?;
    screen.step("the control plane chose addresses and made logical ports", || {
        lab.add_ports(pods)?;
        pods.iter().try_for_each(|pod| lab.node_of(pod).write_manifest(pod))
    })?;
    screen.step("the runtime made an empty network namespace for each pod", || {
        pods.iter().try_for_each(|pod| lab.node_of(pod).add_namespaces(slice::from_ref(pod)))
    })?;
    let mut results = Vec::new();
    for pod in pods {
        let runtime = lab.node_of(pod).configured_runtime()?;
        if results.is_empty() {
            screen.lines(pods::shown(&runtime, pod))?;
        }
        let result = screen.step(&name("ADD", pod), || runtime.add(pod)?.success())?;
        screen.lines(pods::result(pod, &result)?)?;
        results.push(result);
    }
    Ok(results)
}

fn show_time(screen: &mut Screen, lab: &Lab, pods: &[Pod]) -> Result<()> {
    let unoptimised = cfg!(debug_assertions) && env::var_os(executable::BIN_DIR).is_none();
    let build = "\n(This build is unoptimised; `make bench` measures an optimised one.)";
    let build = if unoptimised { build } else { "" };
    screen.section(
        "Where the time of each ADD went",
        &format!("The stages as the plugin reported them; some run at the same time.{build}"),
    )?;
    let timelines = pods.iter().map(|pod| timeline_of(lab.node_of(pod), pod));
    let timelines = timelines.collect::<Result<Vec<Timeline>>>()?;
    let scale = timelines.iter().map(Timeline::end).fold(f64::MIN_POSITIVE, f64::max);
    for (pod, timeline) in pods.iter().zip(&timelines) {
        let (title, node) = (pod.to_string(), format!(" on {}", pod.node));
        let width = WIDTH - 2 - title.len() - node.len();
        let total = Paint::STRONG.on(format!("{:.1} ms", timeline.total));
        screen.line(format!(
            "  {}{}{total:>width$}",
            Paint::POD.on(title),
            Paint::FAINT.on(node)
        ))?;
        screen.lines(timeline.bars(scale))?;
    }
    screen.line(Timeline::axis(scale))
}

fn show_databases(screen: &mut Screen, lab: &Lab, pods: &[Pod]) -> Result<()> {
    screen.section(
        "What OVN is asked for",
        "OVN's northbound database has a logical switch for each node, and a router\nbetween them.",
    )?;
    screen.lines(view::logical(&lab.central, pods)?)?;
    screen.section(
        "What Open vSwitch made of it",
        "Each node's switch br-int and the numbers of its ports: pods, and the tunnel to\n\
         the other node.",
    )?;
    lab.nodes.iter().try_for_each(|node| screen.lines(view::switch(node, pods)?))
}

fn send(screen: &mut Screen, lab: &Lab, [front, cart, stock]: &[Pod; 3]) -> Result<()> {
    screen.section(
        "Packets",
        "Round trips and checksummed bytes, through switches that run in user space.",
    )?;
    screen.line(pods::packets_head(BULK))?;
    pods::exchange(screen, lab, [front, cart], BULK)?;
    pods::exchange(screen, lab, [cart, stock], BULK)?;
    let (limit, annotation) = (pods::LIMIT_MEGABITS, pods::LIMIT_ANNOTATION);
    let limited = format!("{} may receive {limit} Mbit/s (annotation {annotation}):", front.name);
    screen.line(format!("\n  {}", Paint::FAINT.on(limited)))?;
    screen.line(pods::packets_head(LIMITED_BULK))?;
    for rate in pods::exchange(screen, lab, [stock, front], LIMITED_BULK)? {
        // The token bucket of a queue lets a burst pass at first: 20 percent of tolerance.
        let is_limited = rate <= f64::from(limit) * 1.2;
        ensure!(
            is_limited,
            "{rate:.0} Mbit/s were received; has this kernel no HTB (module sch_htb)?"
        );
    }
    Ok(())
}

fn check(screen: &mut Screen, lab: &Lab, pods: &[Pod], results: &[Value]) -> Result<()> {
    screen.section(
        "CHECK and STATUS",
        "Does each pod still have what ADD gave it, and could another ADD succeed on its\nnode?",
    )?;
    for (pod, result) in pods.iter().zip(results) {
        let runtime = lab.node_of(pod).configured_runtime()?;
        screen.step(&name("CHECK", pod), || runtime.check(pod, result)?.success())?;
    }
    for node in &lab.nodes {
        screen.step(&format!("STATUS of {}", node.name), || node.runtime().status()?.success())?;
    }
    Ok(())
}

/// Keeps the pods until the user goes on, and says how to look around. Returns how long that took.
fn stay(screen: &mut Screen, lab: &Lab, pods: &[Pod]) -> Result<Duration> {
    let began = Instant::now();
    screen.section(
        "Your turn",
        "The pods stay until standard input ends: Ctrl-D goes on with DEL, Ctrl-C ends all\nat once.",
    )?;
    screen.lines(show::ways_in(lab, pods).into_iter().map(|line| format!("  {line}")))?;
    io::stdin().lock().read_to_end(&mut Vec::new()).context("standard input")?;
    Ok(began.elapsed())
}

fn delete(screen: &mut Screen, lab: &Lab, pods: &[Pod]) -> Result<()> {
    screen.section(
        "The pods lose their network (DEL)",
        "The runtime calls the plugin again, then removes the namespaces that it made.",
    )?;
    for pod in pods {
        let runtime = lab.node_of(pod).configured_runtime()?;
        screen.step(&name("DEL", pod), || runtime.del(pod)?.success())?;
    }
    screen.step("the runtime and the control plane took back what was theirs", || {
        lab.remove_pods(pods)?;
        lab.central.sync()
    })
}

fn compare(screen: &mut Screen, nodes: &[Node], censuses: &[Vec<Census>; 3]) -> Result<()> {
    screen.section(
        "Nothing is left",
        "What is on each node: before the pods came, with them, and after DEL.",
    )?;
    screen.lines(view::counts(nodes, censuses))?;
    screen.line("")?;
    let [before, _, after] = censuses;
    for (node, (before, after)) in nodes.iter().zip(before.iter().zip(after)) {
        let what = format!("{} is exactly as it was before the pods", node.name);
        before.must_equal(after).context(what.clone())?;
        screen.tick(what)?;
    }
    Ok(())
}

/// `ADD shop/front on node1`
fn name(verb: &str, pod: &Pod) -> String {
    format!("{verb} {pod} on {}", pod.node)
}

/// Waits for the report: the plugin sends it after its result, and the server writes its log in the
/// background.
fn timeline_of(node: &Node, pod: &Pod) -> Result<Timeline> {
    eventually("the plugin's report in the server's log", Duration::from_secs(2), || {
        Timeline::find(&node.server_log()?, &pod.sandbox)
    })
}

fn censuses(lab: &Lab) -> Result<Vec<Census>> {
    lab.nodes.iter().map(Node::census).collect()
}
