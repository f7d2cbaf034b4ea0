//! Runs a program to its end and keeps its output. An error carries the command line and the
//! output.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// Runs `command` and returns its standard output.
///
/// # Errors
/// If it does not start, or ends with another status than 0: the command line, the status and both
/// outputs.
pub fn output(command: &mut Command) -> Result<String> {
    finish(command.stdin(Stdio::null()), "")
}

/// The same, with `input` on standard input.
///
/// # Errors
/// As [`output`]; or the command does not read its input.
pub fn output_with_input(command: &mut Command, input: &str) -> Result<String> {
    finish(command.stdin(Stdio::piped()), input)
}

fn finish(command: &mut Command, input: &str) -> Result<String> {
    let line = line(command);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start `{line}`"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // Ignored: a program that ends early explains itself on standard error, and that text says
        // more than "broken pipe".
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| format!("wait for `{line}`"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("`{line}`: {}\n{}{}", output.status, stdout, String::from_utf8_lossy(&output.stderr));
    }
    Ok(stdout)
}

/// The command line, for people; cut after 400 characters.
pub fn line(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect();
    let line = words.join(" ");
    match line.char_indices().nth(400) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
