//! The syntax of the configuration file: that of Git's files, as the Go library gcfg reads it.
//! Knows nothing of options.
//!
//! ```text
//! # comment                      ; comment
//! [section]                      [section "subsection"]
//! key = value # comment          key = "a ; b" and \"c\"
//! key                            = key = true
//! key = two \
//!   lines
//! ```

use std::{iter::Peekable, str::Chars};

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub section: String,
    /// The quoted text after the section's name.
    pub subsection: Option<String>,
    pub key: String,
    /// `true` for a key without a value.
    pub value: String,
    /// Line of the key; the first is 1.
    pub line: usize,
}

/// A line with a syntax error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The first line is 1.
    pub line: usize,
    pub what: &'static str,
}

/// Every entry and every fault, in the order of lines. A line with a fault is skipped.
pub fn parse(text: &str) -> (Vec<Entry>, Vec<Fault>) {
    // Editors on Windows write a byte order mark, which is no part of the first line.
    let mut reader =
        Reader { rest: text.trim_start_matches('\u{feff}').chars().peekable(), line: 1 };
    let mut section: Option<(String, Option<String>)> = None;
    let (mut entries, mut faults) = (Vec::new(), Vec::new());
    while reader.rest.peek().is_some() {
        let line = reader.line;
        match reader.line_of(section.as_ref()) {
            Ok(Line::Nothing) => {}
            Ok(Line::Section(name, subsection)) => section = Some((name, subsection)),
            Ok(Line::Entry(entry)) => entries.push(entry),
            Err(what) => faults.push(Fault { line, what }),
        }
        reader.skip_line();
    }
    (entries, faults)
}

enum Line {
    Nothing,
    Section(String, Option<String>),
    Entry(Entry),
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
}

impl Reader<'_> {
    /// Reads one line up to its end, or several if a value is continued. The line end itself is
    /// left for `skip_line`.
    fn line_of(
        &mut self,
        section: Option<&(String, Option<String>)>,
    ) -> Result<Line, &'static str> {
        self.skip_spaces();
        match self.rest.peek() {
            None | Some('\n' | '#' | ';') => Ok(Line::Nothing),
            Some('[') => self.section(),
            // As in gcfg, a key begins with a letter.
            Some(first) if first.is_alphabetic() => {
                let (section, subsection) =
                    section.cloned().ok_or("a key before the first [section]")?;
                let line = self.line;
                let key = self.name();
                self.skip_spaces();
                let value = match self.rest.peek() {
                    None | Some('\n' | '#' | ';') => "true".to_owned(),
                    Some('=') => {
                        self.rest.next();
                        self.value()?
                    }
                    Some(_) => return Err("neither key = value nor [section]"),
                };
                Ok(Line::Entry(Entry { section, subsection, key, value, line }))
            }
            Some(_) => Err("neither key = value nor [section]"),
        }
    }

    fn section(&mut self) -> Result<Line, &'static str> {
        self.rest.next();
        self.skip_spaces();
        let name = self.name();
        self.skip_spaces();
        let subsection =
            if self.rest.peek() == Some(&'"') { Some(self.subsection()?) } else { None };
        self.skip_spaces();
        if name.is_empty() || self.rest.next_if_eq(&']').is_none() {
            return Err("a section is [name] or [name \"subsection\"]");
        }
        self.skip_spaces();
        match self.rest.peek() {
            None | Some('\n' | '#' | ';') => Ok(Line::Section(name, subsection)),
            Some(_) => Err("something behind the section's name"),
        }
    }

    fn subsection(&mut self) -> Result<String, &'static str> {
        self.rest.next();
        let mut text = String::new();
        loop {
            match self.rest.next_if(|c| *c != '\n') {
                None => return Err("a quotation mark that nothing closes"),
                Some('"') => return Ok(text),
                Some('\\') => text.extend(self.rest.next_if(|c| *c != '\n')),
                Some(c) => text.push(c),
            }
        }
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) =
            self.rest.next_if(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'))
        {
            name.push(c);
        }
        name
    }

    /// A value without the spaces at both ends, except those in quotes.
    fn value(&mut self) -> Result<String, &'static str> {
        self.skip_spaces();
        let mut value = String::new();
        // The length of the value without the spaces at its end.
        let mut kept = 0;
        let mut quoted = false;
        loop {
            match self.rest.peek().copied() {
                // A quoted value has to end on its line, unless a backslash continues it.
                None | Some('\n') if quoted => return Err("a quotation mark that nothing closes"),
                None | Some('\n') => break,
                Some('#' | ';') if !quoted => break,
                _ => {}
            }
            match self.rest.next() {
                Some('"') => {
                    quoted = !quoted;
                    kept = value.len();
                }
                Some('\\') => {
                    if let Some(c) = self.escape()? {
                        value.push(c);
                        kept = value.len();
                    }
                }
                Some(c) => {
                    value.push(c);
                    if quoted || !c.is_whitespace() {
                        kept = value.len();
                    }
                }
                None => break,
            }
        }
        value.truncate(kept);
        Ok(value)
    }

    /// The character that an escape sequence stands for; `None` for the end of a line, which
    /// continues the value in the next.
    fn escape(&mut self) -> Result<Option<char>, &'static str> {
        // The line end after a backslash may be CRLF.
        self.rest.next_if_eq(&'\r');
        match self.rest.peek() {
            Some('\n') => {
                self.rest.next();
                self.line += 1;
                return Ok(None);
            }
            None => return Ok(None),
            _ => {}
        }
        let c = match self.rest.peek() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('b') => '\u{8}',
            Some(c @ ('\\' | '"')) => *c,
            _ => return Err("a backslash stands before n, t, b, \\, \" or the end of the line"),
        };
        self.rest.next();
        Ok(Some(c))
    }

    /// Skips spaces, and the carriage return of a line that ends with CRLF.
    fn skip_spaces(&mut self) {
        while self.rest.next_if(|c| *c != '\n' && c.is_whitespace()).is_some() {}
    }

    fn skip_line(&mut self) {
        for c in self.rest.by_ref() {
            if c == '\n' {
                self.line += 1;
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests;
