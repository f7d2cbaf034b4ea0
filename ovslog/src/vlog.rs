//! Levels by module and destination, as `-v` and `vlog/set` of Open vSwitch's daemons change them
//! while the daemon runs (ovs-appctl(8)).
//!
//! The destinations are the console, which is standard error, and a file. Nothing goes to syslog.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::stderr,
    path::Path,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use tracing::{Level, Metadata};
use tracing_subscriber::{
    Layer as _, Registry,
    filter::DynFilterFn,
    layer::{Context, SubscriberExt},
};

use crate::{ReopenFile, background::Reopen, layer, layout, log_panics};

/// Modules that can have a level of their own before they have logged anything. Bounds what a
/// client of the control socket can make this process remember.
const LONGEST: usize = 256;
/// Characters of the longest name of a module.
const LONGEST_NAME: usize = 64;

/// Where lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Destination {
    Console,
    Syslog,
    File,
}

const DESTINATIONS: [(&str, Destination); 3] = [
    ("console", Destination::Console),
    ("syslog", Destination::Syslog),
    ("file", Destination::File),
];

/// The least severe level that is written; none for no line at all.
const LEVELS: [(&str, Option<Level>); 6] = [
    ("off", None),
    // Open vSwitch's most severe one: this program ends with such a line only.
    ("emer", None),
    ("err", Some(Level::ERROR)),
    ("warn", Some(Level::WARN)),
    ("info", Some(Level::INFO)),
    ("dbg", Some(Level::DEBUG)),
];

/// An argument that says no level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSpec {
    #[error("no destination, level, or module {0:?}")]
    Word(String),
    #[error("{0:?} names two levels or two modules")]
    Twice(String),
    #[error("levels of {LONGEST} modules are set already")]
    TooMany,
}

/// The levels of all modules.
#[derive(Debug, Clone)]
pub struct Levels(Arc<RwLock<Table>>);

#[derive(Debug)]
struct Table {
    /// An index of [`LEVELS`] for each of [`DESTINATIONS`].
    all: [usize; 3],
    of_module: BTreeMap<String, [usize; 3]>,
    /// Modules that have logged, or will.
    known: BTreeSet<String>,
}

impl Levels {
    /// Open vSwitch's defaults: `info` for console and file. `modules`: those that `vlog/list`
    /// shows from the start.
    pub fn new(modules: &[&str]) -> Self {
        let known = modules.iter().map(|module| (*module).to_owned()).collect();
        Self(Arc::new(RwLock::new(Table { all: [4, 0, 4], of_module: BTreeMap::new(), known })))
    }

    /// Changes levels, as an argument of `-v` or `vlog/set` says: a module, a destination and a
    /// level, each or none, in any order, with `:`, `,` or blanks between. Without a level: `dbg`.
    ///
    /// # Errors
    /// A word is none of these, or the module is one too many.
    pub fn set(&self, spec: &str) -> Result<(), BadSpec> {
        let (mut module, mut level) = (None, None);
        let mut destinations = Vec::new();
        let once =
            |is_set: bool| if is_set { Err(BadSpec::Twice(spec.to_owned())) } else { Ok(()) };
        for word in spec.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
            let lower = word.to_ascii_lowercase();
            if let Some(index) = DESTINATIONS.iter().position(|(name, _)| *name == lower) {
                destinations.push(index);
            } else if let Some(index) = LEVELS.iter().position(|(name, _)| *name == lower) {
                once(level.is_some())?;
                level = Some(index);
            } else if lower != "any" {
                once(module.is_some())?;
                module = Some(checked(&lower)?);
            }
        }
        let level = level.unwrap_or(LEVELS.len() - 1);
        if destinations.is_empty() {
            destinations = vec![0, 1, 2];
        }
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let table = &mut *table;
        match module {
            None => {
                let each = table.of_module.values_mut().chain([&mut table.all]);
                each.for_each(|levels| destinations.iter().for_each(|to| levels[*to] = level));
            }
            Some(module) => {
                if table.of_module.len() >= LONGEST && !table.of_module.contains_key(&module) {
                    return Err(BadSpec::TooMany);
                }
                table.known.insert(module.clone());
                let levels = table.of_module.entry(module).or_insert(table.all);
                destinations.iter().for_each(|to| levels[*to] = level);
            }
        }
        Ok(())
    }

    /// All modules with their levels, as `vlog/list` shows them.
    pub fn list(&self) -> String {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut text = "                 console    syslog    file\n".to_owned();
        text += "                 -------    ------    ------\n";
        for module in &table.known {
            let levels = table.of_module.get(module).unwrap_or(&table.all);
            let [console, syslog, file] = levels.map(|level| LEVELS[level].0.to_uppercase());
            // Writing to a text does not fail.
            let _ = writeln!(text, "{module:<16}  {console:>4}       {syslog:>4}       {file:>4}");
        }
        text
    }

    fn is_enabled(&self, destination: Destination, metadata: &Metadata<'_>) -> bool {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let levels = table.of_module.get(layout::module_of(metadata.target()));
        let least = LEVELS[levels.unwrap_or(&table.all)[destination as usize]].1;
        least.is_some_and(|least| *metadata.level() <= least)
    }
}

fn checked(module: &str) -> Result<String, BadSpec> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if module.len() <= LONGEST_NAME && module.chars().all(is_plain) {
        Ok(module.to_owned())
    } else {
        Err(BadSpec::Word(module.chars().take(LONGEST_NAME).collect()))
    }
}

/// What goes to the destination.
fn at<S>(
    levels: &Levels,
    destination: Destination,
) -> DynFilterFn<S, impl Fn(&Metadata<'_>, &Context<'_, S>) -> bool + use<S>> {
    let levels = levels.clone();
    DynFilterFn::new(move |metadata: &Metadata<'_>, _: &Context<'_, S>| {
        levels.is_enabled(destination, metadata)
    })
}

/// Starts the log of a daemon: to standard error, and to a file if there is one, each with its
/// levels. The thread that logs writes the line.
pub fn start(file: Option<&Path>, levels: &Levels) -> Option<Reopen> {
    let file = file.map(ReopenFile::new);
    let reopen = file.as_ref().map(|file| Reopen::of(file.reopen_flag()));
    let subscriber = Registry::default()
        .with(layer(stderr).with_filter(at(levels, Destination::Console)))
        .with(file.map(|file| layer(Mutex::new(file)).with_filter(at(levels, Destination::File))));
    // Fails if a subscriber is set already, such as a test's. That one gets the events then.
    let _ = tracing::subscriber::set_global_default(subscriber);
    log_panics();
    reopen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_open_vswitch_set_levels_of_modules_and_destinations() {
        let levels = Levels::new(&["watcher"]);
        let line = |levels: &Levels, module: &str| {
            let list = levels.list();
            let line = list.lines().find(|line| line.starts_with(module)).unwrap();
            line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(line(&levels, "watcher"), ["INFO", "OFF", "INFO"]);
        for spec in ["file:info", "console:emer"] {
            levels.set(spec).unwrap();
        }
        assert_eq!(line(&levels, "watcher"), ["EMER", "OFF", "INFO"]);
        levels.set("watcher:file").unwrap();
        levels.set("ANY:console:warn").unwrap();
        levels.set("other,dbg").unwrap();
        assert_eq!(line(&levels, "watcher"), ["WARN", "OFF", "DBG"]);
        assert_eq!(line(&levels, "other"), ["DBG", "DBG", "DBG"]);
    }

    #[test]
    fn an_argument_that_says_no_level_is_refused_with_the_word() {
        let levels = Levels::new(&[]);
        for (spec, why) in [
            ("file:ud!", "module \"ud!\""),
            ("one:two:info", "names two levels or two modules"),
            ("info:dbg", "names two levels or two modules"),
        ] {
            let said = levels.set(spec).unwrap_err().to_string();
            assert!(said.contains(why), "{spec}: {said}");
        }
        for number in 0..LONGEST {
            levels.set(&format!("module{number}:info")).unwrap();
        }
        assert_eq!(levels.set("one-more:info"), Err(BadSpec::TooMany));
    }
}
