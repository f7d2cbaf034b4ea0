//! What the control plane and its database suffer while a row is tried: the longest silence of the
//! northbound database's server, and the most memory of the control plane.

use std::{
    io::{BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use integration::{central, faults::process::Held};

/// Between two questions.
const EVERY: Duration = Duration::from_millis(20);
/// A question of RFC 7047 §4.1.11, which a server answers between two transactions.
const ECHO: &[u8] = br#"{"id":1,"method":"echo","params":[]}"#;

/// Looks until it is asked for what it has seen.
pub(crate) struct Watch {
    end: Sender<()>,
    thread: JoinHandle<Result<Seen>>,
}

/// The worst of a row.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) silence: Duration,
    /// Kilobytes.
    pub(crate) memory: u64,
}

impl Watch {
    /// Begins, with the control plane of this process id.
    pub(crate) fn begin(control_plane: u32) -> Self {
        let (end, ended) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let path = central::NORTHBOUND.trim_start_matches("unix:");
            let mut stream =
                UnixStream::connect(path).context("connect to the northbound database")?;
            let mut answers = BufReader::new(stream.try_clone()?);
            let mut seen = Seen::default();
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EVERY) {
                let asked = Instant::now();
                stream.write_all(ECHO)?;
                until_answered(&mut answers)?;
                seen.silence = seen.silence.max(asked.elapsed());
                // A control plane that has ended is the bystander's to notice.
                if let Ok(held) = Held::by(control_plane) {
                    seen.memory = seen.memory.max(held.memory);
                }
            }
            Ok(seen)
        });
        Self { end, thread }
    }

    pub(crate) fn end(self) -> Result<Seen> {
        drop(self.end);
        self.thread.join().unwrap_or_else(|_| bail!("the watch panicked (see above)"))
    }
}

/// Reads one JSON object, which has no brace in its texts.
fn until_answered(answers: &mut BufReader<UnixStream>) -> Result<()> {
    let mut depth = 0;
    for byte in answers.by_ref().bytes() {
        match byte? {
            b'{' => depth += 1,
            b'}' if depth == 1 => return Ok(()),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    bail!("the northbound database has closed the connection")
}
