//! A peer that runs, as the program that started it knows it: by its reports.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    process::{ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec};
use testkit::process::Process;

use super::{Echoes, Report};

/// A running `integration peer`, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct PeerProcess {
    held: Held,
    reports: BufReader<ChildStdout>,
}

/// One whose reports are read on a thread of their own; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    process: Process,
    stdin: Option<ChildStdin>,
}

impl PeerProcess {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut process = Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let (stdin, reports) = (Some(process.stdin()), BufReader::new(process.stdout()));
        Ok(Self { held: Held { process, stdin }, reports })
    }

    /// The same, once its first report is `ready`.
    pub(crate) fn start_ready(command: &mut Command, ready: &Report) -> Result<Self> {
        let mut peer = Self::start(command)?;
        let said = peer.report()?;
        ensure!(said == *ready, "`{}` reports {said:?}, not {ready:?}", peer.held.process.line());
        Ok(peer)
    }

    /// A peer that works until its input ends has one more report then.
    pub(crate) fn end_input(&mut self) {
        self.held.stdin = None;
    }

    /// The next report.
    pub(crate) fn report(&mut self) -> Result<Report> {
        let mut text = String::new();
        self.reports.read_line(&mut text)?;
        serde_json::from_str(&text).with_context(|| {
            format!("`{}` said {text:?} (its error is above)", self.held.process.line())
        })
    }

    /// Whether the next report comes within that time.
    pub(crate) fn reports_within(&mut self, limit: Duration) -> Result<bool> {
        let limit = Timespec::try_from(limit).ok();
        let mut output = [PollFd::new(self.reports.get_ref(), PollFlags::IN)];
        Ok(!self.reports.buffer().is_empty()
            || rustix::event::poll(&mut output, limit.as_ref())? > 0)
    }

    /// The next report, which says where it listens.
    pub(crate) fn address(&mut self) -> Result<SocketAddr> {
        match self.report()? {
            Report::Listening(address) => Ok(address),
            other => {
                bail!("`{}` reports {other:?}, not where it listens", self.held.process.line())
            }
        }
    }

    /// The next report, which counts its datagrams.
    pub(crate) fn echoes(&mut self) -> Result<Echoes> {
        match self.report()? {
            Report::Echoed(echoes) => Ok(echoes),
            other => bail!("`{}` reports {other:?}, not its datagrams", self.held.process.line()),
        }
    }

    /// Gives each further report to `note`, on a thread that ends with the peer.
    pub(crate) fn follow(self, note: impl Fn(Report) + Send + 'static) -> Held {
        let Self { held, reports } = self;
        thread::spawn(move || {
            let lines = reports.lines().map_while(Result::ok);
            lines.filter_map(|line| serde_json::from_str(&line).ok()).for_each(note);
        });
        held
    }
}

impl Held {
    /// Writes a line to its input.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("its input has ended")?;
        writeln!(stdin, "{line}")
            .with_context(|| format!("tell `{}` of {line}", self.process.line()))
    }
}
