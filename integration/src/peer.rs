//! The two ends of traffic between pods, run as `integration peer …` in the pods' namespaces.
//!
//! Each prints one JSON line at a time on standard output and has a time limit of its own: a lost
//! packet must not hang a test. `PeerProcess` starts one, and reads its lines.

mod connections;
mod drip;
mod idle;
mod multicast;
mod process;
mod questions;
mod raw;
mod sctp;
mod stream;

use std::{
    collections::BTreeMap,
    fmt,
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Subcommand;
use connections::Says;
use contract::fnv1a::{fnv1a, fnv1a_after};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

pub use connections::{Connection, Moment, Pace};
pub use drip::Kept;
pub use multicast::{TO_GROUP, TO_MEMBER};
pub(crate) use process::{Held, PeerProcess};
pub use questions::Reply;
pub use stream::Poured;

/// How long an end waits for the other. Long enough for three repetitions of a lost SYN (1, 3 and 7
/// s after it), and short enough that a broken network fails the test soon.
const PATIENCE: Duration = Duration::from_secs(10);

/// What an end does.
#[derive(Debug, Subcommand)]
pub enum Peer {
    /// Accept one connection on ADDRESS, read it to its end, answer with length and checksum.
    TcpServe {
        /// Address to listen on; the port is chosen by the kernel and printed.
        address: IpAddr,
    },
    /// Send BYTES bytes to ADDRESS and compare the answer.
    TcpSend {
        /// Address and port.
        to: SocketAddr,
        /// How many bytes.
        bytes: u64,
    },
    /// Answer every datagram that arrives on ADDRESS, until standard input closes.
    UdpEcho {
        /// Address to listen on; the port is chosen by the kernel and printed.
        address: IpAddr,
    },
    /// Send datagrams to ADDRESS, count the answers; ends after COUNT, or when standard input
    /// closes.
    UdpSend {
        /// Address and port.
        to: SocketAddr,
        /// Length of a datagram in bytes, at least 8.
        #[arg(long, default_value_t = 64)]
        size: usize,
        /// How many datagrams.
        #[arg(long, default_value_t = u64::MAX)]
        count: u64,
        /// Milliseconds between two datagrams.
        #[arg(long, default_value_t = 5)]
        every: u64,
    },
    /// Send back what each connection to ADDRESS sends, until standard input closes.
    TcpEcho {
        /// Address to listen on.
        address: IpAddr,
        /// Port; otherwise the kernel chooses one, which is printed.
        #[arg(long, default_value_t = 0)]
        port: u16,
    },
    /// Send a byte now and then over one connection to ADDRESS, which must come back each time;
    /// ends when standard input closes.
    TcpDrip {
        /// Address and port.
        to: SocketAddr,
        /// Milliseconds between two bytes.
        #[arg(long, default_value_t = 1000)]
        every: u64,
    },
    /// Answer each TCP connection and each datagram to one of the ADDRESSES with that address,
    /// until killed.
    Answer {
        /// Answer with the client's address instead.
        #[arg(long)]
        client: bool,
        /// Addresses and ports to listen on.
        #[arg(required = true)]
        addresses: Vec<SocketAddr>,
    },
    /// Connect to ADDRESS again and again, and print each connection that is answered, refused or
    /// neither, until killed.
    Connect {
        /// Address and port.
        to: SocketAddr,
        /// Milliseconds between two connections.
        #[arg(long)]
        every: u64,
        /// Milliseconds after which a connection counts as not answered.
        #[arg(long)]
        patience: u64,
    },
    /// Connect to each address that a line on standard input names, again and again, and print the
    /// first connection that is answered or refused; ends with standard input.
    Reach {
        /// Milliseconds between two connections; more when an address is silent for long.
        #[arg(long)]
        every: u64,
        /// Milliseconds after which a connection counts as not answered.
        #[arg(long)]
        patience: u64,
    },
    /// Connect to ADDRESS one time after the other, and print at the end how long each connection
    /// took.
    Repeat {
        /// Address and port.
        to: SocketAddr,
        /// Milliseconds.
        #[arg(long, value_name = "MILLISECONDS")]
        time: u64,
    },
    /// Read what each connection to ADDRESS sends, until killed.
    TcpDrain {
        /// Address and port to listen on.
        address: SocketAddr,
    },
    /// Send to ADDRESS for some time over one connection, and print how much has arrived.
    TcpPour {
        /// Address and port.
        to: SocketAddr,
        /// Milliseconds.
        #[arg(long, value_name = "MILLISECONDS")]
        time: u64,
    },
    /// Join GROUP, and print what arrives at its port, until standard input closes.
    MulticastListen {
        /// Group and port.
        group: SocketAddr,
    },
    /// Send datagrams with NUMBER to GROUP, and after them some to each of its members themselves.
    MulticastSend {
        /// Group and port.
        group: SocketAddr,
        /// What the datagrams say.
        number: u64,
        /// How many datagrams go to the group.
        #[arg(long)]
        count: usize,
        /// Addresses and ports of the members.
        #[arg(long, value_delimiter = ',')]
        then: Vec<SocketAddr>,
    },
    /// Answer each SCTP association to one of the ADDRESSES with that address, until killed.
    SctpAnswer {
        /// Addresses and ports.
        #[arg(required = true)]
        addresses: Vec<SocketAddr>,
    },
    /// Ask each of the ADDRESSES for an SCTP association, and print who answers.
    SctpAsk {
        /// Addresses and ports.
        #[arg(required = true)]
        addresses: Vec<SocketAddr>,
    },
    /// Send frames on an interface, each a line of hexadecimal digits on standard input.
    SendFrames {
        /// The interface.
        interface: String,
        /// How often each.
        #[arg(long, default_value_t = 1)]
        times: u32,
    },
    /// Keep connections to ADDRESS that are hardly used, until killed.
    Keep {
        /// Address and port.
        to: SocketAddr,
        /// How many.
        #[arg(long)]
        count: usize,
        /// What each says first; then a byte now and then, unless that is empty.
        #[arg(long, default_value = "")]
        says: String,
    },
    /// Count the frames with MARK that come to an interface, until standard input closes.
    Sniff {
        /// The interface.
        interface: String,
        /// What a frame has somewhere, in hexadecimal digits.
        mark: String,
    },
    /// Count the datagrams with MARK that come to an address and port, until standard input closes.
    Hear {
        /// Address and port.
        at: SocketAddr,
        /// What a datagram has somewhere, in hexadecimal digits.
        mark: String,
    },
    /// Ask each of the ADDRESSES once, all together, and print who answers.
    Ask {
        /// Ask by TCP.
        #[arg(long, value_delimiter = ',')]
        tcp: Vec<SocketAddr>,
        /// Ask by UDP.
        #[arg(long, value_delimiter = ',')]
        udp: Vec<SocketAddr>,
    },
}

/// What an end reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// It listens here.
    Listening(SocketAddr),
    /// Length and checksum of what was transferred.
    Transferred(Transfer),
    /// Datagrams sent and answers received.
    Echoed(Echoes),
    /// It answers connections from now on.
    Answering,
    /// It connects from now on.
    Connecting,
    /// A connection was answered or refused.
    Connected(Connection),
    /// A connection that was begun then was neither.
    Unanswered(Moment),
    /// The connection lived until now.
    Kept(Kept),
    /// Microseconds of each connection, from its first packet to its answer.
    Repeated(Vec<u32>),
    /// So much has arrived.
    Poured(Poured),
    /// So many were sent, or have come.
    Counted(u64),
    /// A datagram with this text came.
    Heard(String),
    /// Who answered, in the order of the addresses: by TCP and by UDP.
    Asked([Vec<Reply>; 2]),
    /// Who answered by SCTP, in the order of the addresses.
    AskedBySctp(Vec<Reply>),
}

/// One TCP transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Length in bytes.
    pub bytes: u64,
    /// FNV-1a, 64 bits.
    pub checksum: u64,
}

/// A UDP exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echoes {
    /// Datagrams sent.
    pub sent: u64,
    /// Answers that came, with the right content.
    pub received: u64,
    /// Milliseconds: the longest time without an answer, from the first datagram to the end.
    pub longest_silence: u64,
    /// Datagrams without an answer, in the order in which they were sent.
    pub lost: Vec<Lost>,
}

/// Datagrams that were sent one after the other, and of which none was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Milliseconds from the first datagram of all to the first of these.
    pub at: u64,
    /// How many these are.
    pub count: u64,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:.2} s", self.count, self.at as f64 / 1e3)
    }
}

impl Echoes {
    /// The longest time without an answer.
    pub fn silence(&self) -> Duration {
        Duration::from_millis(self.longest_silence)
    }

    /// Checks that every datagram was answered, and that more than `least` were sent.
    ///
    /// # Errors
    /// If an answer is missing, or too few were sent.
    pub fn none_is_lost(&self, least: u64) -> Result<()> {
        ensure!(self.sent > least && self.received == self.sent, "packets were lost: {self:?}");
        Ok(())
    }
}

impl Peer {
    /// Runs this end; `report` prints a line for the other process.
    pub fn run(self, report: impl Fn(&Report) + Send + Sync + 'static) -> Result<()> {
        match self {
            Self::TcpServe { address } => tcp_serve(address, report),
            Self::TcpSend { to, bytes } => {
                tcp_send(to, bytes).map(|transfer| report(&Report::Transferred(transfer)))
            }
            Self::UdpEcho { address } => udp_echo(address, report),
            Self::UdpSend { to, size, count, every } => {
                udp_send(to, size, count, Duration::from_millis(every))
                    .map(|echoes| report(&Report::Echoed(echoes)))
            }
            Self::TcpEcho { address, port } => drip::echo(address, port, report),
            Self::TcpDrip { to, every } => drip::drip(to, Duration::from_millis(every), report),
            Self::Answer { client, addresses } => {
                let says = if client { Says::Client } else { Says::Server };
                connections::serve(&addresses, says, report)
            }
            Self::Connect { to, every, patience } => {
                let [every, patience] = [every, patience].map(Duration::from_millis);
                connections::connect(to, Pace { every, patience }, report)
            }
            Self::Reach { every, patience } => {
                let [every, patience] = [every, patience].map(Duration::from_millis);
                connections::reach(Pace { every, patience }, report)
            }
            Self::Repeat { to, time } => connections::repeat(to, Duration::from_millis(time))
                .map(|taken| report(&Report::Repeated(taken))),
            Self::TcpDrain { address } => stream::drain(address, report),
            Self::TcpPour { to, time } => stream::pour(to, Duration::from_millis(time))
                .map(|poured| report(&Report::Poured(poured))),
            Self::MulticastListen { group } => multicast::listen(group, report),
            Self::MulticastSend { group, number, count, then } => {
                multicast::send(group, number, count, &then)
            }
            Self::SendFrames { interface, times } => raw::send_frames(&interface, times, report),
            Self::Keep { to, count, says } => idle::keep(to, count, &says, report),
            Self::Sniff { interface, mark } => raw::sniff(&interface, &mark, report),
            Self::Hear { at, mark } => raw::hear(at, &mark, report),
            Self::SctpAnswer { addresses } => sctp::answer(&addresses, report),
            Self::SctpAsk { addresses } => {
                sctp::ask_all(&addresses).map(|replies| report(&Report::AskedBySctp(replies)))
            }
            Self::Ask { tcp, udp } => {
                questions::ask_all(&tcp, &udp).map(|replies| report(&Report::Asked(replies)))
            }
        }
    }
}

fn tcp_serve(address: IpAddr, mut report: impl FnMut(&Report)) -> Result<()> {
    let listener =
        TcpListener::bind((address, 0)).with_context(|| format!("listen on {address}"))?;
    report(&Report::Listening(listener.local_addr()?));
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let transfer = receive(&mut stream)?;
    report(&Report::Transferred(transfer));
    writeln!(stream, "{}", serde_json::to_string(&transfer)?).context("answer")
}

fn receive(stream: &mut impl Read) -> Result<Transfer> {
    let mut transfer = Transfer { bytes: 0, checksum: fnv1a([]) };
    let mut block = vec![0; 1 << 16];
    loop {
        let length = stream
            .read(&mut block)
            .with_context(|| format!("read after {} bytes", transfer.bytes))?;
        if length == 0 {
            return Ok(transfer);
        }
        transfer.bytes += length as u64;
        transfer.checksum = fnv1a_after(transfer.checksum, block[..length].iter().copied());
    }
}

fn tcp_send(to: SocketAddr, bytes: u64) -> Result<Transfer> {
    let mut stream =
        TcpStream::connect_timeout(&to, PATIENCE).with_context(|| format!("connect to {to}"))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut sent = Transfer { bytes: 0, checksum: fnv1a([]) };
    // Bytes that look random, so that a transfer in the wrong order has another checksum.
    let mut noise = Rng::with_seed(1);
    let mut block = vec![0; 1 << 16];
    while sent.bytes < bytes {
        noise.fill(&mut block);
        let length = block.len().min(usize::try_from(bytes - sent.bytes).unwrap_or(usize::MAX));
        stream
            .write_all(&block[..length])
            .with_context(|| format!("write after {} bytes", sent.bytes))?;
        sent.bytes += length as u64;
        sent.checksum = fnv1a_after(sent.checksum, block[..length].iter().copied());
    }
    // The other end reads to the end of the stream before it answers.
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("read the answer")?;
    let received: Transfer =
        serde_json::from_str(&answer).with_context(|| format!("answer {answer:?}"))?;
    ensure!(received == sent, "sent {sent:?}, but the other end received {received:?}");
    Ok(sent)
}

fn udp_echo(address: IpAddr, mut report: impl FnMut(&Report)) -> Result<()> {
    let socket = UdpSocket::bind((address, 0)).with_context(|| format!("listen on {address}"))?;
    // Wakes the loop ten times a second, to see whether standard input has closed.
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    report(&Report::Listening(socket.local_addr()?));
    let until = end_of_input();
    let mut datagram = vec![0; 1 << 16];
    while !until.is_finished() {
        match socket.recv_from(&mut datagram) {
            // Ignored: a failed answer is a lost packet, and the sender counts those.
            Ok((length, from)) => drop(socket.send_to(&datagram[..length], from)),
            Err(error) if would_block(&error) => {}
            Err(error) => return Err(error).context("receive"),
        }
    }
    Ok(())
}

fn udp_send(to: SocketAddr, size: usize, count: u64, every: Duration) -> Result<Echoes> {
    let any: IpAddr = if to.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    let until = end_of_input();
    let began = Instant::now();
    let mut exchange = Exchange::default();
    let mut longest_silence = 0;
    let mut answered = Instant::now();
    let (mut datagram, mut answer) = (vec![0; size.max(NUMBER)], vec![0; 1 << 16]);
    Rng::with_seed(1).fill(&mut datagram);
    while exchange.sent < count && !until.is_finished() {
        let slot_ends = Instant::now() + every;
        // The number makes each datagram different.
        datagram[..NUMBER].copy_from_slice(&exchange.sent.to_be_bytes());
        exchange.unanswered.insert(exchange.sent, milliseconds(began));
        // Ignored: ECONNREFUSED and the like report an earlier datagram, and one that was not sent
        // counts as lost.
        let _ = socket.send(&datagram);
        exchange.sent += 1;
        let before = exchange.received;
        exchange.receive_until(&socket, slot_ends, &mut answer, &datagram)?;
        // As exact as the time between two datagrams, which is longer than asked for on a busy
        // machine.
        longest_silence = milliseconds(answered).max(longest_silence);
        if exchange.received > before {
            answered = Instant::now();
        }
    }
    // The last answers may still be on their way: half a second is far more than a round trip in
    // the lab.
    let end = Instant::now() + Duration::from_millis(500);
    if exchange.received < exchange.sent {
        exchange.receive_until(&socket, end, &mut answer, &datagram)?;
    }
    let Exchange { sent, received, .. } = exchange;
    Ok(Echoes { sent, received, longest_silence, lost: exchange.lost() })
}

/// Bytes of a datagram's number, with which it begins.
const NUMBER: usize = 8;

fn milliseconds(since: Instant) -> u64 {
    since.elapsed().as_millis().try_into().unwrap_or(u64::MAX)
}

/// Datagrams and their answers.
#[derive(Default)]
struct Exchange {
    sent: u64,
    received: u64,
    /// By number: when it was sent, in milliseconds.
    unanswered: BTreeMap<u64, u64>,
}

impl Exchange {
    /// Counts answers until `end`.
    fn receive_until(
        &mut self,
        socket: &UdpSocket,
        end: Instant,
        answer: &mut [u8],
        sent: &[u8],
    ) -> Result<()> {
        while let Some(left) =
            end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            socket.set_read_timeout(Some(left))?;
            match socket.recv(answer) {
                // The answer to an earlier datagram counts, too.
                Ok(length) if length == sent.len() && answer[NUMBER..length] == sent[NUMBER..] => {
                    self.received += 1;
                    let number = answer.first_chunk().map(|number| u64::from_be_bytes(*number));
                    number.map(|number| self.unanswered.remove(&number));
                }
                Ok(_) => {}
                Err(error)
                    if would_block(&error) || error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error).context("receive"),
            }
        }
        Ok(())
    }

    fn lost(self) -> Vec<Lost> {
        let mut lost: Vec<Lost> = Vec::new();
        let mut next = None;
        for (number, at) in self.unanswered {
            match lost.last_mut() {
                Some(last) if next == Some(number) => last.count += 1,
                _ => lost.push(Lost { at, count: 1 }),
            }
            next = Some(number + 1);
        }
        lost
    }
}

fn would_block(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Starts a thread that ends with standard input.
fn end_of_input() -> std::thread::JoinHandle<()> {
    std::thread::spawn(|| drop(std::io::stdin().read_to_end(&mut Vec::new())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_datagrams_are_told_by_when_they_were_sent() {
        let unanswered = [(3, 15), (4, 20), (5, 25), (9, 46)].into();
        let lost = Exchange { sent: 10, received: 6, unanswered }.lost();
        assert_eq!(lost, [Lost { at: 15, count: 3 }, Lost { at: 46, count: 1 }]);
        assert_eq!(lost[0].to_string(), "3 at 0.01 s");
        assert_eq!(Exchange::default().lost(), []);
    }

    #[test]
    fn a_transfer_arrives_as_it_was_sent() {
        let (port, address) = std::sync::mpsc::channel();
        let server = std::thread::spawn(move || {
            tcp_serve([127, 0, 0, 1].into(), |report| {
                if let Report::Listening(address) = report {
                    port.send(*address).unwrap();
                }
            })
        });
        let transfer = tcp_send(address.recv().unwrap(), 100_001).unwrap();
        assert_eq!(transfer.bytes, 100_001);
        server.join().unwrap().unwrap();
    }
}
