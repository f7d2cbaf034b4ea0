//! The configuration file. Parsed entries can be written with quotes and mean the same when they
//! are read again, whatever the line ends and whatever precedes them. Problems are reported in
//! single lines, without secrets.

use std::path::Path;

use ovnkube::options::conf_file::{
    self, Said,
    ini::{self, Entry, Fault},
};

use crate::LONGEST_ERROR;

const PATH: &str = "/etc/openvswitch/ovn_k8s.conf";

/// A secret that the seeds contain, so that the fuzzer finds it.
const SECRET: &str = "s3cr3t";

/// `data` is the contents of a file.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let text = text.trim_start_matches('\u{feff}');
    let (entries, faults) = ini::parse(text);
    check_lines(text, &entries, &faults);

    let written: String = entries.iter().map(written).collect();
    let (again, none) = ini::parse(&written);
    assert!(none.is_empty(), "{none:?} in {written}");
    assert_eq!(
        again.iter().map(meaning).collect::<Vec<_>>(),
        entries.iter().map(meaning).collect::<Vec<_>>(),
        "{written}"
    );

    let said = said(text);
    let shifted = conf_file::said(&format!("; before\n\n{text}"), Path::new(PATH));
    assert_eq!(shifted.values, said.values, "behind a comment");
    assert_eq!(
        (shifted.problems.len(), shifted.notes.len()),
        (said.problems.len(), said.notes.len()),
        "behind a comment"
    );
    assert_eq!(conf_file::said(&written, Path::new(PATH)).values, said.values, "{written}");
    if !text.contains('\r') {
        assert_eq!(
            conf_file::said(&text.replace('\n', "\r\n"), Path::new(PATH)).values,
            said.values,
            "with other ends of lines"
        );
    }
}

/// Each entry and each fault has a line of its own, with the number that an editor shows.
fn check_lines(text: &str, entries: &[Entry], faults: &[Fault]) {
    let lines = text.matches('\n').count() + 1;
    let mut used: Vec<usize> = entries
        .iter()
        .map(|entry| entry.line)
        .chain(faults.iter().map(|fault| fault.line))
        .collect();
    used.sort_unstable();
    assert!(
        used.windows(2).all(|pair| pair[0] < pair[1])
            && used.iter().all(|line| (1..=lines).contains(line)),
        "{used:?} of {lines}"
    );
    for Entry { key, line, .. } in entries {
        let found = text.split('\n').nth(line - 1).unwrap_or_default();
        assert!(found.contains(key.as_str()), "{key} is not in line {line}, {found:?}");
    }
}

fn said(text: &str) -> Said {
    let said = conf_file::said(text, Path::new(PATH));
    let lines = text.matches('\n').count() + 1;
    for sentence in said.problems.iter().chain(&said.notes) {
        assert!(sentence.len() <= LONGEST_ERROR, "a sentence of {} bytes", sentence.len());
        assert!(!sentence.contains(char::is_control), "{sentence:?}");
        let place =
            sentence.strip_prefix(PATH).and_then(|rest| rest.strip_prefix(':')?.split_once(':'));
        let line = place.and_then(|(line, _)| line.parse::<usize>().ok());
        assert!(
            line.is_some_and(|line| (1..=lines).contains(&line)),
            "{sentence:?} of {lines} lines"
        );
    }
    let is_secret = said.values.get("k8s-token").is_some_and(|(token, _)| token.contains(SECRET));
    if is_secret && text.matches(SECRET).count() == 1 {
        assert!(
            said.problems.iter().chain(&said.notes).all(|sentence| !sentence.contains(SECRET)),
            "{said:?}"
        );
    }
    said
}

fn meaning(
    Entry { section, subsection, key, value, line: _ }: &Entry,
) -> (&str, Option<&str>, &str, &str) {
    (section, subsection.as_deref(), key, value)
}

/// The entry in the most conservative spelling.
fn written(Entry { section, subsection, key, value, line: _ }: &Entry) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let subsection =
        subsection.as_deref().map(|name| format!(" {}", quoted(name))).unwrap_or_default();
    let value = quoted(value).replace('\n', "\\n").replace('\t', "\\t").replace('\u{8}', "\\b");
    format!("[{section}{subsection}]\n{key} = {value} # {section}\n")
}
