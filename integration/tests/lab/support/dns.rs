//! A name server of the lab that knows a few names, may be silent about others, and may fail to
//! know even those.

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, UdpSocket},
    path::Path,
    process::Command,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use anyhow::{Context as _, Result};
use integration::{command, fabric, mounts};

/// The configuration of resolvers in the lab.
const CONFIGURATION: &str = "/etc/resolv.conf";
/// Seconds for which an answer is good.
const TTL: u32 = 5;

/// Ends with the process, which is the test.
pub(crate) struct Dns {
    /// None: it fails.
    known: Arc<Mutex<Option<Known>>>,
}

#[derive(Default)]
struct Known {
    /// By their labels.
    names: BTreeMap<Vec<u8>, Vec<IpAddr>>,
    /// Zones, by their labels, about whose names it says nothing.
    silent: Vec<Vec<u8>>,
}

impl Dns {
    /// Starts it, and makes it the one that programs of the lab ask.
    pub(crate) fn start(name: &str, addresses: Vec<IpAddr>) -> Result<Self> {
        let socket =
            UdpSocket::bind((fabric::LAB_ADDRESS, 53)).context("the name server's port")?;
        let file = Path::new(mounts::LAB).join("resolv.conf");
        fs::write(&file, format!("nameserver {}\n", fabric::LAB_ADDRESS))?;
        command::output(Command::new("mount").arg("--bind").arg(&file).arg(CONFIGURATION))?;
        let dns = Self { known: Arc::new(Mutex::new(Some(Known::default()))) };
        dns.says(name, addresses);
        let known = Arc::clone(&dns.known);
        thread::spawn(move || {
            let mut packet = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut packet) {
                if let Some(answer) = answer(&packet[..length], lock(&known).as_ref()) {
                    // The client is gone: it asks again.
                    let _ = socket.send_to(&answer, client);
                }
            }
        });
        Ok(dns)
    }

    /// The name has these addresses from now on.
    pub(crate) fn says(&self, name: &str, addresses: Vec<IpAddr>) {
        if let Some(known) = lock(&self.known).as_mut() {
            known.names.insert(labels(name), addresses);
        }
    }

    /// It does not answer for names of this zone.
    pub(crate) fn is_silent(&self, zone: &str) {
        if let Some(known) = lock(&self.known).as_mut() {
            known.silent.push(labels(zone));
        }
    }

    /// It knows nothing any more.
    pub(crate) fn fails(&self) {
        *lock(&self.known) = None;
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name as it is in a question.
fn labels(name: &str) -> Vec<u8> {
    let label = |label: &str| {
        [&[u8::try_from(label.len()).expect("a short name")], label.as_bytes()].concat()
    };
    name.split('.').flat_map(label).chain([0]).collect()
}

/// The answer to a packet with one question (RFC 1035 §4.1).
fn answer(packet: &[u8], known: Option<&Known>) -> Option<Vec<u8>> {
    let (header, question) = packet.split_at_checked(12)?;
    let question = &question[..question.iter().position(|byte| *byte == 0)? + 5];
    let (asked, kind) = question.split_at_checked(question.len() - 4)?;
    // Types A and AAAA.
    let is_wanted =
        |address: &&IpAddr| kind[..2] == if address.is_ipv4() { [0, 1] } else { [0, 28] };
    let (code, found): (u8, Vec<&IpAddr>) = match known {
        None => (2, Vec::new()),
        Some(known) if known.silent.iter().any(|zone| asked.ends_with(zone)) => return None,
        Some(known) => match known.names.get(asked) {
            None => (3, Vec::new()),
            Some(all) => (0, all.iter().filter(is_wanted).collect()),
        },
    };
    let count = u8::try_from(found.len()).expect("few addresses");
    let mut answer =
        [&header[..2], &[0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0], question].concat();
    for address in found {
        let octets = match address {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        // The name is that of the question.
        answer.extend([0xc0, 12]);
        answer.extend(kind);
        answer.extend(TTL.to_be_bytes());
        answer.extend([0, u8::try_from(octets.len()).expect("4 or 16")]);
        answer.extend(octets);
    }
    Some(answer)
}
