//! Simulates a kernel that is short of something, for one process: a few calls of its C library are
//! replaced (`LD_PRELOAD`).
//!
//! The machine keeps its clock, its limits and its memory. Works with executables that are linked
//! dynamically, as cargo builds them for tests. The plugin and the server of `make build` are
//! static, and load no library.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use testkit::preload;

use crate::{Invocation, command, executable, heap, mounts};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/faults/shim.c");

/// The libraries to load, and the file that controls them while a process runs.
#[derive(Debug)]
pub struct Shim {
    libraries: String,
    control: PathBuf,
}

/// A failure of a netlink socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Netlink {
    /// The `nth` message of this type has no effect, and is answered with this error number.
    Refuse { message: u16, nth: u32, errno: i32 },
    /// The `nth` call that receives fails with this error number, and what it received is lost.
    Lose { nth: u32, errno: i32 },
}

impl Shim {
    /// Builds the library if necessary, and creates a control file that injects nothing.
    ///
    /// # Errors
    /// If `program` is not linked dynamically.
    pub fn for_program(program: &str) -> Result<Self> {
        let linked = command::output(Command::new("ldd").arg(executable::under_test(program)?));
        ensure!(
            linked.is_ok_and(|text| text.contains("libc.so")),
            "{program} is linked statically: the faults of this row need one that cargo builds for this machine (unset {})",
            executable::BIN_DIR
        );
        let control = Path::new(mounts::LAB).join(format!("shim-{program}"));
        fs::write(&control, [0; 32]).with_context(|| format!("write {}", control.display()))?;
        // The server's allocations have to be counted as before.
        let libraries =
            format!("{}:{}", preload::library(Path::new(SOURCE))?.display(), heap::library()?);
        Ok(Self { libraries, control })
    }

    /// The environment of a process in which the faults are to happen.
    pub fn environment(&self) -> Vec<(String, String)> {
        let control = self.control.to_string_lossy().into_owned();
        vec![
            (preload::VARIABLE.to_owned(), self.libraries.clone()),
            ("OVN_SHIM_CONTROL".to_owned(), control),
        ]
    }

    /// The same call of the plugin, in that environment.
    #[must_use]
    pub fn around(&self, call: Invocation) -> Invocation {
        self.environment().into_iter().fold(call, |call, (key, value)| call.env(key, value))
    }

    /// Puts the wall clock ahead by so many seconds, or back. Monotonic clocks stay.
    pub fn set_clock_ahead(&self, seconds: i64) -> Result<()> {
        self.set(0, seconds)
    }

    /// Puts all clocks back, as after so long a time in which the machine stood still.
    pub fn set_clocks_back(&self, time: Duration) -> Result<()> {
        self.set(3, time.as_nanos().try_into()?)
    }

    /// Refuses every new thread (`EAGAIN`).
    pub fn refuse_threads(&self) -> Result<()> {
        self.set(1, 1)
    }

    /// Allows new threads again.
    pub fn allow_threads(&self) -> Result<()> {
        self.set(1, 0)
    }

    /// How many threads were refused so far.
    pub fn refused_threads(&self) -> Result<i64> {
        let mut count = [0; 8];
        let file = File::open(&self.control)?;
        file.read_exact_at(&mut count, 16)
            .with_context(|| format!("read {}", self.control.display()))?;
        Ok(i64::from_ne_bytes(count))
    }

    fn set(&self, index: u64, value: i64) -> Result<()> {
        let file = OpenOptions::new().write(true).open(&self.control)?;
        file.write_all_at(&value.to_ne_bytes(), index * 8)
            .with_context(|| format!("write {}", self.control.display()))
    }
}

impl Netlink {
    /// The variable that passes it to the library.
    pub fn variable(self) -> (&'static str, String) {
        let value = match self {
            Self::Refuse { message, nth, errno } => format!("{message}:{nth}:{errno}"),
            Self::Lose { nth, errno } => format!("recv:{nth}:{errno}"),
        };
        ("OVN_SHIM_NETLINK", value)
    }
}
