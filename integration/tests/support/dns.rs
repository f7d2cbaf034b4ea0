//! A name server of the lab that knows one name, and may fail to know even that.

use std::{
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
    addresses: Arc<Mutex<Option<Vec<IpAddr>>>>,
}

impl Dns {
    /// Starts it, and makes it the one that programs of the lab ask.
    pub(crate) fn start(name: &str, addresses: Vec<IpAddr>) -> Result<Self> {
        let socket = UdpSocket::bind((fabric::LAB_ADDRESS, 53)).context("the name server's port")?;
        let file = Path::new(mounts::LAB).join("resolv.conf");
        fs::write(&file, format!("nameserver {}\n", fabric::LAB_ADDRESS))?;
        command::output(Command::new("mount").arg("--bind").arg(&file).arg(CONFIGURATION))?;
        let addresses = Arc::new(Mutex::new(Some(addresses)));
        let (known, labels) = (Arc::clone(&addresses), labels(name));
        thread::spawn(move || {
            let mut packet = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut packet) {
                if let Some(answer) = answer(&packet[..length], &labels, lock(&known).as_deref()) {
                    // The client is gone: it asks again.
                    let _ = socket.send_to(&answer, client);
                }
            }
        });
        Ok(Self { addresses })
    }

    /// It knows nothing any more.
    pub(crate) fn fails(&self) {
        *lock(&self.addresses) = None;
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name as it is in a question.
fn labels(name: &str) -> Vec<u8> {
    let label =
        |label: &str| [&[u8::try_from(label.len()).expect("a short name")], label.as_bytes()].concat();
    name.split('.').flat_map(label).chain([0]).collect()
}

/// The answer to a packet with one question (RFC 1035 §4.1).
fn answer(packet: &[u8], labels: &[u8], addresses: Option<&[IpAddr]>) -> Option<Vec<u8>> {
    let (header, question) = packet.split_at_checked(12)?;
    let question = &question[..question.iter().position(|byte| *byte == 0)? + 5];
    let (asked, kind) = question.split_at_checked(question.len() - 4)?;
    // Types A and AAAA.
    let is_wanted = |address: &&IpAddr| kind[..2] == if address.is_ipv4() { [0, 1] } else { [0, 28] };
    let (code, found): (u8, Vec<&IpAddr>) = match addresses {
        None => (2, Vec::new()),
        Some(_) if asked != labels => (3, Vec::new()),
        Some(all) => (0, all.iter().filter(is_wanted).collect()),
    };
    let count = u8::try_from(found.len()).expect("few addresses");
    let mut answer = [&header[..2], &[0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0], question].concat();
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
