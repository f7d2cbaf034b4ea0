//! The output of the demo: a terminal, a file or a pipe. Colours and progress are for terminals only.

use std::{
    env,
    fmt::Display,
    io::{self, IsTerminal as _, Stdout, Write as _},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};

/// Width of the output in columns: it fits into the smallest usual terminal.
pub(crate) const WIDTH: usize = 80;

/// The looks of a word, by its meaning: parameters of Select Graphic Rendition (ECMA-48, 8.3.117), in colours
/// that every terminal has. A painted word is padded before it is painted, not after.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(&'static str);

impl Paint {
    pub(crate) const STRONG: Self = Self("1");
    pub(crate) const FAINT: Self = Self("2");
    pub(crate) const GOOD: Self = Self("32");
    pub(crate) const BAD: Self = Self("1;31");
    pub(crate) const POD: Self = Self("36");
    pub(crate) const NODE: Self = Self("94");
    pub(crate) const TUNNEL: Self = Self("35");
    pub(crate) const BAR: Self = Self("33");

    pub(crate) fn on(self, text: impl Display) -> String {
        format!("\x1b[{}m{text}\x1b[0m", self.0)
    }
}

/// The text without colours.
pub(crate) fn plain(text: &str) -> String {
    let mut words = text.split("\x1b[");
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |line, word| line + word.split_once('m').map_or("", |(_, rest)| rest))
}

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
    pub(crate) fn open() -> Self {
        let out = io::stdout();
        let is_terminal = out.is_terminal();
        let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        // https://no-color.org
        let in_colour =
            is_terminal && !set("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self { out, is_terminal, in_colour, sections: 0, transient: 0 }
    }

    /// Begins a section with its title and an explanation of what follows, one line or more.
    pub(crate) fn section(&mut self, title: &str, explanation: &str) -> Result<()> {
        self.sections += 1;
        let number = self.sections;
        let rule = "─".repeat(WIDTH.saturating_sub(format!("{number} {title} ").chars().count()));
        self.line("")?;
        self.line(format!(
            "{} {} {}",
            Paint::FAINT.on(number),
            Paint::STRONG.on(title),
            Paint::FAINT.on(rule)
        ))?;
        explanation.lines().try_for_each(|line| self.line(format!("  {}", Paint::FAINT.on(line))))?;
        self.line("")
    }

    /// Shows on a terminal what is going on, until the next line replaces it.
    pub(crate) fn working_on(&mut self, what: &str) -> Result<()> {
        if self.is_terminal {
            let text = format!("  · {what} …");
            self.transient = text.chars().count();
            write!(self.out, "{}", self.rendered(&Paint::FAINT.on(text)))?;
            self.out.flush()?;
        }
        Ok(())
    }

    pub(crate) fn line(&mut self, line: impl AsRef<str>) -> Result<()> {
        let line = line.as_ref();
        // Back to the first column; spaces cover the rest of the progress text.
        let covered = std::mem::take(&mut self.transient);
        let (back, width) = (if covered > 0 { "\r" } else { "" }, plain(line).chars().count());
        writeln!(self.out, "{back}{}{}", self.rendered(line), " ".repeat(covered.saturating_sub(width)))?;
        Ok(())
    }

    pub(crate) fn lines(&mut self, lines: impl IntoIterator<Item = String>) -> Result<()> {
        lines.into_iter().try_for_each(|line| self.line(line))
    }

    /// Prints the lines of an error; all but the first are indented.
    pub(crate) fn failure(&mut self, text: &str) -> Result<()> {
        let indent = |number| if number == 0 { "  " } else { "    " };
        self.lines(
            text.lines().enumerate().map(|(number, line)| indent(number).to_owned() + &Paint::BAD.on(line)),
        )
    }

    fn rendered(&self, line: &str) -> String {
        if self.in_colour { line.to_owned() } else { plain(line).trim_end().to_owned() }
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
                let took =
                    format!("{:>1$}", milliseconds(took), (WIDTH - 4).saturating_sub(what.chars().count()));
                self.line(format!("{}{what}{}", tick(), Paint::FAINT.on(took)))?;
                Ok(done)
            }
            Err(error) => {
                self.failure(&format!("✗ {what}\n{error:#}"))?;
                Err(anyhow!("{what}"))
            }
        }
    }
}

/// The mark of a step that worked.
pub(crate) fn tick() -> String {
    format!("  {}", Paint::GOOD.on("✓ "))
}

/// `12 ms` or `1.24 s`.
pub(crate) fn milliseconds(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds => format!("{:.0} ms", seconds * 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_change_nothing_but_colours() {
        let line = format!("{}{} done", tick(), Paint::POD.on("a"));
        assert_eq!(plain(&line), "  ✓ a done");
        assert_eq!(plain("no colours"), "no colours");
    }

    #[test]
    fn short_times_are_milliseconds() {
        assert_eq!(milliseconds(Duration::from_micros(12_400)), "12 ms");
        assert_eq!(milliseconds(Duration::from_millis(1_240)), "1.24 s");
    }
}
