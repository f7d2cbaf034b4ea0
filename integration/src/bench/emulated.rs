//! The commands that upstream's ADD and DEL send to Open vSwitch, as a contestant for when upstream's plugin
//! is not at hand. It is an emulation, and is labelled so wherever its figures appear.
//!
//! The commands are those that upstream's documents and logs show, in their order: eight `ovs-vsctl` one
//! after the other, the last of them repeated every 200 ms until OVN has installed the port. The kernel's
//! part is the same as the floor's. The emulation is faster than upstream's plugin, because it omits the
//! start of the plugin itself (13 to 19 ms), its two HTTP requests and the wait for the annotation, which
//! takes 200 ms unless the annotation is already there.

use std::{
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use contract::{mac::Mac, paths::INTEGRATION_BRIDGE};
use integration::eventually;

use super::{
    floor::{FloorPod, milliseconds},
    measurements::Call,
    netlink::Netlink,
};

/// Upstream's poll interval.
const PAUSE: Duration = Duration::from_millis(200);
/// Limit for one wait: so long that a slow call of the emulation is measured and does not fail.
const PATIENCE: Duration = Duration::from_secs(120);

/// What DEL needs to know of an ADD.
#[derive(Debug, Clone)]
pub(crate) struct Attached {
    sandbox: String,
    link: String,
}

/// ADD.
pub(crate) fn add(
    netlink: &Netlink,
    mtu: u32,
    pod: &FloorPod<'_>,
    sandbox: &str,
) -> (Call, Option<Attached>) {
    let link: String = sandbox.chars().take(15).collect();
    let began = Instant::now();
    let done = attach(netlink, mtu, pod, sandbox, &link);
    let call = finish(began, done);
    let attached = Attached { sandbox: sandbox.to_owned(), link };
    if call.error.is_some() {
        // A container runtime sends DEL after a failed ADD. Without it, the leftover port would make later
        // calls fail.
        drop(attached.detach_at_last(netlink));
        return (call, None);
    }
    (call, Some(attached))
}

impl Attached {
    /// DEL.
    pub(crate) fn del(&self, netlink: &Netlink) -> Call {
        let began = Instant::now();
        let mut call = finish(began, self.detach(netlink));
        if call.error.is_some()
            && let Err(error) = self.detach_at_last(netlink)
        {
            call.error = Some(format!("{error:#}"));
        }
        call
    }

    /// Repeats DEL as a runtime does. With 100 callers at once, the database is too busy to accept
    /// ovs-vsctl's connection, and DEL fails.
    fn detach_at_last(&self, netlink: &Netlink) -> Result<()> {
        let Self { link, .. } = self;
        eventually("DEL is repeated until it succeeds", PATIENCE, || {
            vsctl(&format!("--if-exists del-port {INTEGRATION_BRIDGE} {link}"))?;
            if Path::new("/sys/class/net").join(link).exists() { netlink.delete_link(link) } else { Ok(()) }
        })
    }

    fn detach(&self, netlink: &Netlink) -> Result<()> {
        let Self { sandbox, link } = self;
        vsctl(&format!("--columns=name find interface external-ids:sandbox={sandbox}"))?;
        vsctl(&format!("del-port {INTEGRATION_BRIDGE} {link}"))?;
        netlink.delete_link(link)?;
        vsctl(&format!("--if-exists clear port {link} qos"))?;
        vsctl(&format!("--columns=_uuid find qos external-ids:sandbox={sandbox}")).map(drop)
    }
}

fn attach(
    netlink: &Netlink,
    mtu: u32,
    FloorPod { pod, netns }: &FloorPod<'_>,
    sandbox: &str,
    link: &str,
) -> Result<()> {
    netlink.add_veth(link, mtu, pod.mac.parse::<Mac>()?.octets(), netns)?;
    netns.netlink.configure_eth0(pod.address, pod.gateway)?;
    let (iface_id, uid, mac, address) = (&pod.iface_id, &pod.uid, &pod.mac, pod.address);
    vsctl(&format!("--if-exists get bridge {INTEGRATION_BRIDGE} datapath_type"))?;
    vsctl(&format!("--columns=name find Interface external-ids:iface-id={iface_id}"))?;
    vsctl(&format!("--columns=external_ids find Interface name={link}"))?;
    vsctl(&format!(
        "--may-exist add-port {INTEGRATION_BRIDGE} {link} -- set interface {link} \
         external_ids:attached_mac={mac} \
         external_ids:iface-id={iface_id} external_ids:iface-id-ver={uid} external_ids:sandbox={sandbox} \
         external_ids:ip_addresses={address} -- --if-exists remove interface {link} external_ids \
         k8s.ovn.org/network \
         -- --if-exists remove interface {link} external_ids k8s.ovn.org/nad"
    ))?;
    vsctl(&format!("--columns=name find interface external-ids:sandbox={sandbox}"))?;
    vsctl(&format!("--if-exists clear port {link} qos"))?;
    vsctl(&format!("--columns=_uuid find qos external-ids:sandbox={sandbox}"))?;
    let began = Instant::now();
    while !vsctl(&format!(
        "--if-exists get Interface {link} external-ids:iface-id external-ids:ovn-installed"
    ))?
    .contains("true")
    {
        ensure!(began.elapsed() < PATIENCE, "no ovn-installed on {link} within {PATIENCE:?}");
        pause();
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the emulation includes upstream's pause")]
fn pause() {
    thread::sleep(PAUSE);
}

/// Runs ovs-vsctl once, with upstream's time limit.
fn vsctl(words: &str) -> Result<String> {
    let mut command = Command::new("ovs-vsctl");
    command
        .args(["--timeout=30", "--no-heading", "--format=csv", "--data=bare"])
        .args(words.split_whitespace());
    let output = command.stdin(Stdio::null()).output().context("start ovs-vsctl")?;
    ensure!(output.status.success(), "ovs-vsctl {words}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn finish(began: Instant, done: Result<()>) -> Call {
    let duration = milliseconds(began.elapsed());
    Call { duration, parts: Vec::new(), error: done.err().map(|error| format!("{error:#}")) }
}
