//! A grid of characters to draw boxes on. Pure.

use super::line::{Line, Paint};

/// Grows to the right and downwards as needed.
#[derive(Debug, Default)]
pub(crate) struct Canvas(Vec<Vec<(Paint, char)>>);

/// Shape of a box's corners.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Corners {
    Round,
    Square,
}

impl Canvas {
    /// Writes `text` from column `x` of row `y` on, and replaces earlier characters.
    pub(crate) fn write(&mut self, x: usize, y: usize, paint: Paint, text: &str) {
        if self.0.len() <= y {
            self.0.resize(y + 1, Vec::new());
        }
        let row = &mut self.0[y];
        let end = x + text.chars().count();
        if row.len() < end {
            row.resize(end, (Paint::Plain, ' '));
        }
        row[x..end].iter_mut().zip(text.chars()).for_each(|(cell, character)| *cell = (paint, character));
    }

    /// Writes `text` with its middle at column `x`.
    pub(crate) fn write_around(&mut self, x: usize, y: usize, paint: Paint, text: &str) {
        self.write(x.saturating_sub(text.chars().count() / 2), y, paint, text);
    }

    /// Draws a frame whose upper left corner is at (`x`, `y`).
    pub(crate) fn frame(
        &mut self,
        x: usize,
        y: usize,
        (width, height): (usize, usize),
        corners: Corners,
        paint: Paint,
    ) {
        let [top_left, top_right, bottom_left, bottom_right] = match corners {
            Corners::Round => ['╭', '╮', '╰', '╯'],
            Corners::Square => ['┌', '┐', '└', '┘'],
        };
        let edge = |left: char, right: char| format!("{left}{}{right}", "─".repeat(width.saturating_sub(2)));
        self.write(x, y, paint, &edge(top_left, top_right));
        for row in y + 1..y + height - 1 {
            self.write(x, row, paint, "│");
            self.write(x + width - 1, row, paint, "│");
        }
        self.write(x, y + height - 1, paint, &edge(bottom_left, bottom_right));
    }

    /// The rows, indented.
    pub(crate) fn into_lines(self, indent: usize) -> impl Iterator<Item = Line> {
        self.0.into_iter().map(move |row| {
            row.chunk_by(|left, right| left.0 == right.0).fold(Line::default().to(indent), |line, run| {
                let text: String = run.iter().map(|(_, character)| character).collect();
                line.add(run[0].0, text)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_has_its_text_in_it() {
        let mut canvas = Canvas::default();
        canvas.frame(0, 0, (7, 3), Corners::Square, Paint::Plain);
        canvas.write_around(3, 1, Paint::Pod, "pod");
        let lines: Vec<String> = canvas.into_lines(1).map(|line| line.to_string()).collect();
        assert_eq!(lines, [" ┌─────┐", " │ pod │", " └─────┘"]);
    }
}
