//! The kernel is busy with other links, or refuses requests.

use std::{
    process::{Child, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Node, Outcome, Pod, executable,
    faults::{
        Site, at_once, row,
        shim::{Netlink, Shim},
    },
    runtime::Running,
    threads,
};
use nix::{
    libc::{EBUSY, EEXIST, EINTR, ENOBUFS},
    sys::signal::{self, Signal},
    unistd,
};

// --- 50
// ----------------------------------------------------------------------------------------------------

/// Pods at once in a round.
const AT_A_TIME: usize = 8;
/// Pairs of rounds, one calm and one in the storm. Odd, for a median.
const PAIRS: usize = 5;

/// A program that runs a script in a loop until this is dropped. The script that is under way then
/// runs to its end: killed, it would leave what it has made.
struct Loop(Child);

impl Loop {
    fn start(node: &Node, script: &str) -> Result<Self> {
        // The shell looks after the trap when the program in front has ended.
        let text = format!("trap over=1 TERM; while [ -z \"$over\" ]; do {script}; done");
        let child = node
            .command("sh")
            .args(["-c", &text])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).map(unistd::Pid::from_raw);
        if pid.is_ok_and(|pid| signal::kill(pid, Signal::SIGTERM).is_ok()) {
            let _ = self.0.wait();
        }
    }
}

/// Eight pods come and go while these programs run; all ADDs must succeed. Returns the longest of
/// their times.
fn slowest_add(site: &Site<'_>, scripts: &[&str]) -> Result<Duration> {
    let _loops = scripts
        .iter()
        .map(|script| Loop::start(site.node, script))
        .collect::<Result<Vec<Loop>>>()?;
    let pods: Vec<Pod> = site.new_pods(AT_A_TIME)?;
    let outcomes =
        site.start_adds(&pods)?.into_iter().map(Running::wait).collect::<Result<Vec<Outcome>>>()?;
    for outcome in &outcomes {
        outcome.success()?;
    }
    pods.iter().try_for_each(|pod| site.del(pod)?.success().map(drop))?;
    outcomes.iter().map(|outcome| outcome.duration).max().context("no ADD")
}

/// Neighbouring rounds are compared, and the median of their ratios counts: whatever else the
/// machine does slows down both rounds of most pairs.
#[test]
fn row_50_a_storm_of_link_changes_slows_adds_down_by_less_than_three_times() {
    row(50).within(Duration::from_secs(90)).test(|site| {
        site.node.shell("ip netns add storm")?;
        // The baseline runs the same programs at the same pace, without using the kernel's link
        // lock (RTNL): on a small machine the programs alone slow down ADDs.
        let idle = ["ip -V; ip -V; ip -V", "ip -V"];
        let storm =
            ["ip link add storm0 type veth peer name storm1; ip link set storm1 netns storm; ip link del storm0", "ip -details link show"];
        let mut ratios = Vec::new();
        for _ in 0..PAIRS {
            let (calm, busy) = (slowest_add(site, &idle)?, slowest_add(site, &storm)?);
            println!("the slowest of {AT_A_TIME} ADDs at once: calm {calm:?}, in the storm {busy:?}");
            ratios.push(busy.as_secs_f64() / calm.max(Duration::from_millis(200)).as_secs_f64());
        }
        site.node.shell("ip netns del storm")?;
        ratios.sort_by(f64::total_cmp);
        ensure!(ratios[PAIRS / 2] <= 3.0, "ADDs in the storm take {ratios:.1?} times as long as without it");
        Ok(())
    });
}

// --- 51
// ----------------------------------------------------------------------------------------------------

/// Messages of `linux/rtnetlink.h` that an ADD sends, with their numbers and how many of each.
const MESSAGES: &[(&str, u16, u32)] = &[
    ("RTM_NEWLINK", 16, 1),
    ("RTM_SETLINK", 19, 2),
    ("RTM_NEWADDR", 20, 1),
    ("RTM_NEWROUTE", 24, 2),
];
/// How many answers an ADD reads: the new link, and the kernel's acknowledgement of each message.
const ANSWERS: u32 = 7;
const DELLINK: u16 = 17;
const ERRORS: &[(&str, i32)] =
    &[("ENOBUFS", ENOBUFS), ("EINTR", EINTR), ("EBUSY", EBUSY), ("EEXIST", EEXIST)];

/// One ADD with one fault: it succeeds, or reports the kernel's error and leaves nothing. Returns
/// whether the fault was hit.
fn add_with(site: &Site<'_>, shim: &Shim, pod: &Pod, fault: Netlink) -> Result<bool> {
    let (key, value) = fault.variable();
    let outcome = shim.around(site.node.runtime().call("ADD", Some(pod))).env(key, value).run()?;
    at_once(&outcome)?;
    if outcome.status.success() {
        site.has_network(pod)?;
        site.del(pod)?.success()?;
        site.nothing_of(pod)?;
        return Ok(false);
    }
    let error = outcome.failure()?;
    ensure!([11, 101, 102, 103].contains(&error.code) && !error.details.is_empty(), "{error:?}");
    site.nothing_of(pod).with_context(|| format!("after {error:?}"))?;
    Ok(true)
}

/// Every message that an ADD sends is refused with every error, four pods at a time.
#[test]
fn row_51_a_kernel_that_refuses_any_message_of_an_add_fails_it_and_nothing_is_left() {
    row(51).within(Duration::from_secs(90)).test(|site| {
        let shim = Shim::for_program(executable::PLUGIN)?;
        let cases: Vec<(String, Netlink)> = MESSAGES
            .iter()
            .flat_map(|(name, message, most)| (1..=*most).map(move |nth| (*name, *message, nth)))
            .flat_map(|(name, message, nth)| {
                ERRORS.iter().map(move |(error, errno)| {
                    (
                        format!("{name} {nth}: {error}"),
                        Netlink::Refuse { message, nth, errno: *errno },
                    )
                })
            })
            .collect();
        let pods = site.new_pods(cases.len())?;
        let pairs: Vec<_> = cases.iter().zip(&pods).collect();
        let met = threads::on_threads(4, &pairs, |((what, fault), pod)| {
            add_with(site, &shim, pod, *fault).with_context(|| what.clone())
        })?;
        let met = met.into_iter().filter(|met| *met).count();
        ensure!(met == cases.len(), "only {met} of {} faults were met", cases.len());
        Ok(())
    });
}

/// What the kernel has done is unknown if its answer is lost; the plugin does not wait for another
/// answer.
#[test]
fn row_51_an_answer_that_is_lost_ends_the_add_and_nothing_is_left() {
    row(51).within(Duration::from_secs(60)).test(|site| {
        let shim = Shim::for_program(executable::PLUGIN)?;
        let cases: Vec<(String, Netlink)> = (1..=ANSWERS)
            .flat_map(|nth| {
                [("ENOBUFS", ENOBUFS), ("EINTR", EINTR)].map(|(name, errno)| {
                    (format!("receipt {nth}: {name}"), Netlink::Lose { nth, errno })
                })
            })
            .collect();
        let pods = site.new_pods(cases.len())?;
        let start = |(pod, (_, fault)): (&Pod, &(String, Netlink))| {
            let (key, value) = fault.variable();
            shim.around(site.node.runtime().call("ADD", Some(pod))).env(key, value).start()
        };
        let running = pods.iter().zip(&cases).map(start).collect::<Result<Vec<Running>>>()?;
        let outcomes = running.into_iter().map(Running::wait).collect::<Result<Vec<Outcome>>>()?;
        for ((outcome, pod), (what, _)) in outcomes.iter().zip(&pods).zip(&cases) {
            at_once(outcome).with_context(|| what.clone())?;
            let error = outcome.failure().with_context(|| what.clone())?;
            ensure!(
                [3, 11, 103].contains(&error.code) && error.msg.contains("no answer of the kernel"),
                "{what}: {error:?}"
            );
            site.nothing_of(pod).with_context(|| format!("{what}: {error:?}"))?;
        }
        Ok(())
    });
}

#[test]
fn row_51_a_link_that_the_kernel_does_not_delete_is_said_to_be_left_and_goes_with_the_next_del() {
    row(51).test(|site| {
        let shim = Shim::for_program(executable::PLUGIN)?;
        for (name, errno) in ERRORS {
            let pod = site.attached_pod()?;
            let (key, value) =
                Netlink::Refuse { message: DELLINK, nth: 1, errno: *errno }.variable();
            let outcome =
                shim.around(site.node.runtime().call("DEL", Some(&pod))).env(key, value).run()?;
            at_once(&outcome)?;
            if !outcome.status.success() {
                let error = outcome.failure()?;
                ensure!(
                    error.msg.contains(&pod.host_interface()) && !error.details.is_empty(),
                    "{name}: {error:?}"
                );
                site.del(&pod)?.success()?;
            }
            site.nothing_of(&pod).context(*name)?;
        }
        Ok(())
    });
}
