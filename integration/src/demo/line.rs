//! One line of output: words, each with its meaning. Pure; the screen decides whether to show colours.

use std::fmt;

/// Meaning of a word, which decides its looks on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    /// Text.
    Plain,
    /// A title.
    Strong,
    /// An explanation, a frame.
    Faint,
    /// Something that worked.
    Good,
    /// Something that failed.
    Bad,
    /// A pod.
    Pod,
    /// A node, a switch.
    Node,
    /// The tunnel.
    Tunnel,
    /// A duration.
    Bar,
}

impl Paint {
    /// The parameter of Select Graphic Rendition (ECMA-48, 8.3.117), in colours that every terminal has.
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "0",
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Bad => "1;31",
            Self::Pod => "36",
            Self::Node => "94",
            Self::Tunnel => "35",
            Self::Bar => "33",
        }
    }
}

/// A line, from left to right.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Line(Vec<(Paint, String)>);

impl Line {
    /// Adds a word.
    #[must_use]
    pub(crate) fn add(mut self, paint: Paint, text: impl Into<String>) -> Self {
        self.0.push((paint, text.into()));
        self
    }

    /// Adds text.
    #[must_use]
    pub(crate) fn text(self, text: impl Into<String>) -> Self {
        self.add(Paint::Plain, text)
    }

    /// Continues at `column`, after at least one space unless the line is empty.
    #[must_use]
    pub(crate) fn to(self, column: usize) -> Self {
        let width = self.width();
        let gap = column.saturating_sub(width).max(usize::from(width > 0));
        self.text(" ".repeat(gap))
    }

    /// Adds a word that ends right before `column`.
    #[must_use]
    pub(crate) fn right(self, column: usize, paint: Paint, text: impl Into<String>) -> Self {
        let text = text.into();
        let start = column.saturating_sub(text.chars().count());
        self.to(start).add(paint, text)
    }

    /// Width in columns. Every character that the demo prints is one column wide.
    pub(crate) fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| text.chars().count()).sum()
    }

    /// The line with colours.
    pub(crate) fn coloured(&self) -> String {
        let word = |(paint, text): &(Paint, String)| match paint {
            Paint::Plain => text.clone(),
            paint => format!("\x1b[{}m{text}\x1b[0m", paint.code()),
        };
        self.0.iter().map(word).collect()
    }
}

impl From<&str> for Line {
    fn from(text: &str) -> Self {
        Self::default().text(text)
    }
}

impl From<String> for Line {
    fn from(text: String) -> Self {
        Self::default().text(text)
    }
}

/// The line without colours.
impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(_, text)| formatter.write_str(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_aligned_and_never_touch() {
        let line = Line::default().to(2).text("a").to(6).text("long word").to(8).text("next");
        assert_eq!(line.to_string(), "  a   long word next");
        assert_eq!(Line::from("ms").right(8, Paint::Plain, "1.5").to_string(), "ms   1.5");
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        let line = Line::default().add(Paint::Good, "✓").text(" done");
        assert_eq!(line.to_string(), "✓ done");
        assert_eq!(line.coloured(), "\x1b[32m✓\x1b[0m done");
    }
}
