//! The changes of a bridge's flows, as `ovs-ofctl monitor` prints them: flow by flow, with the
//! time.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Read},
    ops::RangeInclusive,
    process::Stdio,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use integration::Node;
use testkit::process::Process;

/// Far longer than any time that is worth measuring.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);
/// Kubernetes' range of node ports.
const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;

/// The running program, until it is dropped.
#[derive(Debug)]
pub(super) struct Monitor {
    _program: Process,
    changes: Receiver<Change>,
    /// A change that nobody has asked for yet.
    first: Option<Change>,
    events: usize,
}

#[derive(Debug)]
struct Change {
    seen: Instant,
    kind: Kind,
    /// The node port that the flow leads to the gateway router.
    port: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The flow was there when the monitor began.
    Initial,
    Added,
    Deleted,
    /// It has other actions.
    Modified,
}

/// The node port in the text of a flow.
pub(super) fn flow_of_port(flow: &str) -> Option<u16> {
    let (_, rest) = flow.split_once("tp_dst=")?;
    let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok().filter(|port| NODE_PORTS.contains(port))
}

impl Monitor {
    /// Begins. The flows that are there come first, and this waits for the first of them: from then
    /// on every change is told.
    pub(super) fn start(node: &Node, bridge: &str) -> Result<Self> {
        let mut command = node.command("stdbuf");
        // The flows that are there are its standard output, and changes its standard error.
        command.args(["--output=L", "ovs-ofctl", "monitor", bridge, "watch:"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = Process::spawn(&mut command)?;
        let (sender, changes) = mpsc::channel();
        follow(program.stdout(), sender.clone(), |_| Some(Kind::Initial));
        follow(program.stderr(), sender, kind);
        let mut monitor = Self { _program: program, changes, first: None, events: 0 };
        // Every bridge has flows.
        monitor.first = Some(monitor.next("no flow was told")?);
        Ok(monitor)
    }

    /// Waits until each of these node ports has its flow; when the last one was seen.
    pub(super) fn until_added(&mut self, mut ports: BTreeSet<u16>) -> Result<Instant> {
        loop {
            let change = self.next(&format!("{} node ports have no flow", ports.len()))?;
            let comes = matches!(change.kind, Kind::Initial | Kind::Added);
            if comes && change.port.is_some_and(|port| ports.remove(&port)) && ports.is_empty() {
                return Ok(change.seen);
            }
        }
    }

    /// Waits until the flow of the node port is gone; when that was seen.
    pub(super) fn until_deleted(&mut self, port: u16) -> Result<Instant> {
        loop {
            let change = self.next(&format!("node port {port} has its flow"))?;
            if (change.kind, change.port) == (Kind::Deleted, Some(port)) {
                return Ok(change.seen);
            }
        }
    }

    /// Changes so far, without the flows that were there.
    pub(super) fn events(&self) -> usize {
        self.events
    }

    fn next(&mut self, missing: &str) -> Result<Change> {
        if let Some(first) = self.first.take() {
            return Ok(first);
        }
        match self.changes.recv_timeout(PATIENCE) {
            Ok(change) => {
                self.events += usize::from(change.kind != Kind::Initial);
                Ok(change)
            }
            Err(RecvTimeoutError::Timeout) => bail!("not within {PATIENCE:?}: {missing}"),
            Err(RecvTimeoutError::Disconnected) => bail!("ovs-ofctl monitor has ended: {missing}"),
        }
    }
}

/// Reads lines until the program ends, or nobody listens any more. `kind`: of the flow on a line.
fn follow(
    output: impl Read + Send + 'static,
    sender: Sender<Change>,
    kind: impl Fn(&str) -> Option<Kind> + Send + 'static,
) {
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let seen = Instant::now();
            let Some(kind) = kind(&line).filter(|_| line.contains("event=")) else { continue };
            if sender.send(Change { seen, kind, port: flow_of_port(&line) }).is_err() {
                return;
            }
        }
    });
}

/// What a line of changes says of a flow; none for other lines.
fn kind(line: &str) -> Option<Kind> {
    let event = line.split_whitespace().find_map(|word| word.strip_prefix("event="))?;
    match event {
        "ADDED" => Some(Kind::Added),
        "DELETED" => Some(Kind::Deleted),
        "MODIFIED" => Some(Kind::Modified),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_monitor_say_which_node_port_came_or_went() {
        let of_port = "table=0 cookie=0xdeff105 tcp,in_port=1,tp_dst=30080 actions=output:2";
        let gone = format!(" event=DELETED reason=delete {of_port}");
        assert_eq!((kind(&gone), flow_of_port(&gone)), (Some(Kind::Deleted), Some(30_080)));
        assert_eq!(kind(&format!(" event=ADDED {of_port}")), Some(Kind::Added));
        assert_eq!(kind("NXST_FLOW_MONITOR reply (xid=0x0):"), None);
        assert_eq!(flow_of_port("udp,in_port=1,tp_dst=6081 actions=LOCAL"), None, "a tunnel");
        assert_eq!(flow_of_port("tcp,in_port=1,tp_dst=32767"), Some(32_767));
    }
}
