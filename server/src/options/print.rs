//! `--print-config`: every option, its value, and the place that it comes from.

use std::{collections::BTreeMap, fmt::Write};

use super::{
    NodeOptions,
    command_line::heading,
    external_ids,
    node_config::Known,
    problems::{self, Gathered},
    roles::{self, Asked},
    settings::Settings,
    spec::{Effect, Group, Spec},
    table,
};

/// Values are not padded to more than this.
const WIDEST: usize = 52;

/// What was printed.
#[derive(Debug)]
pub struct Printed {
    pub text: String,
    /// Whether a server would start with these options, as far as options are concerned.
    pub usable: bool,
}

impl NodeOptions {
    /// A table for people. Reads `external_ids` from Open vSwitch's database, if it answers soon; secrets are left out.
    pub async fn print(&self) -> Printed {
        let asked = match self.reading(Known::NotYet).ovsdb() {
            Some(endpoint) => external_ids::read(&endpoint).await,
            None => Err("--ovsdb-endpoint cannot be used".to_owned()),
        };
        let empty = BTreeMap::new();
        let reading = self.reading(Known::Read(asked.as_ref().unwrap_or(&empty)));
        let mut text = table_of(&reading.settings);
        if let Err(reason) = &asked {
            say(&mut text, &format!("external_ids of Open vSwitch are not shown ({reason})"));
        }
        for note in self.notes() {
            say(&mut text, &note);
        }
        // A command that only prints need not say what to be; what else there is, it says.
        let outcome = match self.role() {
            Some(Asked::Node) => self.resolve(Known::Read(asked.as_ref().unwrap_or(&empty))).map(drop),
            Some(Asked::ControlPlane(roles)) => self.control_plane(roles, false).map(drop),
            Some(Asked::Beside(roles)) => {
                let node = self.resolve(Known::Read(asked.as_ref().unwrap_or(&empty))).map(drop);
                problems::both(self.control_plane(roles, true).map(drop), node)
            }
            Some(Asked::RemoveNode) => self.remove_node().map(drop),
            Some(Asked::CleanupNode) | None => reading.problems.none_or(),
        };
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
    let rows: Vec<(&Spec, String, String)> =
        table::all().filter(|spec| is_shown(settings, spec)).map(|spec| (spec, value(settings, spec), origin(settings, spec))).collect();
    let widest = |length: &dyn Fn(&(&Spec, String, String)) -> usize| rows.iter().map(length).max().unwrap_or_default();
    let (names, values) = (widest(&|row| row.0.name.len()), widest(&|row| row.1.chars().count()).min(WIDEST));
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

/// Options without effect only where somebody gave them.
fn is_shown(settings: &Settings, spec: &Spec) -> bool {
    settings.given(spec).is_some() || spec.effect == Effect::Full
}

fn value(settings: &Settings, spec: &'static Spec) -> String {
    let setting = settings.value(spec);
    match (setting.value.as_str(), spec.is_secret()) {
        ("", _) => "-".to_owned(),
        (_, true) => "(hidden)".to_owned(),
        // One line, whatever is in it.
        (value, false) if value.contains("-----BEGIN") => "(certificates)".to_owned(),
        (value, false) => value.escape_debug().to_string(),
    }
}

/// Where the value comes from, where else one was given, and what has no effect.
fn origin(settings: &Settings, spec: &'static Spec) -> String {
    let mut text = settings.value(spec).origin.to_string();
    let others: Vec<String> = settings.every(spec).iter().skip(1).map(|setting| setting.origin.to_string()).collect();
    if !others.is_empty() {
        text.push_str(&format!(", over {}", others.join(", ")));
    }
    match spec.effect {
        Effect::Full => {}
        Effect::Later(part) => text.push_str(&format!(" [no effect yet: for {}]", part.name())),
        Effect::Never(_) => text.push_str(" [no effect]"),
    }
    text
}

impl NodeOptions {
    fn role(&self) -> Option<Asked> {
        roles::asked(&self.settings, &mut Gathered::default())
    }
}
