//! The form of the configuration file: that of Git's files, as the Go library gcfg reads it. Knows nothing of options.
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
    /// In quotes behind the section's name.
    pub subsection: Option<String>,
    pub key: String,
    /// `true`, if there is none.
    pub value: String,
    /// Of the key, from 1 on.
    pub line: usize,
}

/// What is no line of such a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub line: usize,
    pub what: &'static str,
}

/// Every entry and every fault, in the order of lines. A line with a fault is left out; what follows it is read.
pub fn parse(text: &str) -> (Vec<Entry>, Vec<Fault>) {
    let mut reader = Reader { rest: text.trim_start_matches('\u{feff}').chars().peekable(), line: 1 };
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
    /// One line, up to its end, which stays; several where a value goes on.
    fn line_of(&mut self, section: Option<&(String, Option<String>)>) -> Result<Line, &'static str> {
        self.skip_spaces();
        match self.rest.peek() {
            None | Some('\n' | '#' | ';') => Ok(Line::Nothing),
            Some('[') => self.section(),
            Some(first) if first.is_alphabetic() => {
                let (section, subsection) = section.cloned().ok_or("a key before the first [section]")?;
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
        let subsection = if self.rest.peek() == Some(&'"') { Some(self.subsection()?) } else { None };
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
        while let Some(c) = self.rest.next_if(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.')) {
            name.push(c);
        }
        name
    }

    /// Spaces at both ends do not count, unless they are in quotes.
    fn value(&mut self) -> Result<String, &'static str> {
        self.skip_spaces();
        let mut value = String::new();
        // How much of it stays when spaces at the end are cut.
        let mut kept = 0;
        let mut quoted = false;
        loop {
            match self.rest.peek().copied() {
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

    /// What follows a backslash; nothing for the end of a line, which goes on in the next.
    fn escape(&mut self) -> Result<Option<char>, &'static str> {
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

    /// Also the carriage return that some editors put at a line's end.
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
