//! Flows that are held: a packet each tenth of a second, and each second a line of counters for
//! every flow.

use std::{
    io::{self, ErrorKind},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use podnet::reach::Reply;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket, lookup_host},
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use super::{ATTEMPT, Kind, Probe, echo, report};

const EVERY: Duration = Duration::from_millis(100);
/// How often the counters are printed.
const PRINTED: Duration = Duration::from_secs(1);
/// How long an answer may take before its packet counts as lost.
const LATE: Duration = Duration::from_secs(2);
/// The most packets that wait for an answer.
const MOST: usize = 1000;

/// The counters of one flow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    pub flow: String,
    /// Packets whose answer came, or is too late.
    pub sent: u64,
    pub lost: u64,
    /// Connections that broke; the flow goes on over another one.
    pub broken: u64,
    /// The longest time without an answer, in milliseconds.
    pub gap_ms: u64,
}

/// Counters, and the packets that wait for an answer.
#[derive(Debug)]
struct Flow {
    counters: Counters,
    waiting: Vec<(u64, Instant)>,
    last: Instant,
}

impl Flow {
    fn sent(&mut self, number: u64, now: Instant) {
        let late = self.waiting.iter().filter(|(_, at)| now.duration_since(*at) > LATE).count();
        self.waiting.retain(|(_, at)| now.duration_since(*at) <= LATE);
        let lost = u64::try_from(late).unwrap_or(u64::MAX);
        self.counters.lost += lost;
        self.counters.sent += lost;
        if self.waiting.len() < MOST {
            self.waiting.push((number, now));
        }
        self.gap(now);
    }

    fn answered(&mut self, number: u64, now: Instant) {
        let before = self.waiting.len();
        self.waiting.retain(|(waiting, _)| *waiting != number);
        if self.waiting.len() < before {
            self.counters.sent += 1;
            self.gap(now);
            self.last = now;
        }
    }

    fn gap(&mut self, now: Instant) {
        let gap = u64::try_from(now.duration_since(self.last).as_millis()).unwrap_or(u64::MAX);
        self.counters.gap_ms = self.counters.gap_ms.max(gap);
    }
}

/// Holds the flows for ever.
pub(super) async fn hold(flows: Vec<Probe>) {
    let mut shared = Vec::new();
    for probe in flows {
        let counters = Counters { flow: probe.name.clone(), ..Counters::default() };
        let flow =
            Arc::new(Mutex::new(Flow { counters, waiting: Vec::new(), last: Instant::now() }));
        tokio::spawn(keep(probe, Arc::clone(&flow)));
        shared.push(flow);
    }
    let mut ticks = interval(PRINTED);
    loop {
        ticks.tick().await;
        for flow in &shared {
            report(&locked(flow).counters);
        }
    }
}

fn locked(flow: &Mutex<Flow>) -> std::sync::MutexGuard<'_, Flow> {
    flow.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps one flow: after a failure of its socket it begins again.
async fn keep(probe: Probe, flow: Arc<Mutex<Flow>>) {
    let mut number = 0;
    loop {
        let place =
            match lookup_host((probe.to.as_str(), probe.port)).await.map(|mut all| all.next()) {
                Ok(Some(place)) => place,
                _ => {
                    sleep(EVERY).await;
                    continue;
                }
            };
        let _ = match probe.kind {
            Kind::Icmp => ping(place, &flow, &mut number).await,
            Kind::Udp | Kind::UdpFull | Kind::Dns => datagrams(place, &flow, &mut number).await,
            Kind::Tcp | Kind::TcpBulk | Kind::Connect => stream(place, &flow, &mut number).await,
        };
        locked(&flow).counters.broken += 1;
        sleep(EVERY).await;
    }
}

async fn stream(place: SocketAddr, flow: &Mutex<Flow>, number: &mut u64) -> io::Result<()> {
    let mut stream = timeout(ATTEMPT, TcpStream::connect(place)).await??;
    stream.set_nodelay(true)?;
    let (mut reader, mut writer) = stream.split();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut word = [0; 8];
    let mut filled = 0;
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                *number += 1;
                locked(flow).sent(*number, Instant::now());
                writer.write_all(&number.to_be_bytes()).await?;
            }
            count = reader.read(&mut word[filled..]) => {
                match count? {
                    0 => return Err(ErrorKind::UnexpectedEof.into()),
                    count => filled += count,
                }
                if filled == word.len() {
                    filled = 0;
                    locked(flow).answered(u64::from_be_bytes(word), Instant::now());
                }
            }
        }
    }
}

async fn datagrams(place: SocketAddr, flow: &Mutex<Flow>, number: &mut u64) -> io::Result<()> {
    let from: SocketAddr = if place.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(from).await?;
    socket.connect(place).await?;
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut word = [0; 8];
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                *number += 1;
                locked(flow).sent(*number, Instant::now());
                // A refusal is an answer to an earlier packet; that one counts as lost.
                let _ = socket.send(&number.to_be_bytes()).await;
            }
            count = socket.recv(&mut word) => {
                if count.is_ok_and(|count| count == word.len()) {
                    locked(flow).answered(u64::from_be_bytes(word), Instant::now());
                }
            }
        }
    }
}

async fn ping(place: SocketAddr, flow: &Mutex<Flow>, number: &mut u64) -> io::Result<()> {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        *number += 1;
        let of_this = *number;
        locked(flow).sent(of_this, Instant::now());
        match echo(place.ip()).await {
            Reply::Answered => locked(flow).answered(of_this, Instant::now()),
            // Lost: it counts once it is late.
            Reply::Silent => {}
            Reply::NoRoute => return Err(ErrorKind::NetworkUnreachable.into()),
            Reply::Refused(why) | Reply::Unsent(why) => return Err(io::Error::other(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_lost_once_its_answer_is_late_and_an_answer_counts_once() {
        let start = Instant::now();
        let mut flow = Flow { counters: Counters::default(), waiting: Vec::new(), last: start };
        for number in 0..3 {
            flow.sent(number, start);
        }
        flow.answered(0, start + Duration::from_millis(10));
        flow.answered(0, start + Duration::from_millis(20));
        flow.sent(3, start + LATE + Duration::from_millis(1));
        let Counters { sent, lost, gap_ms, .. } = flow.counters;
        assert_eq!((sent, lost), (3, 2));
        assert_eq!(gap_ms, 1991);
        flow.answered(1, start + LATE);
        assert_eq!(flow.counters.sent, 3, "an answer that is late changes nothing");
    }
}
