//! The sections of the demo, in order: each does something real and shows it.

use std::{
    env,
    io::{self, Read as _},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use integration::{Census, Families, Lab, Node, Pod, Versions, central, eventually, executable, node};
use serde_json::Value;

use super::{
    pods::{self, call, title},
    screen::{Paint, Screen, WIDTH, milliseconds, tick},
    timeline::Timeline,
    view,
};

/// Bytes of a TCP transfer.
const BULK: u64 = 8 << 20;
/// Bytes of a TCP transfer to a pod whose rate is limited: at 100 Mbit/s it takes a third of a second.
const LIMITED_BULK: u64 = 4 << 20;

/// Shows all sections. With `keep`, the pods stay until standard input ends.
pub(crate) fn tell(screen: &mut Screen, keep: bool) -> Result<()> {
    let began = Instant::now();
    screen
        .line(Paint::STRONG.on("OVN-Kubernetes: how pods get their network, and how they lose it again"))?;
    let lab = start(screen)?;
    let before = censuses(&lab)?;
    let pods = pods::plan(&lab);
    let mut story = Story { screen, lab: &lab, pods: &pods };
    let results = story.add()?;
    story.show_time()?;
    story.show_databases()?;
    story.send()?;
    story.reach_world()?;
    story.check(&results)?;
    let with_pods = censuses(&lab)?;
    let kept = if keep { story.keep()? } else { Duration::ZERO };
    story.delete()?;
    story.compare([before, with_pods, censuses(&lab)?])?;
    let took = milliseconds(began.elapsed().saturating_sub(kept));
    screen.line("")?;
    screen.line(format!("  {}", Paint::GOOD.on(format!("Everything worked, in {took}."))))?;
    if !keep {
        screen.line(format!(
            "  {}",
            Paint::FAINT.on("`make demo KEEP=1` leaves the pods there to look around.")
        ))?;
    }
    Ok(())
}

struct Story<'a> {
    screen: &'a mut Screen,
    lab: &'a Lab,
    pods: &'a [Pod],
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
    pods::lead_to_hosts(&lab)?;
    for node in &lab.nodes {
        pods::tell_subnets(node);
        let what = format!("ovnkube --init-node {} --pod-manifests {}", node.name, node::MANIFESTS);
        screen.step(&what, || {
            node.start_server()?;
            pods::runtime_of(node).map(drop)
        })?;
    }
    Ok(lab)
}

impl Story<'_> {
    fn add(&mut self) -> Result<Vec<Value>> {
        let Self { screen, lab, pods } = self;
        screen.section(
            "Three pods get their network (ADD)",
            "A container runtime calls the plugin once per pod: the pod's identity comes in\n\
             the environment, the network's configuration on standard input.",
        )?;
        screen
            .step("the control plane chose addresses and made logical ports", || pods::declare(lab, pods))?;
        screen.step("the runtime made an empty network namespace for each pod", || {
            pods::make_sandboxes(lab, pods)
        })?;
        let mut results = Vec::new();
        for pod in *pods {
            let runtime = pods::runtime_of(lab.node_of(pod))?;
            if results.is_empty() {
                screen.lines(pods::shown(&runtime, pod))?;
            }
            let result = call(screen, &name("ADD", pod), || runtime.add(pod))?;
            screen.lines(pods::result(pod, &result)?)?;
            results.push(result);
        }
        Ok(results)
    }

    fn show_time(&mut self) -> Result<()> {
        let unoptimised = cfg!(debug_assertions) && env::var_os(executable::BIN_DIR).is_none();
        let build = "\n(This build is unoptimised; `make bench` measures an optimised one.)";
        let build = if unoptimised { build } else { "" };
        self.screen.section(
            "Where the time of each ADD went",
            &format!("The stages as the plugin reported them; some run at the same time.{build}"),
        )?;
        let timelines: Vec<Timeline> =
            self.pods.iter().map(|pod| timeline_of(self.lab.node_of(pod), pod)).collect::<Result<_>>()?;
        let scale = timelines.iter().map(Timeline::end).fold(f64::MIN_POSITIVE, f64::max);
        for (pod, timeline) in self.pods.iter().zip(&timelines) {
            let (title, node) = (title(pod), format!(" on {}", pod.node));
            let total = format!("{:.1} ms", timeline.total);
            let total = format!("{total:>0$}", WIDTH - 2 - title.len() - node.len());
            let (title, node) = (Paint::POD.on(title), Paint::FAINT.on(node));
            self.screen.line(format!("  {title}{node}{}", Paint::STRONG.on(total)))?;
            self.screen.lines(timeline.bars(scale))?;
        }
        self.screen.line(Timeline::axis(scale))
    }

    fn show_databases(&mut self) -> Result<()> {
        self.screen.section(
            "What OVN is asked for",
            "OVN's northbound database has a logical switch for each node, and a router\nbetween them.",
        )?;
        self.screen.lines(view::logical(&self.lab.central, self.pods)?)?;
        self.screen.section(
            "What Open vSwitch made of it",
            "Each node's switch br-int and the numbers of its ports: pods, and the tunnel to\n\
             the other node.",
        )?;
        self.lab.nodes.iter().try_for_each(|node| self.screen.lines(view::switch(node, self.pods)?))
    }

    fn send(&mut self) -> Result<()> {
        let Self { screen, lab, pods } = self;
        let [front, cart, stock] = pods else { bail!("three pods") };
        screen.section(
            "Packets",
            "Round trips and checksummed bytes, through switches that run in user space.",
        )?;
        screen.line(pods::packets_head(BULK))?;
        pods::exchange(screen, lab, [front, cart], BULK)?;
        pods::exchange(screen, lab, [cart, stock], BULK)?;
        let (limit, annotation) = (pods::LIMIT_MEGABITS, pods::LIMIT_ANNOTATION);
        let limited = format!("{} may receive {limit} Mbit/s (annotation {annotation}):", front.name);
        screen.lines([String::new(), format!("  {}", Paint::FAINT.on(limited))])?;
        screen.line(pods::packets_head(LIMITED_BULK))?;
        for rate in pods::exchange(screen, lab, [stock, front], LIMITED_BULK)? {
            // The token bucket of a queue lets a burst pass at first: 20 percent of tolerance.
            if rate > f64::from(limit) * 1.2 {
                bail!("{} received {rate:.0} Mbit/s; has this kernel no HTB (module sch_htb)?", front.name);
            }
        }
        Ok(())
    }

    fn reach_world(&mut self) -> Result<()> {
        let Self { screen, lab, pods } = self;
        screen.section(
            "The world outside",
            "A server behind a router, which knows no way to pods. It tells whose connection\n\
             it sees: the node's, which sends the answers back to the pod.",
        )?;
        pods::visit_world(screen, lab, pods)
    }

    fn check(&mut self, results: &[Value]) -> Result<()> {
        let Self { screen, lab, pods } = self;
        screen.section(
            "CHECK and STATUS",
            "Does each pod still have what ADD gave it, and could another ADD succeed on its\nnode?",
        )?;
        for (pod, result) in pods.iter().zip(results) {
            let runtime = pods::runtime_of(lab.node_of(pod))?;
            call(screen, &name("CHECK", pod), || runtime.check(pod, result))?;
        }
        for node in &lab.nodes {
            call(screen, &format!("STATUS of {}", node.name), || node.runtime().status())?;
        }
        Ok(())
    }

    /// Keeps the pods until the user goes on, and says how to look around. Returns how long that took.
    fn keep(&mut self) -> Result<Duration> {
        let began = Instant::now();
        let Self { screen, lab, pods } = self;
        screen.section(
            "Your turn",
            "The pods stay until standard input ends: Ctrl-D goes on with DEL, Ctrl-C ends all\nat once.",
        )?;
        let [first, .., last] = pods else { bail!("three pods") };
        let netns = first.netns_name();
        let from_to = format!("{} to {}", first.name, last.name);
        let northbound = format!("ovn-nbctl --db {} show", central::NORTHBOUND);
        let commands = [
            (&*format!("ip netns exec {netns} ping {}", last.address()), &*from_to),
            (&*format!("ip netns exec {netns} bash"), "a shell in a pod"),
            ("ovs-vsctl show", "the switch"),
            (&*northbound, "the logical network"),
            ("less /var/log/openvswitch/ovn-k8s-cni-overlay.log", "the plugin's log"),
        ];
        screen.line("  From another terminal, as root, enter a node:")?;
        for node in &lab.nodes {
            let enter = format!("nsenter -t $(pgrep -nf 'integration hold {}') -m -n -p bash", node.name);
            screen.line(format!("    {}", Paint::STRONG.on(enter)))?;
        }
        screen.line("\n  and there:")?;
        for (command, meaning) in commands {
            let command = Paint::STRONG.on(format!("{command:<53}"));
            screen.line(format!("    {command} {}", Paint::FAINT.on(meaning)))?;
        }
        io::stdin().lock().read_to_end(&mut Vec::new()).context("standard input")?;
        Ok(began.elapsed())
    }

    fn delete(&mut self) -> Result<()> {
        let Self { screen, lab, pods } = self;
        screen.section(
            "The pods lose their network (DEL)",
            "The runtime calls the plugin again, then removes the namespaces that it made.",
        )?;
        for pod in *pods {
            let runtime = pods::runtime_of(lab.node_of(pod))?;
            call(screen, &name("DEL", pod), || runtime.del(pod))?;
        }
        screen.step("the runtime and the control plane took back what was theirs", || {
            pods::withdraw(lab, pods)?;
            lab.central.sync()
        })
    }

    fn compare(&mut self, [before, with_pods, after]: [Vec<Census>; 3]) -> Result<()> {
        self.screen.section(
            "Nothing is left",
            "What is on each node: before the pods came, with them, and after DEL.",
        )?;
        let censuses = before
            .iter()
            .zip(&with_pods)
            .zip(&after)
            .map(|((before, with_pods), after)| [before, with_pods, after]);
        let columns: Vec<_> = self.lab.nodes.iter().zip(censuses).collect();
        self.screen.lines(view::counts(&columns))?;
        self.screen.line("")?;
        for (node, [before, _, after]) in columns {
            let what = format!("{} is exactly as it was before the pods", node.name);
            match before.must_equal(after) {
                Ok(()) => self.screen.line(tick() + &what)?,
                different @ Err(_) => self.screen.step(&what, || different)?,
            }
        }
        Ok(())
    }
}

/// `ADD shop/front on node1`
fn name(verb: &str, pod: &Pod) -> String {
    format!("{verb} {} on {}", title(pod), pod.node)
}

/// Waits for the report: the plugin sends it after its result, and the server writes its log in the
/// background.
fn timeline_of(node: &Node, pod: &Pod) -> Result<Timeline> {
    let file = node.path("/var/log/openvswitch/ovnkube.log");
    eventually("the plugin's report in the server's log", Duration::from_secs(2), || {
        let log = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        Timeline::find(&log, &pod.sandbox)
    })
}

fn censuses(lab: &Lab) -> Result<Vec<Census>> {
    lab.nodes.iter().map(Node::census).collect()
}
