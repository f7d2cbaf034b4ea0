//! Packets between the pods, with their round-trip times and rates.

use std::{net::IpAddr, time::Instant};

use anyhow::{Context as _, Result};
use integration::{Lab, Pod};

use super::{
    line::{Line, Paint},
    screen::{Screen, WIDTH},
    tick,
};

/// Packets of a ping.
const PINGS: &str = "10";
/// Columns of the table.
const TO: usize = 12;
const ADDRESS: usize = 20;
const PATH: usize = 39;
const PING_END: usize = 64;

/// The head of the table.
pub(crate) fn head(bytes: u64) -> Line {
    let line = Line::default()
        .to(4)
        .add(Paint::Faint, "from")
        .to(TO)
        .add(Paint::Faint, "to")
        .to(ADDRESS)
        .add(Paint::Faint, "address");
    let line = line.to(PATH).add(Paint::Faint, "path").right(PING_END, Paint::Faint, "ping");
    line.right(WIDTH, Paint::Faint, format!("TCP, {} MiB", bytes >> 20))
}

/// Ping and TCP from one pod to every address of another, with a line for each. Returns the rates in Mbit/s.
pub(crate) fn exchange(
    screen: &mut Screen,
    lab: &Lab,
    [from, to]: [&Pod; 2],
    bytes: u64,
) -> Result<Vec<f64>> {
    let mut rates = Vec::new();
    for address in to.addresses.iter().map(ipnet::IpNet::addr) {
        let what = format!("{} sends to {} at {address}", from.name, to.name);
        screen.working_on(&what)?;
        let (ping, megabits) = match measure(lab, from, to, address, bytes) {
            Ok(measured) => measured,
            Err(error) => return screen.step(&what, || Err(error)),
        };
        let path = if from.node == to.node {
            format!("inside {}", from.node)
        } else {
            format!("{} → {}", from.node, to.node)
        };
        let line = tick().add(Paint::Pod, &from.name).to(TO).add(Paint::Pod, &to.name);
        let line = line.to(ADDRESS).text(address.to_string()).to(PATH).add(Paint::Faint, path);
        screen.line(line.right(PING_END, Paint::Plain, format!("{ping:.2} ms")).right(
            WIDTH,
            Paint::Plain,
            rate(megabits),
        ))?;
        rates.push(megabits);
    }
    Ok(rates)
}

/// The average round-trip time in milliseconds, and the rate in Mbit/s.
fn measure(lab: &Lab, from: &Pod, to: &Pod, address: IpAddr, bytes: u64) -> Result<(f64, f64)> {
    // Warm-up: the first packet waits for address resolution.
    lab.ping(from, address)?;
    let words = ["ping", "-n", "-q", "-c", PINGS, "-i", "0.01", "-W", "1"].map(str::to_owned);
    let report = lab.node_of(from).run_in_pod(from, words.into_iter().chain([address.to_string()]))?;
    let ping = average(&report).with_context(|| format!("ping does not say what it measured:\n{report}"))?;
    let began = Instant::now();
    lab.tcp_to(from, to, address, bytes)?;
    #[expect(clippy::cast_precision_loss, reason = "a rate of three digits")]
    let megabits = bytes as f64 * 8.0 / 1e6 / began.elapsed().as_secs_f64();
    Ok((ping, megabits))
}

/// The average in a line such as `rtt min/avg/max/mdev = 0.498/0.558/0.621/0.050 ms`.
fn average(report: &str) -> Option<f64> {
    let (_, numbers) = report.lines().find(|line| line.contains("min/avg/max"))?.split_once('=')?;
    numbers.split('/').nth(1)?.trim().parse().ok()
}

fn rate(megabits: f64) -> String {
    if megabits < 1000.0 {
        format!("{megabits:.0} Mbit/s")
    } else {
        format!("{:.1} Gbit/s", megabits / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_of_a_ping_is_read() {
        assert_eq!(average("5 received\nrtt min/avg/max/mdev = 0.498/0.558/0.621/0.050 ms\n"), Some(0.558));
        assert_eq!(average("round-trip min/avg/max = 0.1/0.2/0.3 ms"), Some(0.2));
        assert_eq!(average("5 packets transmitted, 0 received"), None);
    }

    #[test]
    fn rates_are_short() {
        assert_eq!(rate(99.7), "100 Mbit/s");
        assert_eq!(rate(1960.0), "2.0 Gbit/s");
    }
}
