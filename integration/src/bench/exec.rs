//! Runs one program, from start to exit. There is no shell and no change of namespace, so that the standard
//! library can start the program with `posix_spawn` instead of copying this process.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

/// Capacity of a pipe by default (pipe(7)). A longer input would block the writer: nothing reads the pipe
/// before the program starts.
const PIPE: usize = 65536;

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    /// From before the start of the program until it was waited for.
    pub(crate) duration: Duration,
}

/// Destination of standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chatter {
    /// The terminal: no output is expected.
    Shown,
    /// This file: the program logs to standard error.
    Kept(&'static Path),
}

/// Runs `program` with exactly this environment, and with `input` on standard input.
pub(crate) fn run<K: AsRef<OsStr>>(
    program: &Path,
    environment: impl IntoIterator<Item = (K, OsString)>,
    input: &str,
    chatter: Chatter,
) -> Result<Ended> {
    let mut command = Command::new(program);
    let stderr = match chatter {
        Chatter::Shown => Stdio::inherit(),
        Chatter::Kept(file) => {
            let file = File::options()
                .append(true)
                .create(true)
                .open(file)
                .with_context(|| format!("open {}", file.display()))?;
            Stdio::from(file)
        }
    };
    command.env_clear().stdin(full_pipe(input)?).stdout(Stdio::piped()).stderr(stderr);
    for (key, value) in environment {
        command.env(key, value);
    }
    let mut stdout = Vec::with_capacity(4096);
    let began = Instant::now();
    let mut child = command.spawn().with_context(|| format!("start {}", program.display()))?;
    child.stdout.take().context("standard output is a pipe")?.read_to_end(&mut stdout)?;
    let status = child.wait()?;
    Ok(Ended { status, stdout, duration: began.elapsed() })
}

/// A pipe that already holds the whole input, so that writing it is no part of the measured time.
fn full_pipe(input: &str) -> Result<Stdio> {
    ensure!(input.len() <= PIPE, "an input of {} bytes", input.len());
    let (reader, writer) = std::io::pipe()?;
    File::from(OwnedFd::from(writer)).write_all(input.as_bytes())?;
    Ok(reader.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_its_input_and_only_the_environment_it_is_given() {
        let ended = run(
            Path::new("/bin/sh"),
            [("ENV", OsString::new())],
            "cat /proc/self/environ | tr '\\0' '\\n' | grep -c CARGO",
            Chatter::Shown,
        )
        .unwrap();
        assert_eq!(ended.stdout, b"0\n");
        assert!(!ended.status.success(), "grep found nothing");
    }
}
