//! Frames of a raw socket, and ends that count what arrives with a mark.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail};

use super::End;
use crate::{
    Lab, command,
    peer::{PeerProcess, Report},
};

/// Counts what arrives.
#[derive(Debug)]
pub struct Counter {
    peer: PeerProcess,
}

impl Lab {
    /// Sends these frames on an interface of that end, so often each; how many have left.
    pub fn send_frames(
        &self,
        from: &End<'_>,
        interface: &str,
        frames: &[Vec<u8>],
        times: u32,
    ) -> Result<u64> {
        let input: String = frames.iter().map(|frame| digits(frame) + "\n").collect();
        let mut sender = self.at(from)?;
        let text = command::output_with_input(
            sender.args(["send-frames", interface, "--times", &times.to_string()]),
            &input,
        )?;
        match serde_json::from_str(&text).with_context(|| text.clone())? {
            Report::Counted(sent) => Ok(sent),
            other => bail!("the sender reports {other:?}"),
        }
    }

    /// Counts frames with this mark that come to an interface of that end.
    pub fn sniffing(&self, at: &End<'_>, interface: &str, mark: &[u8]) -> Result<Counter> {
        let mut command = self.at(at)?;
        command.args(["sniff", interface, &digits(mark)]);
        Ok(Counter { peer: PeerProcess::start_ready(&mut command, &Report::Answering)? })
    }

    /// Counts datagrams with this mark that come to an address and port of that end.
    pub fn hearing(&self, end: &End<'_>, at: SocketAddr, mark: &[u8]) -> Result<Counter> {
        let mut command = self.at(end)?;
        command.args(["hear", &at.to_string(), &digits(mark)]);
        Ok(Counter { peer: PeerProcess::start_ready(&mut command, &Report::Answering)? })
    }
}

impl Counter {
    /// Ends; how much has come.
    pub fn end(mut self) -> Result<u64> {
        self.peer.end_input();
        match self.peer.report()? {
            Report::Counted(count) => Ok(count),
            other => bail!("the counter reports {other:?}"),
        }
    }
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
