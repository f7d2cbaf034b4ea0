//! One program, from its start to its end. No shell and no namespace change in between, so that the standard library can start it
//! without copying this process.

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

/// A pipe holds this much without anybody reading.
const PIPE: usize = 65536;

/// What a program left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    /// From before its start until it was waited for.
    pub(crate) duration: Duration,
}

/// Where standard error goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chatter {
    /// To the terminal: there should be none.
    Shown,
    /// To this file: the program logs there.
    Kept(&'static Path),
}

/// Runs `program` with this environment and nothing else, and `input` on standard input.
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
            let file = File::options().append(true).create(true).open(file).with_context(|| format!("open {}", file.display()))?;
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

/// A pipe that has everything in it already, so that starting the program is all there is to time.
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
