//! The pod's annotation comes late, never, wrong, or for another pod of the same name.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Families, Lab, Node, Pod, eventually,
    faults::{AT_ONCE, SHORTLY, Site, promptly, row},
    let_pass, threads,
};
use serde_json::{Value, json};

/// Pods that the control plane has not seen yet.
fn without_annotation(site: &Site<'_>, count: usize) -> Result<Vec<Pod>> {
    (0..count).map(|_| site.new_pod_without_annotation()).collect()
}

// --- 29
// ----------------------------------------------------------------------------------------------------

/// The time of an ADD from the annotation's arrival on, without the stages of Open vSwitch and OVN,
/// which are read from the plugin's own log line.
fn own_time(node: &Node, pod: &Pod, since_annotation: Duration) -> Result<Duration> {
    let log = fs::read_to_string(node.path("/var/log/openvswitch/ovn-k8s-cni-overlay.log"))?;
    let line = log
        .lines()
        .find(|line| line.contains(&pod.name) && line.contains("done"))
        .context("the plugin's log says `done`")?;
    let stage = |name: &str| -> Result<f64> {
        let (_, rest) = line
            .split_once(&format!("{name} "))
            .with_context(|| format!("no stage {name} in {line}"))?;
        rest.split([',', '"', ' '])
            .next()
            .unwrap_or_default()
            .parse()
            .with_context(|| format!("stage {name} in {line}"))
    };
    Ok(since_annotation.saturating_sub(Duration::from_secs_f64(
        (stage("ofport")? + stage("ovn_installed")?) / 1e3,
    )))
}

/// Starts ADDs and writes their annotations after `delay`; returns each ADD's own time from then
/// on.
fn late_by(site: &Site<'_>, pods: &[Pod], delay: Duration) -> Result<Vec<Duration>> {
    let node = site.node;
    let waiting = site.start_adds(pods)?;
    site.are_waited_for(pods)?;
    // The annotation comes at a moment that nothing announces: that is the fault.
    let_pass(delay);
    let mut times = Vec::new();
    // One after the other: the time measured is that of a single annotation.
    for (mut add, pod) in waiting.into_iter().zip(pods) {
        ensure!(!add.has_ended()?, "an ADD ended before its annotation was there");
        node.write_manifest(pod)?;
        let written = Instant::now();
        add.wait()?.success()?;
        times.push(own_time(node, pod, written.elapsed())?);
    }
    Ok(times)
}

fn arrives_after(site: &Site<'_>, delays: &[Duration]) -> Result<()> {
    let groups = delays.iter().map(|_| without_annotation(site, 5)).collect::<Result<Vec<_>>>()?;
    thread::scope(|scope| {
        let late = |pods, delay: &Duration| late_by(site, pods, *delay);
        let started: Vec<_> = groups
            .iter()
            .zip(delays)
            .map(|(pods, delay)| (delay, scope.spawn(move || late(pods, delay))))
            .collect();
        for (delay, thread) in started {
            let times = threads::join(thread)?;
            eprintln!("annotation after {delay:?}: ADD's own time from then on {times:?}");
            promptly(&times).with_context(|| {
                format!("the annotation came after {delay:?}; besides OVN's time")
            })?;
        }
        anyhow::Ok(())
    })?;
    groups.iter().flatten().try_for_each(|pod| site.has_network(pod))
}

#[test]
fn row_29_an_annotation_after_half_a_second_five_or_29_is_used_within_50_ms() {
    let delays = [500, 5_000, 29_000].map(Duration::from_millis);
    row(29).within(Duration::from_secs(50)).test(|site| arrives_after(site, &delays));
}

// --- 30
// ----------------------------------------------------------------------------------------------------

/// How long a monitor may take to listen: a program's start on a machine with a load of 20.
const LISTENS: Duration = Duration::from_secs(20);

/// Every link message of the kernel in one namespace, from the return of [`start`](Self::start) on.
struct LinkMonitor {
    child: Child,
    output: PathBuf,
}

impl LinkMonitor {
    /// Starts the monitor, and waits until it sees: it listens some time after its process exists.
    /// `probe` makes and removes a link named `seen` in the same namespace.
    fn start(mut ip: Command, output: PathBuf, probe: impl Fn() -> Result<()>) -> Result<Self> {
        let child = ip
            .args(["-o", "monitor", "link"])
            .stdin(Stdio::null())
            .stdout(fs::File::create(&output)?)
            .spawn()
            .context("start ip monitor")?;
        let monitor = Self { child, output };
        eventually("the monitor sees a link that is made for it", LISTENS, || {
            probe()?;
            ensure!(monitor.seen()?.contains("seen"), "it has seen nothing");
            Ok(())
        })?;
        Ok(monitor)
    }

    fn seen(&self) -> Result<String> {
        fs::read_to_string(&self.output).context("what the monitor has seen")
    }

    /// Ends the monitor and returns what it has seen beside the link named `seen`.
    fn stop(mut self) -> Result<Vec<String>> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(self.seen()?.lines().filter(|line| !line.contains("seen")).map(str::to_owned).collect())
    }
}

#[test]
fn row_30_an_annotation_that_never_comes_ends_the_add_at_its_deadline_and_nothing_was_made_before()
{
    row(30).test(|site| {
        let node = site.node;
        let pod = &site.new_pod_without_annotation()?;
        let before = node.census()?;
        const PROBE: &str = "ip link add seen type bridge; ip link del seen";
        let in_node =
            LinkMonitor::start(node.command("ip"), node.path("/run/links-of-node"), || {
                node.shell(PROBE).map(drop)
            })?;
        let in_pod = LinkMonitor::start(
            node.pod_command(pod, "ip"),
            node.path("/run/links-of-pod"),
            || node.run_in_pod(pod, ["sh", "-euc", PROBE]).map(drop),
        )?;

        let add = site.start_add_within(3, pod)?;
        site.are_waited_for(std::slice::from_ref(pod))?;
        before.must_equal(&node.census()?).context("while the annotation is waited for")?;
        let outcome = add.wait()?;
        let error = outcome.failure()?;
        ensure!(
            error.code == 11 && error.msg.contains("pod-networks") && error.msg.contains(&pod.name),
            "{error:?}"
        );
        ensure!(
            error.details.contains("control plane"),
            "no hint at who writes annotations: {error:?}"
        );
        let (least, most) = (Duration::from_secs(2), Duration::from_secs(3) + SHORTLY);
        ensure!(
            (least..most).contains(&outcome.duration),
            "it took {:?} of the 3 s that it has",
            outcome.duration
        );
        before.must_equal(&node.census()?)?;
        for (monitor, place) in [(in_node, "the node"), (in_pod, "the pod")] {
            let others = monitor.stop()?;
            ensure!(others.is_empty(), "something was made in {place}: {others:#?}");
        }
        Ok(())
    });
}

// --- 31
// ----------------------------------------------------------------------------------------------------

/// An annotation that cannot be used.
struct Bad {
    what: &'static str,
    /// Instead of the pod's own.
    network: fn(&Pod) -> Value,
    says: &'static str,
}

/// The pod's own network with one key replaced.
fn with(pod: &Pod, key: &str, value: Value) -> Value {
    let mut annotation = pod.annotation();
    annotation["default"][key] = value;
    annotation
}

const BAD: &[Bad] = &[
    Bad {
        what: "a text where an object should be",
        network: |_| json!("garbage"),
        says: "annotation",
    },
    Bad { what: "a list", network: |_| json!([1, 2, 3]), says: "annotation" },
    Bad {
        what: "a multicast MAC",
        network: |pod| with(pod, "mac_address", json!("01:00:5e:00:00:01")),
        says: "01:00:5e:00:00:01",
    },
    Bad {
        what: "a MAC of three bytes",
        network: |pod| with(pod, "mac_address", json!("0a:58:0a")),
        says: "mac_address",
    },
    Bad {
        what: "an address without prefix",
        network: |pod| with(pod, "ip_addresses", json!(["10.244.1.300"])),
        says: "10.244.1.300",
    },
    Bad {
        what: "a number where addresses should be",
        network: |pod| with(pod, "ip_addresses", json!(7)),
        says: "annotation",
    },
    Bad {
        what: "two addresses of a family",
        network: |pod| with(pod, "ip_addresses", json!(["10.244.1.7/24", "10.244.1.8/24"])),
        says: "",
    },
    Bad {
        what: "the network's own address",
        network: |pod| with(pod, "ip_addresses", json!(["0.0.0.0/24"])),
        says: "0.0.0.0",
    },
    Bad {
        what: "a gateway that is text",
        network: |pod| with(pod, "gateway_ips", json!(["; reboot"])),
        says: "reboot",
    },
    Bad {
        what: "1 MiB",
        network: |pod| with(pod, "padding", json!("x".repeat(1 << 20))),
        says: "annotation",
    },
    Bad {
        what: "2,000 routes",
        network: |pod| {
            with(
                pod,
                "routes",
                json!(vec![json!({"dest": "10.0.0.0/8", "nextHop": "10.244.1.1"}); 2000]),
            )
        },
        says: "routes",
    },
];

/// The server logs a refusal once, even if the plugin asked several times.
fn is_said_once(node: &Node, pod: &Pod, what: &str) -> Result<()> {
    let log = node.server_log()?;
    let said: Vec<&str> =
        log.lines().filter(|line| line.contains(&pod.name) && line.contains("refused")).collect();
    ensure!(said.len() == 1, "the annotation is {what}; of one ADD the server says: {said:#?}");
    Ok(())
}

#[test]
fn row_31_an_annotation_that_makes_no_sense_fails_at_once_and_leaves_nothing() {
    row(31).test(|site| {
        let node = site.node;
        let pods = without_annotation(site, BAD.len())?;
        for (pod, Bad { what, network, says }) in pods.iter().zip(BAD) {
            // The ADD waits before the annotation comes, so the server has certainly read it by
            // then.
            let add = node.runtime().call("ADD", Some(pod)).start()?;
            site.are_waited_for(std::slice::from_ref(pod))?;
            let written = Instant::now();
            node.write_manifest_text(pod, &pod.manifest(Some(&network(pod))))?;
            let outcome = add.wait()?;
            ensure!(
                written.elapsed() < AT_ONCE,
                "the annotation is {what}, and the ADD went on for {:?}",
                written.elapsed()
            );
            let error = site
                .failed(pod, &outcome, 100, &[says, &pod.name])
                .with_context(|| format!("the annotation is {what}"))?;
            ensure!(
                error.msg.len() < 2048,
                "the annotation is {what}, and the error repeats it: {error:?}"
            );
            is_said_once(node, pod, what)?;
        }
        // The server keeps a pod's annotation in memory, however long, while the pod exists.
        pods.iter().try_for_each(|pod| node.remove_manifest(pod))
    });
}

#[test]
fn row_31_an_annotation_of_another_subnet_fails_and_leaves_nothing() {
    row(31).test(|site| {
        let node = site.node;
        let mut pod = site.new_pod_without_annotation()?;
        let good = pod.clone();
        pod.gateways = vec!["192.0.2.1".parse()?];
        let add = node.runtime().call("ADD", Some(&pod)).start()?;
        site.are_waited_for(std::slice::from_ref(&pod))?;
        node.write_manifest(&pod)?;
        let outcome = add.wait()?;
        site.failed(&pod, &outcome, 103, &["192.0.2.1", "stage pod"])?;
        ensure!(outcome.duration < SHORTLY, "it went on for {:?}", outcome.duration);
        node.write_manifest(&good)?;
        eventually("the gateway inside of the subnet is accepted", SHORTLY, || {
            site.add(&good)?.success()
        })?;
        site.has_network(&good)
    });
}

/// Two pods with one address. OVN's port security lets a pod send only from the addresses of its
/// logical port.
#[test]
fn row_31_an_annotation_with_the_address_of_another_pod_takes_nothing_from_that_pod() {
    row(31).test(|site| {
        let [first, second] = &site.bystanders;
        let owner = site.attached_pod()?;
        let mut thief = site.new_pod_without_annotation()?;
        thief.addresses.clone_from(&owner.addresses);
        let add = site.node.runtime().call("ADD", Some(&thief)).start()?;
        site.are_waited_for(std::slice::from_ref(&thief))?;
        site.node.write_manifest(&thief)?;
        let outcome = add.wait()?;
        let error =
            site.failed(&thief, &outcome, 100, &[&owner.address().to_string(), &owner.port()])?;
        ensure!(error.details.contains("k8s.ovn.org/pod-networks"), "{error:?}");
        ensure!(outcome.duration < SHORTLY, "it went on for {:?}", outcome.duration);
        for from in [first, second] {
            site.lab.ping(from, owner.address())?;
        }
        // A pod that has ended releases its address a moment before its sandbox goes, and the
        // control plane may then give the address to another pod.
        site.lab.remove_ports(std::slice::from_ref(&owner))?;
        site.lab.central.sync()?;
        eventually("the address can be had", SHORTLY, || site.add(&thief)?.success())?;
        site.del(&owner)?.success().map(drop)
    });
}

#[test]
fn row_31_an_address_of_another_pod_is_noticed_whichever_family_it_is_of() {
    row(31).in_lab(Lab::of_nodes(1).families(Families::Dual)).test(|site| {
        let owner = site.attached_pod()?;
        let mut thief = site.new_pod_without_annotation()?;
        thief.addresses[1] = owner.addresses[1];
        let add = site.node.runtime().call("ADD", Some(&thief)).start()?;
        site.are_waited_for(std::slice::from_ref(&thief))?;
        site.node.write_manifest(&thief)?;
        let taken = owner.addresses[1].addr().to_string();
        site.failed(&thief, &add.wait()?, 100, &[&taken, &owner.port()])?;
        site.lab.ping(&site.bystanders[0], owner.addresses[1].addr())
    });
}

/// Without the server, the plugin looks for the address itself. Its session with the database is
/// open before the annotation comes, so it writes the port.
#[test]
fn row_31_an_address_that_is_the_second_of_another_pod_was_given_away() {
    row(31).in_lab(Lab::of_nodes(1).families(Families::Dual)).test(|site| {
        let mut owner = site.new_pod_without_annotation()?;
        owner.addresses.reverse();
        owner.gateways.reverse();
        site.node.write_manifest(&owner)?;
        site.add(&owner)?.success()?;
        let v4 = owner.addresses[1];
        ensure!(v4.addr().is_ipv4(), "IPv6 comes first: {:?}", owner.addresses);
        let mut thief = site.new_pod_without_annotation()?;
        thief.addresses = vec![v4];
        thief.gateways.truncate(1);
        let add = site.node.runtime().call("ADD", Some(&thief)).start()?;
        site.are_waited_for(std::slice::from_ref(&thief))?;
        site.node.write_manifest(&thief)?;
        site.failed(&thief, &add.wait()?, 100, &[&v4.addr().to_string(), &owner.port()])?;
        site.lab.ping(&site.bystanders[0], v4.addr())?;
        site.del(&owner)?.success().map(drop)
    });
}

// --- 32
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_32_a_pod_that_was_created_anew_is_waited_for_and_the_old_one_is_never_attached() {
    row(32).test(|site| {
        let node = site.node;
        let old = site.new_pod()?;
        let new = site.adopt(old.recreated())?;
        site.lab.central.nbctl([
            "set",
            "Logical_Switch_Port",
            &new.port(),
            &format!("options:iface-id-ver={}", new.uid),
        ])?;
        let before = node.census()?;

        // The runtime calls for the new pod before the server has seen it.
        let add = node.runtime().call("ADD", Some(&new)).start()?;
        eventually("the server waits for the pod that is meant", SHORTLY, || {
            let log = node.server_log()?;
            ensure!(log.contains("the pod that is known has another UID"), "its log:\n{log}");
            Ok(())
        })?;
        before.must_equal(&node.census()?).context("while the new pod is waited for")?;
        node.write_manifest(&new)?;
        add.wait()?.success()?;
        let rows = node.census()?;
        ensure!(
            rows.lines_with(&format!("iface-id-ver={}", new.uid)).len() == 1,
            "the new pod's UID is not in Open vSwitch:\n{rows}"
        );
        ensure!(
            rows.lines_with(&format!("iface-id-ver={}", old.uid)).is_empty(),
            "the old pod's UID is in Open vSwitch:\n{rows}"
        );
        site.has_network(&new)?;
        site.del(&new)?.success()?;

        // An ADD of the old one comes late.
        let outcome = site.add(&old)?;
        site.failed(&old, &outcome, 3, &[&old.uid, &new.uid])?;
        ensure!(
            outcome.duration < Duration::from_secs(15),
            "it went on for {:?}",
            outcome.duration
        );
        before.must_equal(&node.census()?)
    });
}

#[test]
fn row_32_the_port_of_an_attached_pod_goes_to_the_one_that_was_created_anew() {
    row(32).test(|site| {
        let old = site.attached_pod()?;
        let new = site.adopt(old.recreated())?;
        // As the control plane does it: port and manifest now belong to the new pod.
        site.lab.central.nbctl([
            "set",
            "Logical_Switch_Port",
            &new.port(),
            &format!("options:iface-id-ver={}", new.uid),
        ])?;
        site.node.write_manifest(&new)?;
        site.add(&new)?.success()?;
        site.has_network(&new)?;
        site.del(&old)?.success()?;
        site.one_port_of(&new)?;
        site.has_network(&new)
    });
}
