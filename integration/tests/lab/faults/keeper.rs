//! The task that keeps attachments gets wrong data, or has very much to do.

use std::{
    fmt, fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Pod, eventually,
    faults::{Site, failpoint, row},
    node::MANIFESTS,
};

/// More than twice the time that the server of these tests needs before it removes anything.
const REMOVED: Duration = Duration::from_secs(10);
/// More than a server with `--stale-after=1` needs for two looks and the removal.
const LATER: Duration = Duration::from_secs(4);
/// The address of `/readyz` on the node.
const HEALTHZ: &str = "127.0.0.1:10256";
/// The address of `/metrics` on the node.
pub(crate) const METRICS: &str = "127.0.0.1:9410";

/// Restarts the server with this directory of manifests and a `--stale-after` of a second.
fn restart_with(site: &Site<'_>, manifests: &str) -> Result<()> {
    let node = site.node;
    node.server.stop()?;
    let options = [
        "--init-node",
        &node.name,
        "--pod-manifests",
        manifests,
        "--stale-after",
        "1",
        "--healthz-bind-address",
        HEALTHZ,
    ];
    node.server.set_arguments(options);
    node.start_server()
}

pub(crate) fn healthz_option() -> String {
    format!("--healthz-bind-address={HEALTHZ}")
}

/// Returns `/readyz?verbose`.
pub(crate) fn readyz(site: &Site<'_>) -> Result<String> {
    page(site, HEALTHZ, "/readyz?verbose")
}

/// One of the server's pages.
pub(crate) fn page(site: &Site<'_>, address: &str, path: &str) -> Result<String> {
    let (host, port) = address.split_once(':').context("an address with a port")?;
    let ask = format!(
        "exec 3<>/dev/tcp/{host}/{port}; printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    );
    site.node.run(["timeout", "5", "bash", "-euc", &ask])
}

/// The value of a counter of the server that has no labels.
pub(crate) fn counter(site: &Site<'_>, name: &str) -> Result<usize> {
    let page = page(site, METRICS, "/metrics")?;
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.with_context(|| format!("no {name} in {page}"))?.trim().parse()?)
}

/// All ports and links stay for as long as a server with `--stale-after=1` would need to remove
/// them.
pub(crate) fn nothing_is_removed(site: &Site<'_>, pods: &[Pod]) -> Result<()> {
    let gone = eventually("something is removed", LATER, || {
        let names = site.node.vsctl(["list-ports", "br-int"])?;
        let links = site.node.run(["ip", "-br", "link"])?;
        let is_there = |pod: &&Pod| {
            names.contains(&pod.host_interface()) && links.contains(&pod.host_interface())
        };
        ensure!(!pods.iter().all(|pod| is_there(&pod)), "all of it is there");
        Ok(())
    });
    ensure!(gone.is_err(), "ports or links of living pods were removed");
    Ok(())
}

// --- 75
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_75_a_directory_of_manifests_that_is_empty_costs_no_pod_its_network() {
    row(75).within(Duration::from_secs(60)).test(|site| {
        let usual = site.node.server.arguments();
        let pods = [site.attached_pod()?, site.bystanders[0].clone(), site.bystanders[1].clone()];
        fs::create_dir_all(site.node.path("/run/not-mounted-yet"))?;
        restart_with(site, "/run/not-mounted-yet")?;
        eventually("/readyz says what is suspected", REMOVED, || {
            let answer = readyz(site)?;
            ensure!(
                answer.contains("3 attached pods are said to be gone, 0 are known"),
                "{answer}"
            );
            Ok(())
        })?;
        nothing_is_removed(site, &pods)?;
        let log = site.node.server_log()?;
        ensure!(log.contains("nothing is removed until that is confirmed"), "{log}");

        // With the right manifests, one pod is really gone.
        restart_with(site, MANIFESTS)?;
        site.node.remove_manifest(&pods[0])?;
        eventually("what is left of the pod is removed", REMOVED, || site.nothing_of(&pods[0]))?;
        let answer = readyz(site)?;
        ensure!(!answer.contains("said to be gone"), "{answer}");
        nothing_is_removed(site, &pods[1..])?;
        site.node.server.stop()?;
        site.node.server.set_arguments(usual);
        site.node.start_server()
    });
}

// --- 76
// ----------------------------------------------------------------------------------------------------

/// Rows of pods from before a reboot: their links are gone, and Open vSwitch's database is
/// unchanged.
const LEFTOVERS: usize = 500;
/// From the moment when a port could be there to the moment when it is (row 76).
const BACK: Duration = Duration::from_secs(2);
/// The least number of ADDs whose median says something: the removal takes some seconds.
const LEAST: usize = 3;
/// How long a plugin waits for a server that sends no status of its port.
const DEAF: Duration = Duration::from_secs(2);
/// The number of ADDs without leftovers, and the least number with them.
const ADDS: usize = 20;

/// Writes rows as if the pods had had their network before the reboot.
fn leave(site: &Site<'_>) -> Result<()> {
    let rows = (0..LEFTOVERS).flat_map(|number| {
        let (name, sandbox) = (format!("left{number}"), format!("left{number:060}"));
        let ids = [
            ("sandbox", sandbox),
            ("iface-id", format!("lab_left{number}")),
            ("pod-if-name", "eth0".to_owned()),
        ];
        let ids = ids.map(|(key, value)| format!("external_ids:{key}={value}"));
        let words =
            ["--", "add-port", "br-int", &name, "--", "set", "Interface", &name].map(str::to_owned);
        words.into_iter().chain(ids)
    });
    site.node.vsctl(std::iter::once("--no-wait".to_owned()).chain(rows)).map(drop)
}

fn leftovers(site: &Site<'_>) -> Result<usize> {
    Ok(site
        .node
        .vsctl(["list-ports", "br-int"])?
        .lines()
        .filter(|name| name.starts_with("left"))
        .count())
}

/// ADD and DEL of a new pod; returns how long the ADD took.
fn come_and_go(site: &Site<'_>) -> Result<Duration> {
    let pod = site.new_pod()?;
    let outcome = site.add_with("burst", &pod).run()?;
    outcome.success()?;
    site.del(&pod)?.success()?;
    Ok(outcome.duration)
}

/// The times of ADDs, in ascending order.
struct Times(Vec<Duration>);

impl Times {
    /// ADDs one after the other.
    fn of(site: &Site<'_>, adds: usize) -> Result<Self> {
        (0..adds).map(|_| come_and_go(site)).collect::<Result<_>>().map(Self::sorted)
    }

    fn sorted(mut times: Vec<Duration>) -> Self {
        times.sort();
        Self(times)
    }

    fn p50(&self) -> Duration {
        self.0[self.0.len() / 2]
    }

    fn most(&self) -> Duration {
        self.0[self.0.len() - 1]
    }

    /// ADDs take what they always take: medians are compared, because other work on the machine
    /// makes single ADDs slow.
    fn are_as_always(&self, always: &Self) -> Result<()> {
        let (busy, usual) = (self.p50(), always.p50());
        ensure!(
            busy <= usual * 2,
            "ADDs take {busy:?} (p50 of {}) instead of {usual:?}",
            self.0.len()
        );
        ensure!(
            self.most() < DEAF.max(always.most() * 2),
            "an ADD took {:?}: as long as a plugin believes in a server that says nothing",
            self.most()
        );
        ensure!(self.0.len() >= LEAST, "{} ADDs are too few to compare", self.0.len());
        Ok(())
    }
}

impl fmt::Display for Times {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "p50 {:?}, at most {:?} of {}", self.p50(), self.most(), self.0.len())
    }
}

/// The number of ports that the server has written for plugins.
fn written(site: &Site<'_>) -> Result<usize> {
    counter(site, "ovnkube_node_ports_written_total")
}

#[test]
fn row_76_while_500_leftovers_of_a_reboot_are_removed_every_port_is_the_servers_and_vanished_ones_are_back()
 {
    row(76).traffic_may_stop().within(Duration::from_secs(120)).test(|site| {
        let node = site.node;
        let usual = node.server.arguments();
        let metrics = format!("--metrics-bind-address={METRICS}");
        let with = |patience: &str| {
            usual
                .iter()
                .cloned()
                .chain([metrics.clone(), format!("--stale-after={patience}")])
                .collect::<Vec<_>>()
        };
        failpoint::install(node)?;
        let living = site.attached_pod()?;
        node.server.stop()?;
        node.server.set_arguments(with("0"));
        node.start_server()?;
        let calm = Times::of(site, ADDS)?;

        node.server.stop()?;
        leave(site)?;
        // The baseline: what so many ports without devices cost in Open vSwitch alone.
        node.server.set_arguments(with("0"));
        node.start_server()?;
        let full = Times::of(site, ADDS)?;
        ensure!(leftovers(site)? == LEFTOVERS, "a server that is to remove nothing has removed something");
        node.server.stop()?;
        node.server.set_arguments(with("1"));
        node.start_server()?;
        let began = Instant::now();
        let (mut busy, mut later, mut gone, mut first) = (Vec::new(), 0, None, None);
        while gone.is_none() || busy.len() + later < ADDS {
            let took = come_and_go(site)?;
            match gone {
                None => busy.push(took),
                Some(_) => later += 1,
            }
            let left = leftovers(site)?;
            if left < LEFTOVERS && first.is_none() {
                first = Some(began.elapsed());
                let vanished = Instant::now();
                node.vsctl(["--no-wait", "del-port", "br-int", &living.host_interface()])?;
                node.vsctl(["wait-until", "Interface", &living.host_interface(), "name!=x"])?;
                let away = vanished.elapsed();
                ensure!(
                    away <= BACK,
                    "the port of a living pod was away for {away:?} while {left} leftovers were to be removed"
                );
            }
            if left == 0 {
                gone.get_or_insert_with(|| began.elapsed());
            }
        }
        let removed = gone.unwrap_or_default() - first.unwrap_or_default();
        let adds = busy.len() + later;
        let busy = Times::sorted(busy);
        println!("ADD without leftovers: {calm}; with {LEFTOVERS} that stay: {full}");
        println!("while they are removed: {busy}; within {removed:?} of the first");
        let written = written(site)?;
        // A plugin writes its port itself if its annotation is late, or if the server sends no
        // status. So not all, but most of the ports are the server's.
        ensure!(
            written * 2 > adds,
            "of {adds} ports the server has written {written}: it was deaf to the others"
        );
        busy.are_as_always(&full)?;
        site.has_network(&living)?;

        node.server.stop()?;
        node.server.set_arguments(usual.clone());
        node.start_server()
    });
}

/// Time for the server and ovs-vswitchd to agree that the devices are gone, and for the removal.
const SWEPT: Duration = Duration::from_secs(15);

/// With the default of `--stale-after`.
#[test]
fn row_76_leftovers_of_a_reboot_slowed_every_add_for_half_a_minute() {
    row(76).traffic_may_stop().within(Duration::from_secs(90)).test(|site| {
        let node = site.node;
        let usual = node.server.arguments();
        failpoint::install(node)?;
        let living = site.attached_pod()?;
        let calm = Times::of(site, ADDS)?;
        node.server.stop()?;
        leave(site)?;
        // The baseline: what so many ports without devices cost in Open vSwitch alone.
        node.server.set_arguments(usual.iter().cloned().chain(["--stale-after=0".to_owned()]));
        node.start_server()?;
        let full = Times::of(site, ADDS)?;
        node.server.stop()?;
        node.server.set_arguments(usual);
        node.start_server()?;
        let began = Instant::now();
        let mut busy = Vec::new();
        loop {
            let left = leftovers(site)?;
            if left == 0 {
                break;
            }
            ensure!(
                began.elapsed() < SWEPT,
                "{left} of {LEFTOVERS} leftovers are there after {:?}",
                began.elapsed()
            );
            busy.push(come_and_go(site)?);
        }
        println!("{LEFTOVERS} leftovers were gone after {:?}", began.elapsed());
        let busy = Times::sorted(busy);
        println!(
            "ADD before: {calm}; with leftovers that stay: {full}; while they are removed: {busy}"
        );
        busy.are_as_always(&full)?;
        site.has_network(&living)
    });
}
