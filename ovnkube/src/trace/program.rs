//! ovn-trace(8) as a program: the packet as its arguments, a deadline, and a bound for its output.

use std::{
    io::{self, ErrorKind},
    net::IpAddr,
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    time::Duration,
};

use contract::{mac::Mac, wire::TraceProtocol};
use tokio::{io::AsyncReadExt as _, net::unix::pipe::Receiver, time::timeout};

use crate::control_plane::Database;

const PROGRAM: &str = "ovn-trace";
/// It reads the whole southbound database first, which takes seconds for one of hundreds of nodes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of output that are read. A real way has some ten thousand.
const LONGEST: u64 = 1 << 22;
/// How often a packet may enter the connection tracker: twice for each switch and router that it
/// passes.
const TRACKED: usize = 32;
/// A client's port, as good as any other.
const CLIENT_PORT: u16 = 40_000;

/// The first packet of a connection, at a logical port.
#[derive(Debug, Clone)]
pub(super) struct Packet {
    pub(super) datapath: String,
    pub(super) inport: String,
    pub(super) source_mac: Mac,
    pub(super) destination_mac: Mac,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: TraceProtocol,
}

impl Packet {
    /// In the notation of ovn-trace(8).
    pub(super) fn microflow(&self) -> String {
        let Self { inport, source_mac, destination_mac, source, destination, .. } = self;
        let (ip, icmp) = match source {
            IpAddr::V4(_) => ("ip4", "icmp4 && icmp4.type == 8 && icmp4.code == 0"),
            IpAddr::V6(_) => ("ip6", "icmp6 && icmp6.type == 128 && icmp6.code == 0"),
        };
        let ports = |name: &str, port: u16| {
            format!("{name} && {name}.src == {CLIENT_PORT} && {name}.dst == {port}")
        };
        let protocol = match self.protocol {
            // SYN.
            TraceProtocol::Tcp(port) => ports("tcp", port) + " && tcp.flags == 2",
            TraceProtocol::Udp(port) => ports("udp", port),
            TraceProtocol::Icmp => icmp.to_owned(),
        };
        // A name in quotes, as JSON has it.
        let inport = serde_json::Value::from(inport.as_str());
        format!(
            "inport == {inport} && eth.src == {source_mac} && eth.dst == {destination_mac} && \
             {ip}.src == {source} && {ip}.dst == {destination} && ip.ttl == 64 && {protocol}"
        )
    }

    /// The output. `backend`: the one that load balancers choose.
    ///
    /// # Errors
    ///
    /// The program is not there, fails, or does not end in time.
    pub(super) async fn trace(
        &self,
        southbound: &Database,
        backend: Option<&str>,
    ) -> Result<String, String> {
        let mut command = Command::new(PROGRAM);
        command.arg(format!("--db={}", southbound.endpoints)).arg("--no-leader-only");
        if let Some(ssl) = &southbound.ssl {
            command.arg("-C").arg(&ssl.authority);
            if let Some(identity) = &ssl.identity {
                command.arg("-p").arg(&identity.private_key).arg("-c").arg(&identity.certificate);
            }
        }
        for _ in 0..TRACKED {
            command.args(["--ct", "new"]);
        }
        if let Some(backend) = backend {
            command.args(["--lb-dst", backend]);
        }
        command.arg(&self.datapath).arg(self.microflow());
        match timeout(PATIENCE, run(command)).await {
            Ok(output) => output,
            Err(_) => Err(format!("{PROGRAM} does not end within {} s", PATIENCE.as_secs())),
        }
    }
}

/// The program while it runs. It ends with this value, at the latest.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Whether it had ended already makes no difference.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the program; it ends with the returned future.
async fn run(mut command: Command) -> Result<String, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error: io::Error| format!("{PROGRAM}: {error}");
    let mut child = command.spawn().map(Running).map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!(
            "there is no program {PROGRAM} here: run this where OVN is installed, such as in the \
             pod ovnkube-node of a node"
        ),
        _ => failed(error),
    })?;
    let output = child.0.stdout.take().map(OwnedFd::from);
    let errors = child.0.stderr.take().map(OwnedFd::from);
    let (output, errors) = tokio::join!(bounded(output), bounded(errors));
    let (output, errors) = (output.map_err(failed)?, errors.map_err(failed)?);
    // It has closed its output, and ends.
    let status = child.0.wait().map_err(failed)?;
    match status.success() {
        true => Ok(output),
        false => {
            // The last line says it; lines before it are about connections.
            let why = errors.lines().next_back().unwrap_or("it says nothing");
            Err(format!("{PROGRAM} fails ({status}): {why}"))
        }
    }
}

/// The text of a pipe, up to the bound. The rest is read, so that the program can end.
async fn bounded(pipe: Option<OwnedFd>) -> io::Result<String> {
    let Some(pipe) = pipe else { return Ok(String::new()) };
    let mut pipe = Receiver::from_owned_fd(pipe)?;
    let mut bytes = Vec::new();
    (&mut pipe).take(LONGEST).read_to_end(&mut bytes).await?;
    tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
