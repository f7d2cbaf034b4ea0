//! What tells the process to stop, or to open its log anew.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use ovslog::background::Reopen;

/// What tells a process to stop.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on no signal ends the process by itself; SIGHUP opens the log anew.
    pub(crate) fn listen(log: Reopen) -> io::Result<Self> {
        let mut hangup = signal(SignalKind::hangup())?;
        tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                log.ask();
                tracing::info!("SIGHUP: the log is opened anew");
            }
        });
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one and returns its name.
    pub(crate) async fn stop(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
