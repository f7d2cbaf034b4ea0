//! The output of the demo: a terminal, a file or a pipe. Colours and progress are for terminals only.

use std::{
    env,
    io::{self, IsTerminal as _, Stdout, Write as _},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};

use super::{
    line::{Line, Paint},
    tick,
};

/// Width of the output in columns: it fits into the smallest usual terminal.
pub(crate) const WIDTH: usize = 80;

/// Standard output.
#[derive(Debug)]
pub(crate) struct Screen {
    out: Stdout,
    is_terminal: bool,
    in_colour: bool,
    sections: u32,
    /// Width of the progress text that the next line replaces.
    transient: usize,
}

impl Screen {
    /// The screen on standard output.
    pub(crate) fn open() -> Self {
        let out = io::stdout();
        let is_terminal = out.is_terminal();
        let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        // https://no-color.org
        let in_colour =
            is_terminal && !set("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self { out, is_terminal, in_colour, sections: 0, transient: 0 }
    }

    /// Begins a section with its title and an explanation of what follows.
    pub(crate) fn section(&mut self, title: &str, explanation: &str) -> Result<()> {
        self.sections += 1;
        let number = format!("{} ", self.sections);
        let line = Line::default().add(Paint::Faint, number).add(Paint::Strong, title).text(" ");
        let rule = "─".repeat(WIDTH.saturating_sub(line.width()));
        self.lines([Line::default(), line.add(Paint::Faint, rule)])?;
        self.explain(explanation)?;
        self.line(Line::default())
    }

    /// Prints an explanation, broken into lines.
    pub(crate) fn explain(&mut self, text: &str) -> Result<()> {
        self.lines(
            wrapped(text, WIDTH - 2).into_iter().map(|line| Line::default().to(2).add(Paint::Faint, line)),
        )
    }

    /// Shows on a terminal what is going on, until the next line replaces it.
    pub(crate) fn working_on(&mut self, what: &str) -> Result<()> {
        if self.is_terminal {
            let text = Line::default().to(2).add(Paint::Faint, format!("· {what} …"));
            self.transient = text.width();
            write!(self.out, "{}", self.rendered(&text))?;
            self.out.flush()?;
        }
        Ok(())
    }

    pub(crate) fn line(&mut self, line: impl Into<Line>) -> Result<()> {
        let line = line.into();
        let rendered = self.rendered(&line);
        match std::mem::take(&mut self.transient) {
            0 => writeln!(self.out, "{}", rendered.trim_end())?,
            // Back to the first column; spaces cover the rest of the progress text.
            covered => {
                writeln!(self.out, "\r{rendered}{}", " ".repeat(covered.saturating_sub(line.width())))?
            }
        }
        Ok(())
    }

    pub(crate) fn lines(&mut self, lines: impl IntoIterator<Item = Line>) -> Result<()> {
        lines.into_iter().try_for_each(|line| self.line(line))
    }

    /// Prints the lines of an error; all but the first are indented.
    pub(crate) fn failure(&mut self, text: &str) -> Result<()> {
        for (index, line) in text.lines().flat_map(|line| wrapped(line, WIDTH - 4)).enumerate() {
            self.line(Line::default().to(if index == 0 { 2 } else { 4 }).add(Paint::Bad, line))?;
        }
        Ok(())
    }

    fn rendered(&self, line: &Line) -> String {
        if self.in_colour { line.coloured() } else { line.to_string() }
    }

    /// Does one step and shows how long it took. An error is explained here, once; the returned error only
    /// names the step.
    pub(crate) fn step<T>(&mut self, what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.timed_step(what, || {
            let began = Instant::now();
            work().map(|done| (done, began.elapsed()))
        })
    }

    /// Like `step`, but `work` measures its own duration.
    pub(crate) fn timed_step<T>(
        &mut self,
        what: &str,
        work: impl FnOnce() -> Result<(T, Duration)>,
    ) -> Result<T> {
        self.working_on(what)?;
        match work() {
            Ok((done, took)) => {
                self.line(tick().text(what).right(WIDTH, Paint::Faint, milliseconds(took)))?;
                Ok(done)
            }
            Err(error) => {
                self.failure(&format!("✗ {what}\n{error:#}"))?;
                Err(anyhow!("{what}"))
            }
        }
    }
}

/// `12 ms` or `1.24 s`.
pub(crate) fn milliseconds(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds => format!("{:.0} ms", seconds * 1e3),
    }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= width) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_between_words() {
        assert_eq!(wrapped("one two  three\nfour", 9), ["one two", "three", "four"]);
        assert_eq!(wrapped("unbreakable", 4), ["unbreakable"]);
    }

    #[test]
    fn short_times_are_milliseconds() {
        assert_eq!(milliseconds(Duration::from_micros(12_400)), "12 ms");
        assert_eq!(milliseconds(Duration::from_millis(1_240)), "1.24 s");
    }
}
