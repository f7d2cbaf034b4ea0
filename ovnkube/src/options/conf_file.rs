//! The configuration file: `/etc/openvswitch/ovn_k8s.conf`, in the dialects of the Go programs and
//! of the Python programs.
//!
//! Names are compared in lower case, with hyphens for underscores. The Python programs knew one
//! section, `[default]`, and wrote Python string literals.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    path::Path,
};

use super::{
    problems::Gathered,
    settings::{Origin, Setting, Settings},
    spec::{Key, Spec},
    table,
};

pub mod ini;

use ini::{Entry, Fault};

/// The installed file, with every option, has 20 KB. The limit keeps a wrong path, such as a log or
/// a device, out of memory.
const MOST_BYTES: u64 = 1 << 20;

/// Whether the file was named by `--config-file`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    Explicit,
    Default,
}

/// Adds the file's values to `settings`. Errors in the file are problems; unknown keys are notes.
pub(super) fn read(
    path: &Path,
    naming: Naming,
    settings: &mut Settings,
    problems: &mut Gathered,
    notes: &mut Vec<String>,
) {
    let text = match text_of(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && naming == Naming::Default => {
            return;
        }
        Err(error) => {
            let how = if naming == Naming::Explicit { "--config-file " } else { "" };
            return problems.add(format!("{how}{}: {error}", path.display()));
        }
    };
    take(&text, path, settings, problems, notes);
}

/// Adds the values of the file's text.
fn take(
    text: &str,
    path: &Path,
    settings: &mut Settings,
    problems: &mut Gathered,
    notes: &mut Vec<String>,
) {
    let (entries, faults) = ini::parse(text);
    for Fault { line, what } in faults {
        problems.add(format!("{}:{line}: {what}", path.display()));
    }
    for entry in entries {
        match find(&entry) {
            Some(Found { spec, prefix, insists }) => {
                let origin = Origin::File { path: path.to_owned(), line: entry.line };
                // An old key may hold a bare path; a value with a method (`unix:`, `tcp:`) needs no
                // prefix.
                let value = without_python(&entry.value);
                let value = if value.is_empty() || value.contains(':') {
                    value
                } else {
                    format!("{prefix}{value}")
                };
                settings.add_of_file(spec, Setting { value, origin, insists });
            }
            None => notes.push(format!("{}:{}: {}", path.display(), entry.line, unknown(&entry))),
        }
    }
}

/// The content of a file, without other sources.
#[derive(Debug, Default)]
pub struct Said {
    /// By the option's name: the value, and whether it insists. A default that the Python programs
    /// wrote into every file does not.
    pub values: BTreeMap<&'static str, (String, bool)>,
    /// The errors, in the words of `ovnkube`.
    pub problems: Vec<String>,
    /// The ignored keys.
    pub notes: Vec<String>,
}

/// Reads a file's text; `path` is only for the messages.
pub fn said(text: &str, path: &Path) -> Said {
    let (mut settings, mut problems, mut notes) =
        (Settings::default(), Gathered::default(), Vec::new());
    take(text, path, &mut settings, &mut problems, &mut notes);
    let mut values = BTreeMap::new();
    for spec in table::all() {
        for setting in settings.every(spec) {
            problems.take(super::check(spec, setting));
            values.insert(spec.name, (setting.value.clone(), setting.insists));
        }
    }
    let problems = problems
        .none_or()
        .err()
        .iter()
        .flat_map(|problems| problems.iter().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    Said { values, problems, notes }
}

fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // One byte more than allowed shows that the file is too large; /dev/zero would never end.
    File::open(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        Err(io::Error::other("larger than 1 MiB: is it the right file?"))
    } else {
        Ok(text)
    }
}

struct Found {
    spec: &'static Spec,
    prefix: &'static str,
    insists: bool,
}

fn find(entry: &Entry) -> Option<Found> {
    if entry.subsection.is_some() {
        return None;
    }
    let (section, name) = (plain(&entry.section), plain(&entry.key));
    let is = |key: Key| key.section == section && key.name == name;
    table::all().find_map(|spec| {
        let own =
            spec.key.filter(|key| is(*key)).map(|_| Found { spec, prefix: "", insists: true });
        own.or_else(|| {
            let old = spec.old_keys.iter().find(|old| is(old.key))?;
            Some(Found { spec, prefix: old.prefix, insists: old.insists })
        })
    })
}

/// A name in the table's spelling.
fn plain(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

/// The text of a Python literal: `'x'`, `u'x'`; `None` is empty.
fn without_python(value: &str) -> String {
    if value == "None" {
        return String::new();
    }
    let quoted = value.strip_prefix('u').unwrap_or(value);
    quoted.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')).unwrap_or(value).to_owned()
}

/// The note about an unknown key.
fn unknown(entry: &Entry) -> String {
    let (section, name) = (plain(&entry.section), plain(&entry.key));
    let keys = || table::all().filter_map(|spec| spec.key);
    let nearest = |text: &str, names: &mut dyn Iterator<Item = &'static str>| {
        let best = names
            .map(|name| (strsim::jaro_winkler(text, name), name))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        // Similar enough for a typing error; another word would be a misleading hint.
        best.filter(|(likeness, _)| *likeness > 0.8).map(|(_, name)| name)
    };
    if let Some(subsection) = &entry.subsection {
        return format!(
            "[{} {subsection:?}] is ignored: no option is in a subsection",
            entry.section
        );
    }
    if !keys().any(|key| key.section == section) {
        let hint = nearest(&section, &mut keys().map(|key| key.section))
            .map(|name| format!(" (is it [{name}]?)"))
            .unwrap_or_default();
        return format!("{} is ignored: there is no section [{}]{hint}", entry.key, entry.section);
    }
    let mut here = keys().filter(|key| key.section == section).map(|key| key.name);
    let elsewhere =
        keys().find(|key| key.name == name).map(|key| format!(" (it is in [{}])", key.section));
    let near = || nearest(&name, &mut here).map(|near| format!(" (is it {near}?)"));
    format!(
        "{} is ignored: there is no such key in [{}]{}",
        entry.key,
        entry.section,
        elsewhere.or_else(near).unwrap_or_default()
    )
}

#[cfg(test)]
mod tests;
