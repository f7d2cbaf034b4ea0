//! Signals: SIGTERM and SIGINT stop the process, SIGHUP reopens its log.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use ovslog::background::Reopen;

/// The signals that stop a process.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the handlers. From here on none of these signals kills the process; SIGHUP reopens
    /// the log.
    pub(crate) fn listen(log: Reopen) -> io::Result<Self> {
        let mut hangup = signal(SignalKind::hangup())?;
        tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                log.ask();
                tracing::info!("SIGHUP: the log is opened anew");
            }
        });
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal to stop and returns its name.
    pub(crate) async fn stop(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
