//! Multicast between pods: members of groups, and who of them hears what a pod sends.
//!
//! A member that hears nothing proves nothing by itself: each round ends with datagrams to the
//! members themselves, and only after those has a member not heard what was sent to the group.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    Lab, Pod, command,
    peer::{Held, PeerProcess, Report, TO_GROUP, TO_MEMBER},
    traffic::End,
};

/// How long the last datagrams of a round may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Datagrams of a round. One is lost now and then, while flows change.
const COUNT: usize = 10;

/// A pod that has joined a group, until this is dropped.
#[derive(Debug)]
pub struct Member {
    name: String,
    group: SocketAddr,
    /// Where it hears what is sent to it alone.
    own: SocketAddr,
    heard: Arc<Heard>,
    _listener: Held,
}

#[derive(Debug, Default)]
struct Heard {
    texts: Mutex<BTreeSet<String>>,
    more: Condvar,
}

impl Lab {
    /// The pod joins the group.
    pub fn member(&self, pod: &Pod, group: SocketAddr) -> Result<Member> {
        let own =
            pod.addresses.iter().map(|net| net.addr()).find(|own| own.is_ipv4() == group.is_ipv4());
        let own: IpAddr =
            own.with_context(|| format!("{} has no address of the family of {group}", pod.name))?;
        let mut listener = self.at(&End::Pod(pod))?;
        listener.args(["multicast-listen", &group.to_string()]);
        let listener = PeerProcess::start_ready(&mut listener, &Report::Listening(group))?;
        let heard = Arc::new(Heard::default());
        let noting = Arc::clone(&heard);
        let listener = listener.follow(move |report| {
            if let Report::Heard(text) = report {
                noting.texts().insert(text);
                noting.more.notify_all();
            }
        });
        let own = SocketAddr::new(own, group.port());
        Ok(Member { name: pod.name.clone(), group, own, heard, _listener: listener })
    }

    /// The pod sends to the members' group. Returns which of them hear it. `round`: another number
    /// each time.
    ///
    /// # Errors
    /// A member does not hear what is sent to itself.
    pub fn heard_by<const N: usize>(
        &self,
        sender: &Pod,
        round: u64,
        members: [&Member; N],
    ) -> Result<[bool; N]> {
        let group = members.first().context("a member")?.group;
        ensure!(members.iter().all(|member| member.group == group), "members of one group");
        let mut send = self.at(&End::Pod(sender))?;
        let (round_text, count) = (round.to_string(), COUNT.to_string());
        send.args(["multicast-send", &group.to_string(), &round_text, "--count", &count, "--then"]);
        send.arg(members.map(|member| member.own.to_string()).join(","));
        command::output(&mut send)?;
        for member in members {
            member.wait(&format!("{TO_MEMBER} {round}"))?;
        }
        let text = format!("{TO_GROUP} {round}");
        Ok(members.map(|member| member.heard.texts().contains(&text)))
    }
}

impl Heard {
    fn texts(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    fn wait(&self, text: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        let mut texts = self.heard.texts();
        while !texts.contains(text) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("{} does not hear what is sent to {} alone ({text})", self.name, self.own);
            }
            texts =
                self.heard.more.wait_timeout(texts, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}
