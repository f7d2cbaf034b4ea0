//! `integration demo`: three pods on two nodes get their network and lose it again, shown to somebody who sees this for the first time.
//!
//! Everything shown is measured or asked for; nothing is known in advance but the pods' names.
//!
//! | file | what it is |
//! |---|---|
//! | `control` | the process with the terminal, the process with the lab, and what one tells the other |
//! | `screen`, `line`, `canvas` | sections and steps on standard output; a line in colours; boxes |
//! | `cast` | the pods, before the runtime calls the plugin |
//! | `calls` | the plugin's calls and answers |
//! | `timeline` | where the time of an ADD went |
//! | `rows` | OVSDB's JSON, for the two views |
//! | `logical` | the logical view, a tree |
//! | `switch`, `picture` | the Open vSwitch view: asked for, and drawn |
//! | `traffic` | ping and TCP between the pods |
//! | `leftovers` | what is on the nodes before and after |
//! | `keep` | how to look around |

mod calls;
mod canvas;
mod cast;
mod control;
mod keep;
mod leftovers;
mod line;
mod logical;
mod picture;
mod rows;
mod screen;
mod switch;
mod timeline;
mod traffic;

use std::{
    env, io,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use clap::Args;
use integration::{Census, Families, Lab, Node, Pod, eventually, executable, inside, node};
use serde_json::Value;

use control::Orders;
use line::{Line, Paint};
use screen::{Screen, milliseconds};
use timeline::Timeline;

/// Bytes of a TCP transfer.
const BULK: u64 = 16 << 20;
/// The same to a pod whose rate is limited.
const LIMITED_BULK: u64 = 4 << 20;

/// Show the whole path of three pods on two nodes: ADD, packets, CHECK, DEL, and nothing left.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Keep the pods until Ctrl-D, and say how to look around.
    #[arg(long)]
    keep: bool,
}

impl Demo {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        if !inside::is_inside() {
            return control::outside();
        }
        let orders = Orders::enter()?;
        let mut screen = Screen::open();
        match self.show(&mut screen, &orders) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            // Nobody reads on.
            Err(error) if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) => {
                Ok(ExitCode::FAILURE)
            }
            Err(error) => Err(error),
        }
    }

    fn show(&self, screen: &mut Screen, orders: &Orders) -> Result<()> {
        let began = Instant::now();
        let lab = start(screen)?;
        let nodes = [&lab.nodes[0], &lab.nodes[1]];
        let before = censuses(nodes)?;
        let pods = cast::plan(&lab);
        prepare(screen, &lab, &pods)?;
        let results = add(screen, &lab, &pods)?;
        show_time(screen, &lab, &pods)?;
        show_views(screen, &lab, &pods)?;
        send(screen, &lab, &pods)?;
        check(screen, &lab, &pods, &results)?;
        let with_pods = censuses(nodes)?;
        let mut kept = Duration::ZERO;
        if self.keep {
            let began = Instant::now();
            keep(screen, &lab, &pods, orders)?;
            kept = began.elapsed();
        }
        delete(screen, &lab, &pods)?;
        compare(screen, &lab, nodes, [before, with_pods])?;
        let took = milliseconds(began.elapsed().saturating_sub(kept));
        screen.lines([Line::default(), Line::default().to(2).add(Paint::Good, format!("Everything worked, in {took}."))])?;
        screen.explain("make demo KEEP=1 leaves the pods open to look around; make test proves much more.")
    }
}

fn start(screen: &mut Screen) -> Result<Lab> {
    screen.line(Line::default().add(Paint::Strong, "Three pods on two nodes: how they get their network, and how they lose it again"))?;
    screen.section(
        "Two nodes",
        "Each node has namespaces of its own for its network and files, a real Open vSwitch, OVN's agent, and the node server of this \
         project (ovnkube). This machine's own network and services are not touched, and all of it ends with this command.",
    )?;
    let lab =
        screen.step("Open vSwitch and OVN run on two nodes, joined by a tunnel", || Lab::of_nodes(2).families(Families::Dual).build())?;
    for node in &lab.nodes {
        screen.step(&format!("ovnkube --init-node {0} --pod-manifests {1}", node.name, node::MANIFESTS), || {
            node.start_server()?;
            calls::runtime_of(node).map(drop)
        })?;
    }
    for node in &lab.nodes {
        calls::call(screen, &format!("STATUS on {}: an ADD could succeed now", node.name), || node.runtime().status())?;
    }
    Ok(lab)
}

fn prepare(screen: &mut Screen, lab: &Lab, pods: &[Pod]) -> Result<()> {
    screen.section(
        "Three pods get their network (ADD)",
        "A container runtime calls the plugin once for each pod: who the pod is comes in the environment, the network's configuration on \
         standard input. The answer says what the pod has now.",
    )?;
    screen.step("the control plane chose addresses and made logical ports", || cast::declare(lab, pods))?;
    screen.step("the runtime made an empty network namespace for each pod", || cast::make_sandboxes(lab, pods))
}

fn add(screen: &mut Screen, lab: &Lab, pods: &[Pod]) -> Result<Vec<Value>> {
    let mut results = Vec::new();
    for pod in pods {
        let runtime = calls::runtime_of(lab.node_of(pod))?;
        if results.is_empty() {
            screen.line(Line::default())?;
            screen.lines(calls::shown(&runtime, pod))?;
            screen.line(Line::default())?;
        }
        let result = calls::call(screen, &calls::name("ADD", pod), || runtime.add(pod))?;
        screen.lines(calls::result(pod, &result)?)?;
        results.push(result);
    }
    Ok(results)
}

fn show_time(screen: &mut Screen, lab: &Lab, pods: &[Pod]) -> Result<()> {
    let unoptimised = cfg!(debug_assertions) && env::var_os(executable::BIN_DIR).is_none();
    let build = if unoptimised { " This is an unoptimised build; make bench measures an optimised one." } else { "" };
    screen.section(
        "Where the time of each ADD went",
        &format!("The stages of each call, as the plugin reported them to the node server; some run at the same time.{build}"),
    )?;
    let timelines = pods.iter().map(|pod| timeline_of(lab.node_of(pod), pod)).collect::<Result<Vec<_>>>()?;
    let scale = timelines.iter().map(Timeline::end).fold(f64::MIN_POSITIVE, f64::max);
    for (pod, timeline) in pods.iter().zip(&timelines) {
        let line = Line::default().to(2).add(Paint::Pod, cast::title(pod)).add(Paint::Faint, format!(" on {}", pod.node));
        screen.line(line.right(screen::WIDTH, Paint::Strong, format!("{:.1}", timeline.total)))?;
        screen.lines(timeline.bars(scale))?;
    }
    screen.line(Timeline::axis(scale))
}

/// The report comes after the result, and the log is written in the background.
fn timeline_of(node: &Node, pod: &Pod) -> Result<Timeline> {
    let file = node.path("/var/log/openvswitch/ovnkube.log");
    eventually("the plugin's report in the server's log", Duration::from_secs(2), || {
        let log = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        Timeline::find(&log, &cast::title(pod), &pod.sandbox)
    })
}

fn show_views(screen: &mut Screen, lab: &Lab, pods: &[Pod]) -> Result<()> {
    screen.section(
        "What OVN is asked for",
        "The logical network, from OVN's northbound database: one switch per node, one router between them.",
    )?;
    screen.lines(logical::tree(&lab.central)?)?;
    screen.section(
        "What Open vSwitch made of it",
        "Each node's switch br-int, its ports with their numbers, the pods behind them, and the tunnel that carries their packets to the \
         other node.",
    )?;
    let nodes = lab.nodes.iter().map(|node| switch::view(node, pods)).collect::<Result<Vec<_>>>()?;
    screen.lines(picture::draw(&nodes, 2))
}

fn send(screen: &mut Screen, lab: &Lab, pods: &[Pod]) -> Result<()> {
    screen.section(
        "Packets",
        "Round trips, and bytes that arrive with the right checksum, in IPv4 and IPv6. The switches run in user space, on this \
         machine's CPUs: the rates say that it works, not how fast it can be.",
    )?;
    screen.line(traffic::head(BULK))?;
    let [front, cart, stock] = pods else { anyhow::bail!("three pods") };
    traffic::exchange(screen, lab, front, cart, BULK)?;
    traffic::exchange(screen, lab, cart, stock, BULK)?;
    screen.line(Line::default())?;
    screen.explain(&format!(
        "{} has the annotation kubernetes.io/ingress-bandwidth: {}, and receives no more than that:",
        front.name,
        cast::LIMIT
    ))?;
    screen.line(traffic::head(LIMITED_BULK))?;
    traffic::exchange(screen, lab, stock, front, LIMITED_BULK)
}

fn check(screen: &mut Screen, lab: &Lab, pods: &[Pod], results: &[Value]) -> Result<()> {
    screen.section(
        "CHECK and STATUS",
        "A runtime may ask whether a pod still has what ADD gave it, and whether the node can take more pods.",
    )?;
    for (pod, result) in pods.iter().zip(results) {
        let runtime = calls::runtime_of(lab.node_of(pod))?;
        calls::call(screen, &calls::name("CHECK", pod), || runtime.check(pod, result))?;
    }
    for node in &lab.nodes {
        calls::call(screen, &format!("STATUS on {}", node.name), || node.runtime().status())?;
    }
    Ok(())
}

fn keep(screen: &mut Screen, lab: &Lab, pods: &[Pod], orders: &Orders) -> Result<()> {
    screen.section("Your turn", "The pods stay until standard input ends (Ctrl-D): then DEL follows. Ctrl-C ends everything at once.")?;
    screen.lines(keep::hints(lab, pods))?;
    orders.wait()
}

fn delete(screen: &mut Screen, lab: &Lab, pods: &[Pod]) -> Result<()> {
    screen.section("The pods lose their network (DEL)", "The runtime calls the plugin again, then removes the namespaces that it made.")?;
    for pod in pods {
        let runtime = calls::runtime_of(lab.node_of(pod))?;
        calls::call(screen, &calls::name("DEL", pod), || runtime.del(pod))?;
    }
    screen.step("the runtime and the control plane took back what was theirs", || cast::withdraw(lab, pods))
}

fn censuses(nodes: [&Node; 2]) -> Result<[Census; 2]> {
    Ok([nodes[0].census()?, nodes[1].census()?])
}

fn compare(screen: &mut Screen, lab: &Lab, nodes: [&Node; 2], [before, with_pods]: [[Census; 2]; 2]) -> Result<()> {
    screen.section("Nothing is left", "What was on each node before there were pods, with them, and after DEL.")?;
    lab.central.sync()?;
    let after = censuses(nodes)?;
    let node = |index: usize| (nodes[index].name.as_str(), [&before[index], &with_pods[index], &after[index]]);
    screen.lines(leftovers::table([node(0), node(1)]))?;
    screen.line(Line::default())?;
    for ((node, before), after) in nodes.iter().zip(&before).zip(&after) {
        screen.step(&format!("{} is exactly as it was before the pods", node.name), || before.must_equal(after))?;
    }
    Ok(())
}
