//! The server has little memory and many pods.

use std::{fmt::Write as _, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Lab, Pod, command, eventually,
    faults::{Site, memory::LittleMemory, row},
    process,
    runtime::Running,
};
use procfs::process::Status;

use crate::faults::callers;

/// The limit of row 46. It holds for debug builds, too: code is read from its file page by page,
/// and the kernel can drop those pages.
const MEMORY: u64 = 40 << 20;
const PODS: usize = 500;
/// More callers than the server accepts at once (1,024), and few enough for the backlog of its
/// socket.
const CALLERS: usize = 1100;
/// The largest body that the server takes. Each caller announces one.
const MOST_BODY: usize = 1 << 20;
/// Time for the whole test.
pub(super) const LIMIT: Duration = Duration::from_secs(100);
/// The namespace of the other ends of the links.
const NETNS: &str = "crowd";
/// How long the server may take until so many ports are back.
const BACK: Duration = Duration::from_secs(20);

/// Pods that the server takes for attached: links with aliases, ports, known pods. No packet is
/// sent there.
struct Crowd<'a> {
    site: &'a Site<'a>,
    pods: Vec<Pod>,
}

impl<'a> Crowd<'a> {
    fn gather(site: &'a Site<'a>) -> Result<Self> {
        let pods: Vec<Pod> = (0..PODS).map(|_| site.lab.plan_pod(site.node)).collect();
        let crowd = Self { site, pods };
        let (mut links, mut ends) = (String::new(), String::new());
        for pod in &crowd.pods {
            site.node.write_manifest(pod)?;
            let Pod { namespace, name, uid, sandbox, .. } = pod;
            let link = pod.host_interface();
            writeln!(links, "link add {link} type veth peer name {link} netns {NETNS}")?;
            writeln!(
                links,
                "link set {link} up alias ovn-k8s:default:eth0:{sandbox}:{namespace}/{name}:{uid}"
            )?;
            writeln!(ends, "link set {link} up")?;
        }
        site.node.run(["ip", "netns", "add", NETNS])?;
        command::output_with_input(site.node.command("ip").args(["-batch", "-"]), &links)?;
        command::output_with_input(
            site.node.command("ip").args(["-netns", NETNS, "-batch", "-"]),
            &ends,
        )?;
        crowd.of_each(|pod| {
            let Pod { uid, sandbox, .. } = pod;
            let (link, port, address) = (pod.host_interface(), pod.port(), pod.addresses[0]);
            format!(
                "add-port br-int {link} -- set Interface {link} external_ids:sandbox={sandbox} \
                 external_ids:iface-id={port} external_ids:iface-id-ver={uid} \
                 external_ids:pod-if-name=eth0 external_ids:ip_addresses={address}"
            )
        })?;
        Ok(crowd)
    }

    fn lose_ports(&self) -> Result<()> {
        self.of_each(|pod| format!("del-port br-int {}", pod.host_interface()))
    }

    fn has_ports(&self) -> Result<()> {
        let names = self.site.node.vsctl(["list-ports", "br-int"])?;
        let there = self
            .pods
            .iter()
            .filter(|pod| names.lines().any(|name| name == pod.host_interface()))
            .count();
        ensure!(there == PODS, "{there} of {PODS} have a port");
        Ok(())
    }

    fn leave(self) -> Result<()> {
        self.pods.iter().try_for_each(|pod| self.site.node.remove_manifest(pod))?;
        // Deleting the namespace deletes all links at once; one by one takes ten seconds.
        self.site.node.run(["ip", "netns", "del", NETNS])?;
        self.lose_ports()
    }

    /// Runs a command of `ovs-vsctl` for each pod, in one transaction.
    fn of_each(&self, command: impl Fn(&Pod) -> String) -> Result<()> {
        let commands: String =
            self.pods.iter().map(|pod| format!(" -- {}", command(pod))).collect();
        self.site.node.vsctl(format!("--no-wait{commands}").split_whitespace()).map(drop)
    }
}

/// Prints the server's memory (`--no-capture` shows it).
fn say(pid: u32) -> Result<()> {
    let Status { vmhwm, vmrss, rssanon, rssfile, .. } = process(pid)?.status()?;
    let [peak, all, own, files] = [vmhwm, vmrss, rssanon, rssfile].map(Option::unwrap_or_default);
    eprintln!(
        "the server with {PODS} pods: VmHWM {peak} kB, VmRSS {all} kB, RssAnon {own} kB, RssFile {files} kB"
    );
    Ok(())
}

/// The server puts back, attaches and detaches as usual with this little memory, whichever source
/// its pods come from.
pub(super) fn is_enough(site: &Site<'_>) -> Result<()> {
    let node = site.node;
    node.server.stop()?;
    // Changes of so many ports would keep ovs-vswitchd and the machine busy for seconds.
    node.vswitchd.stop()?;
    let crowd = Crowd::gather(site)?;
    let memory = LittleMemory::of(MEMORY)?;
    memory.start(|| node.start_server())?;
    let pid = node.server.pid().context("the server runs")?;
    for round in 1..=3 {
        crowd.lose_ports()?;
        eventually("all ports are back", BACK, || crowd.has_ports())
            .with_context(|| format!("round {round}"))?;
    }
    node.start_vswitchd()?;
    site.until_healthy()?;

    let pods = site.new_pods(32)?;
    for add in site.start_adds(&pods)? {
        add.wait()?.success()?;
    }
    pods.iter().step_by(8).try_for_each(|pod| site.has_network(pod))?;
    let dels = pods
        .iter()
        .map(|pod| node.runtime().call("DEL", Some(pod)).start())
        .collect::<Result<Vec<Running>>>()?;
    dels.into_iter().try_for_each(|del| del.wait()?.success().map(drop))?;
    say(pid)?;
    // The queue of callers is bounded: what the server cannot serve waits in the kernel.
    let queue = callers::crowd(site, CALLERS, &format!("{}{{", callers::head(MOST_BODY)))?;
    let late = site.new_pod()?;
    let outcome = site.add(&late)?;
    if !outcome.status.success() {
        site.failed(&late, &outcome, 11, &["too many requests at once"])?;
    }
    drop(queue);
    site.del(&late)?.success()?;
    site.add(&late)?.success().context("an ADD after a queue of callers")?;
    site.del(&late)?.success()?;
    say(pid)?;
    node.vswitchd.stop()?;
    crowd.leave()?;
    node.start_vswitchd()?;
    site.until_healthy()?;
    ensure!(node.server.pid() == Some(pid), "the server has ended");
    memory.is_enough_for(pid)
}

#[test]
fn row_46_with_40_mb_for_500_pods_the_server_attaches_detaches_and_puts_back() {
    row(46)
        .in_lab(Lab::of_nodes(1).v4_prefix_len(20))
        .traffic_may_stop()
        .within(LIMIT)
        .test(|site| is_enough(site).context("pods from manifests"));
}
