//! `integration lab`: the lab for people.

use std::{
    env,
    io::{IsTerminal as _, Read as _},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context as _, Result};
use clap::Args;
use contract::paths::PLUGIN_LOG;
use integration::{Families, Lab as Running, Node, Pod, by_hand, central, executable, mounts};

/// Start nodes and pods, show that they reach each other, take the pods away again, and end.
#[derive(Debug, Args)]
pub(crate) struct Lab {
    /// How many nodes.
    #[arg(long, default_value_t = 2)]
    nodes: u32,
    /// How many pods on each of them.
    #[arg(long, default_value_t = 1)]
    pods: usize,
    /// IPv4 and IPv6.
    #[arg(long)]
    dual: bool,
    /// Attach the pods with ip and ovs-vsctl instead of the plugin.
    #[arg(long)]
    by_hand: bool,
    /// Keep the lab until Ctrl-C or Ctrl-D, and say how to enter it.
    #[arg(long)]
    keep: bool,
    /// Give a shell in the lab; the lab ends with it.
    #[arg(short, long)]
    interactive: bool,
}

impl Lab {
    /// To be called in the lab's namespaces.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let began = Instant::now();
        let lab = Running::of_nodes(self.nodes)
            .families(if self.dual { Families::Dual } else { Families::V4 })
            .build()?;
        println!("{} node(s) in {} ms", self.nodes, began.elapsed().as_millis());
        // `compat.sh` reads this line.
        println!("running: {}", lab.nodes.first().context("a lab has a node")?.versions()?);
        let mut pods = Vec::new();
        let mut before = Vec::new();
        for node in &lab.nodes {
            let new = lab.new_pods(node, self.pods)?;
            // With ports and namespaces, before the plugin: detaching restores this state.
            before.push(node.census()?);
            self.attach(node, &new)?;
            pods.extend(new);
        }
        self.traffic(&lab, &pods)?;
        if self.keep || self.interactive {
            self.stay(&lab, &pods)?;
            return Ok(ExitCode::SUCCESS);
        }
        pods.iter().try_for_each(|pod| self.detach(lab.node_of(pod), pod))?;
        for (node, before) in lab.nodes.iter().zip(&before) {
            before.must_equal(&node.census()?)?;
            println!("{}: as it was before the pods", node.name);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn attach(&self, node: &Node, pods: &[Pod]) -> Result<()> {
        if self.by_hand {
            for pod in pods {
                by_hand::attach(node, pod)?;
                println!("{}: {} attached by hand", node.name, pod.name);
            }
            return Ok(());
        }
        node.start_server()?;
        let runtime = node.runtime();
        for pod in pods {
            let outcome = runtime.add(pod)?;
            let result = outcome.success()?;
            println!(
                "{}: {} {} ADD {} ms",
                node.name,
                executable::PLUGIN,
                pod.name,
                outcome.duration.as_millis()
            );
            println!("    {}", result["ips"]);
        }
        Ok(())
    }

    fn detach(&self, node: &Node, pod: &Pod) -> Result<()> {
        if self.by_hand {
            return by_hand::detach(node, pod);
        }
        let outcome = node.runtime().del(pod)?;
        outcome.success()?;
        println!(
            "{}: {} {} DEL {} ms",
            node.name,
            executable::PLUGIN,
            pod.name,
            outcome.duration.as_millis()
        );
        Ok(())
    }

    fn traffic(&self, lab: &Running, pods: &[Pod]) -> Result<()> {
        let Some((first, others)) = pods.split_first() else { return Ok(()) };
        for other in others {
            for address in &other.addresses {
                lab.ping(first, address.addr())?;
                let began = Instant::now();
                lab.tcp_to(first, other, address.addr(), 1 << 20)?;
                println!(
                    "{} -> {} {}: ping answered, 1 MiB over TCP in {} ms",
                    first.name,
                    other.name,
                    address.addr(),
                    began.elapsed().as_millis()
                );
            }
        }
        Ok(())
    }

    fn stay(&self, lab: &Running, pods: &[Pod]) -> Result<()> {
        println!();
        ways_in(lab, pods).iter().for_each(|line| println!("{line}"));
        if self.interactive {
            println!(
                "This shell is in the lab's root: ovn-nbctl, ovn-sbctl, nsenter -t PID -m -n for the nodes. \
                 The lab ends with it."
            );
            for node in &lab.nodes {
                println!("  {}: nsenter -t {} -m -n bash", node.name, node.pid());
            }
            let shell = env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
            let mut command = std::process::Command::new(shell);
            command.env("OVN_NB_DB", central::NORTHBOUND).env("OVN_SB_DB", central::SOUTHBOUND);
            // The status of an interactive shell is that of its last command, and says nothing
            // about the lab.
            command.status().context("start a shell").map(drop)
        } else {
            println!(
                "{}",
                if std::io::stdin().is_terminal() {
                    "Ctrl-D ends the lab."
                } else {
                    "The lab ends when standard input closes."
                }
            );
            std::io::stdin().read_to_end(&mut Vec::new()).map(drop).context("wait")
        }
    }
}

/// How to enter the nodes, and what to look at there.
pub(crate) fn ways_in(lab: &Running, pods: &[Pod]) -> Vec<String> {
    let mut lines =
        vec![format!("Enter a node from another terminal, as root (its logs: {}):", mounts::LOGS)];
    lines.extend(lab.nodes.iter().map(|Node { name, .. }| {
        format!("  {name}: nsenter -t $(pgrep -nf 'integration hold {name}') -m -n -p bash")
    }));
    let northbound = format!("  ovn-nbctl --db {} show", central::NORTHBOUND);
    lines.extend(["There:".to_owned(), "  ovs-vsctl show".to_owned(), northbound]);
    lines.push(format!("  less {PLUGIN_LOG}"));
    // Each pings the next one, the last the first.
    lines.extend(pods.iter().zip(pods.iter().cycle().skip(1)).map(|(pod, next)| {
        format!("  ip netns exec {} ping {}    (on {})", pod.netns_name(), next.address(), pod.node)
    }));
    lines
}
