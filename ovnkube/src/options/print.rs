//! `--print-config`: every option with its value and the source of the value.

use std::fmt::Write;

use ovslog::Level;

use super::{
    Collected,
    command_line::heading,
    effect::Effects,
    external_ids::{self, ExternalIds},
    problems::{self, Gathered},
    roles::{self, Role},
    settings::Settings,
    spec::{Effect, Group, Spec},
    table, values,
};

/// Columns. The others are not padded for a longer value: one would push all sources off the
/// terminal.
const WIDEST: usize = 52;

/// The output of `--print-config`.
#[derive(Debug)]
pub struct Printed {
    /// Lines for standard output.
    pub text: String,
    /// Whether a process would accept these options.
    pub usable: bool,
}

impl Collected {
    /// A table for an administrator. Reads `external_ids` from Open vSwitch's database, if it
    /// answers within 2 s. Hides secrets.
    pub async fn print(&self) -> Printed {
        let read = match self.ovsdb() {
            Some(endpoint) => external_ids::read(&endpoint).await,
            None => Err("--ovsdb-endpoint cannot be used".to_owned()),
        };
        // A node's server goes on without them, and follows them later.
        let of_node = ExternalIds::Read(read.clone().unwrap_or_default());
        let once = read.clone().map_or_else(ExternalIds::Unreadable, ExternalIds::Read);
        let mut of_roles = Gathered::default();
        let role = roles::asked(&self.settings, &mut of_roles);
        let mut text = match role {
            Some(
                role @ (Role::ControlPlane(_)
                | Role::RemoveNode
                | Role::Adopt
                | Role::Explain
                | Role::Status),
            ) if read.is_ok() => table_of(&self.reading(role, &once).settings),
            // In one process with a node's server the table shows all keys that the node uses.
            _ => table_of(&self.reading(Role::Node, &of_node).settings),
        };
        if let Err(reason) = &read {
            say(&mut text, &format!("external_ids of Open vSwitch are not shown ({reason})"));
        }
        for note in self.notes() {
            say(&mut text, &note);
        }
        // `--print-config` works without a role: then only errors of single values are known.
        let outcome = match role {
            Some(Role::Node) => self.check_node(&of_node),
            Some(role @ Role::ControlPlane(roles)) => {
                self.control_plane(role, roles, &once).map(drop)
            }
            Some(role @ Role::Beside(roles)) => {
                problems::both(self.control_plane(role, roles, &once), self.check_node(&of_node))
                    .map(drop)
            }
            Some(Role::RemoveNode) => self.remove_node(&once).map(drop),
            Some(Role::Adopt) => self.adopt(&once).map(drop),
            Some(Role::Explain) => self.explanation(&once).map(drop),
            Some(Role::Status) => self.status(&once).map(drop),
            Some(Role::CleanupNode | Role::HandBackNode) | None => {
                self.reading(Role::Node, &of_node).problems.none_or()
            }
        };
        // Roles that do not go together; without any, there is nothing wrong with them.
        let of_roles = if roles::are_given(&self.settings) { of_roles.none_or() } else { Ok(()) };
        let outcome = problems::both(of_roles, outcome);
        for problem in outcome.as_ref().err().into_iter().flat_map(super::Problems::iter) {
            say(&mut text, &format!("PROBLEM: {problem}"));
        }
        Printed { text, usable: outcome.is_ok() }
    }
}

fn say(text: &mut String, sentence: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{sentence}");
}

fn table_of(settings: &Settings) -> String {
    let effects = Effects::of(settings);
    let shown = table::all().filter(|spec| is_shown(settings, spec));
    let rows: Vec<(&Spec, String, String)> =
        shown.map(|spec| (spec, value(settings, spec), origin(settings, spec, &effects))).collect();
    let widest = |length: &dyn Fn(&(&Spec, String, String)) -> usize| {
        rows.iter().map(length).max().unwrap_or_default()
    };
    let (names, values) =
        (widest(&|row| row.0.name.len()), widest(&|row| row.1.chars().count()).min(WIDEST));
    let mut text = String::new();
    for group in Group::ALL {
        let mut of_group = rows.iter().filter(|(spec, ..)| heading(spec) == group).peekable();
        if of_group.peek().is_some() {
            say(&mut text, group.title());
        }
        for (spec, value, origin) in of_group {
            say(&mut text, &format!("  {:names$}  {value:values$}  {origin}", spec.name));
        }
    }
    text.push('\n');
    text
}

/// Options without effect are shown only if they are given.
fn is_shown(settings: &Settings, spec: &Spec) -> bool {
    settings.given(spec).is_some() || spec.effect == Effect::Full
}

fn value(settings: &Settings, spec: &'static Spec) -> String {
    let setting = settings.value(spec);
    match (setting.value.as_str(), spec.is_secret()) {
        ("", _) => "-".to_owned(),
        (_, true) => "(hidden)".to_owned(),
        // The table has one line for each option, and a PEM text many.
        (value, false) if value.contains("-----BEGIN") => "(certificates)".to_owned(),
        (value, false) => meaning(spec, value)
            .map_or(value.escape_debug().to_string(), |meaning| format!("{value} ({meaning})")),
    }
}

/// The name of the log level that a number stands for.
fn meaning(spec: &Spec, value: &str) -> Option<&'static str> {
    let is_level =
        spec.name == table::logs::LOGLEVEL.name && value.bytes().all(|byte| byte.is_ascii_digit());
    let level = is_level.then(|| values::level(value).ok()).flatten()?;
    Some(match level {
        Level::Error => "err",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "dbg",
    })
}

/// The source of the value, the sources that it overrides, and why the option has no effect.
fn origin(settings: &Settings, spec: &'static Spec, effects: &Effects<'_>) -> String {
    let mut text = settings.value(spec).origin.to_string();
    let others: Vec<String> =
        settings.every(spec).iter().skip(1).map(|setting| setting.origin.to_string()).collect();
    if !others.is_empty() {
        text.push_str(&format!(", over {}", others.join(", ")));
    }
    if let Some(reason) = effects.reason(spec) {
        text.push_str(&format!(" {}", reason.mark()));
    }
    text
}
