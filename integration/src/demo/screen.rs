//! The output of the demo: a terminal, a file or a pipe. Colours and progress are for terminals
//! only.

use std::{
    env,
    fmt::{self, Display},
    io::{self, IsTerminal as _, Write as _},
    sync::LazyLock,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};

/// Width of the output in columns: it fits into the smallest usual terminal.
pub(crate) const WIDTH: usize = 80;

static IN_COLOUR: LazyLock<bool> = LazyLock::new(|| {
    let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    // https://no-color.org
    io::stdout().is_terminal()
        && !set("NO_COLOR")
        && env::var_os("TERM").is_none_or(|term| term != "dumb")
});

/// The looks of a word, by its meaning: parameters of Select Graphic Rendition (ECMA-48, 8.3.117),
/// in colours that every terminal has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(&'static str);

/// A painted word. A width in a format string counts its visible columns.
#[derive(Debug)]
pub(crate) struct Painted(Paint, String);

impl Paint {
    pub(crate) const STRONG: Self = Self("1");
    pub(crate) const FAINT: Self = Self("2");
    pub(crate) const GOOD: Self = Self("32");
    pub(crate) const BAD: Self = Self("1;31");
    pub(crate) const POD: Self = Self("36");
    pub(crate) const NODE: Self = Self("94");
    pub(crate) const TUNNEL: Self = Self("35");
    pub(crate) const BAR: Self = Self("33");

    pub(crate) fn on(self, text: impl Display) -> Painted {
        Painted(self, text.to_string())
    }
}

impl Display for Painted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Paint(look), text) = self;
        if !*IN_COLOUR {
            return f.pad(text);
        }
        write!(f, "\x1b[{look}m")?;
        f.pad(text)?;
        f.write_str("\x1b[0m")
    }
}

/// Standard output.
#[derive(Debug)]
pub(crate) struct Screen {
    out: io::Stdout,
    sections: u32,
    /// What the next line is preceded by: the end of a progress text that it replaces.
    before: &'static str,
}

impl Screen {
    pub(crate) fn open() -> Self {
        Self { out: io::stdout(), sections: 0, before: "" }
    }

    /// Begins a section with its title and an explanation of what follows, one line or more.
    pub(crate) fn section(&mut self, title: &str, explanation: &str) -> Result<()> {
        self.sections += 1;
        let number = self.sections;
        let rule = "─".repeat(WIDTH.saturating_sub(format!("{number} {title} ").chars().count()));
        let (number, rule) = (Paint::FAINT.on(number), Paint::FAINT.on(rule));
        self.line(format!("\n{number} {} {rule}", Paint::STRONG.on(title)))?;
        self.lines(explanation.lines().map(|line| format!("  {}", Paint::FAINT.on(line))))?;
        self.line("")
    }

    /// Shows on a terminal what is going on, until the next line replaces it.
    pub(crate) fn working_on(&mut self, what: &str) -> Result<()> {
        if self.out.is_terminal() {
            write!(self.out, "{}", Paint::FAINT.on(format!("  · {what} …")))?;
            self.out.flush()?;
            // Back to the first column, and erase the line.
            self.before = "\r\x1b[K";
        }
        Ok(())
    }

    pub(crate) fn line(&mut self, line: impl Display) -> Result<()> {
        writeln!(self.out, "{}{}", std::mem::take(&mut self.before), line.to_string().trim_end())?;
        Ok(())
    }

    pub(crate) fn lines(&mut self, lines: impl IntoIterator<Item = String>) -> Result<()> {
        lines.into_iter().try_for_each(|line| self.line(line))
    }

    /// A line about something that worked.
    pub(crate) fn tick(&mut self, line: impl Display) -> Result<()> {
        self.line(format!("  {} {line}", Paint::GOOD.on("✓")))
    }

    /// Prints the lines of an error; all but the first are indented.
    pub(crate) fn failure(&mut self, text: &str) -> Result<()> {
        self.line(format!("  {}", Paint::BAD.on(text.replace('\n', "\n    "))))
    }

    /// Does one step and shows how long it took. An error is explained here, once; the returned
    /// error only names the step.
    pub(crate) fn step<T>(&mut self, what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.working_on(what)?;
        let began = Instant::now();
        match work() {
            Ok(done) => {
                let took = Paint::FAINT.on(milliseconds(began.elapsed()));
                let width = (WIDTH - 4).saturating_sub(what.chars().count());
                self.tick(format!("{what}{took:>width$}"))?;
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
