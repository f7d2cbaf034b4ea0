//! OVN's logical network: what ovn-northd makes of the rows, asked one packet at a time with
//! ovn-trace.
//!
//! ovn-trace reads the southbound database once and then answers on its control socket
//! (`ovs-appctl(8)`), so that a packet costs a millisecond instead of a process.

use std::{
    cell::Cell,
    collections::BTreeSet,
    io::{BufReader, Write as _},
    net::{IpAddr, SocketAddr},
    os::unix::net::UnixStream,
    path::PathBuf,
};

use oracle::{
    Answer, Probe,
    world::{Pod, Protocol},
};
use ovsdb::{Connection, Transaction, Where};
use serde::Deserialize as _;
use serde_json::{Value, json};
use testkit::{Database, Scratch, process::Process, program};

use crate::database::Northbound;

const SCHEMA: &str = "/usr/share/ovn/ovn-sb.ovsschema";
/// The tables whose rows are not removed with those that refer to them.
const ROOTS: [&str; 8] = [
    "Logical_Switch",
    "Logical_Router",
    "Load_Balancer",
    "Load_Balancer_Group",
    "Port_Group",
    "Address_Set",
    "Copp",
    "Meter",
];
/// States of connection tracking that one trace asks for at most: once for each stage that looks.
const STATES: usize = 8;
/// Seconds for ovn-northd: far longer than it takes on a busy machine.
const PATIENCE: u32 = 60;
/// Host numbers of a node's management port, and of the router's port, in the node's subnets.
const MANAGEMENT: u8 = 2;
const ROUTER: u8 = 1;

/// Both databases and ovn-northd.
pub(crate) struct Logical {
    pub(crate) northbound: Northbound,
    _northd: Process,
    _southbound: Database,
    scratch: Scratch,
    /// Number of calls of [`Logical::traces`].
    traces: Cell<u32>,
}

/// The logical network at one moment.
pub(crate) struct Traces {
    connection: BufReader<UnixStream>,
}

impl Logical {
    pub(crate) fn start() -> Self {
        let (northbound, scratch) = (Northbound::start(), Scratch::new());
        let southbound = Database::of_schema(scratch.path(), "sb", SCHEMA);
        let mut command = program::unprivileged("ovn-northd");
        command
            .arg("-vconsole:off")
            .arg(format!("--ovnnb-db={}", northbound.endpoint()))
            .arg(format!("--ovnsb-db={}", southbound.endpoint()))
            .arg(format!("--unixctl={}", scratch.join("northd.ctl").display()))
            .arg(format!("--log-file={}", scratch.join("northd.log").display()));
        let northd = Process::start(&mut command);
        Self { northbound, _northd: northd, _southbound: southbound, scratch, traces: Cell::new(0) }
    }

    /// Removes all rows.
    pub(crate) async fn clear(&self, connection: &Connection) {
        let mut transaction = Transaction::new();
        for table in ROOTS {
            transaction.delete(table, Where::all());
        }
        connection.transact(transaction).await.unwrap();
    }

    /// Waits until ovn-northd has written what follows from the rows.
    fn sync(&self) {
        program::output(program::command("ovn-nbctl").args([
            &format!("--db={}", self.northbound.endpoint()),
            &format!("--timeout={PATIENCE}"),
            "--wait=sb",
            "sync",
        ]));
    }

    /// The number of logical flows that follow from the rows.
    pub(crate) fn flows(&self) -> usize {
        self.sbctl(&["--bare", "--columns=priority", "list", "Logical_Flow"])
            .split_whitespace()
            .count()
    }

    /// What ovn-sbctl prints, once ovn-northd has written what follows from the rows.
    pub(crate) fn sbctl(&self, arguments: &[&str]) -> String {
        self.sync();
        let database = format!("--db=unix:{}", self.scratch.join("sb.sock").display());
        program::output(program::command("ovn-sbctl").arg(database).args(arguments))
    }

    /// The network that follows from the rows, for that many traces.
    pub(crate) fn traces(&self, count: usize) -> Traces {
        self.sync();
        // It returns when it has read the database, and goes on in the background. A socket of its
        // own: the one before may still be about to end, and removes its socket then.
        let number = self.traces.replace(self.traces.get() + 1);
        let socket = self.scratch.join(format!("trace-{number}.ctl"));
        program::output(
            program::unprivileged("ovn-trace")
                .arg(format!("--db=unix:{}", self.scratch.join("sb.sock").display()))
                .arg(format!("--unixctl={}", socket.display()))
                .args(["--detach", "--no-chdir", "-vconsole:off"])
                // Each is used once, by whichever trace comes to it: all connections are new ones.
                .args(std::iter::repeat_n("--ct=new", STATES * count)),
        );
        Traces::open(socket)
    }
}

impl Traces {
    fn open(socket: PathBuf) -> Self {
        let stream = UnixStream::connect(&socket).unwrap();
        Self { connection: BufReader::new(stream) }
    }

    /// The trace of the first packet of the connection.
    pub(crate) fn trace(&mut self, probe: &Probe) -> String {
        self.of_packet(&probe.client.node.name(), &packet(probe))
    }

    /// The trace of a packet in a switch or router, in the language of ovn-trace(8).
    pub(crate) fn of_packet(&mut self, datapath: &str, packet: &str) -> String {
        self.ask("trace", &[datapath, packet]).unwrap()
    }

    fn ask(&mut self, method: &str, parameters: &[&str]) -> Result<String, String> {
        let request = json!({ "id": 0, "method": method, "params": parameters }).to_string();
        self.connection
            .get_mut()
            .write_all(request.as_bytes())
            .map_err(|error| error.to_string())?;
        let mut answers = serde_json::Deserializer::from_reader(&mut self.connection);
        let answer = Value::deserialize(&mut answers).map_err(|error| error.to_string())?;
        match (answer["result"].as_str(), answer["error"].as_str()) {
            (Some(result), _) => Ok(result.to_owned()),
            (None, error) => Err(error.unwrap_or_default().to_owned()),
        }
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        // It may have ended with the database.
        let _ = self.ask("exit", &[]);
    }
}

/// The first packet, where it enters the switch of the client's node.
fn packet(Probe { client, protocol, address, port }: &Probe) -> String {
    let node = &client.node;
    let (port_of_client, host) = match &client.pod {
        Some(pod) => (format!("{}_{}", Pod::NAMESPACE, pod.name()), pod.host),
        // A node sends to Services from its management port.
        None => (format!("k8s-{}", node.name()), MANAGEMENT),
    };
    let (family, hops) = if address.is_ipv4() { ("ip4", "ip.ttl") } else { ("ip6", "ip.ttl") };
    let source = node.subnet_address(host, address.is_ipv6());
    let protocol = match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    };
    format!(
        "inport == \"{port_of_client}\" && eth.src == {} && eth.dst == {} && {family}.src == {source} \
         && {family}.dst == {address} && {hops} == 64 && {protocol} && {protocol}.src == 40000 \
         && {protocol}.dst == {port}",
        node.mac(host),
        node.mac(ROUTER),
    )
}

/// What the client of a trace finds.
///
/// # Errors
///
/// The trace shows more than one choice of backends.
pub(crate) fn answer(trace: &str) -> Result<Answer, String> {
    let lists = trace.lines().filter_map(|line| {
        let line = line.trim();
        let list = line
            .strip_prefix("ct_lb_mark(backends=")
            .or_else(|| line.strip_prefix("ct_lb(backends="));
        list?.split([';', ')']).next()
    });
    let lists: Vec<&str> = lists.collect();
    let refused = trace.lines().any(|line| line.trim().starts_with("reject {"));
    match (&lists[..], refused) {
        ([], false) => Ok(Answer::NoService),
        ([], true) => Ok(Answer::Refused),
        ([list], false) => {
            let backends = list.split(',').map(|text| text.parse::<SocketAddr>());
            let backends: Result<BTreeSet<SocketAddr>, _> = backends.collect();
            backends.map(Answer::OneOf).map_err(|error| format!("{list}: {error}"))
        }
        _ => Err(format!("{lists:?}, refused: {refused}")),
    }
}

/// The port of a pod that the packet leaves OVN at.
pub(crate) fn delivered(trace: &str) -> Option<&str> {
    let line = trace.lines().rev().find_map(|line| line.trim().strip_prefix("/* output to \""))?;
    line.split('"').next()
}

/// The port of the pod with the address.
pub(crate) fn port_of(pods: &[Pod], address: IpAddr) -> Option<String> {
    let pod = pods.iter().find(|pod| pod.addresses().contains(&address))?;
    Some(format!("{}_{}", Pod::NAMESPACE, pod.name()))
}
