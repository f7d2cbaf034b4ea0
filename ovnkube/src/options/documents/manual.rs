//! The manual pages: texts beside this file, whose lists of options, keys and codes are made of the
//! tables.

use clap::Command;
use clap_mangen::roff::{Roff, bold, italic, roman};
use contract::error::Code;

use super::super::{
    command_line::heading,
    kind::Kind,
    spec::{Effect, Group, Spec},
    table,
};

/// `ovnkube(8)`
pub(super) fn of_server(program: &Command) -> String {
    let mut options = Roff::new();
    for group in Group::ALL {
        options.control("SS", [group.title()]);
        for spec in table::all().filter(|spec| heading(spec) == group) {
            option(&mut options, spec);
        }
    }
    let mut commands = Roff::new();
    program.get_subcommands().for_each(|below| command(&mut commands, program.get_name(), below));
    let mut environment = Roff::new();
    for (spec, variable) in table::all().filter_map(|spec| Some((spec, spec.environment?))) {
        entry(&mut environment, variable, "", &format!("As {}", spec.flag()));
    }
    filled(
        include_str!("ovnkube.8"),
        &[("OPTIONS", &options), ("ENVIRONMENT", &environment), ("COMMANDS", &commands)],
    )
}

/// `ovn_k8s.conf(5)`
pub(super) fn of_file() -> String {
    let mut all_sections = Roff::new();
    for name in sections() {
        all_sections.control("SH", [format!("[{name}]").as_str()]);
        for spec in table::all().filter(|spec| spec.key.is_some_and(|key| key.section == name)) {
            let key = spec.key.map_or("", |key| key.name);
            entry(
                &mut all_sections,
                key,
                value_name(spec),
                &about(spec, &format!("As {}.", spec.flag())),
            );
        }
    }
    let mut older_names = Roff::new();
    for (spec, old) in
        table::all().flat_map(|spec| spec.old_keys.iter().map(move |old| (spec, old)))
    {
        let what =
            spec.key.map_or_else(|| spec.flag(), |key| format!("[{}] {}", key.section, key.name));
        entry(&mut older_names, &format!("[{}] {}", old.key.section, old.key.name), "", &what);
    }
    let parts = [("SECTIONS", &all_sections), ("OLDER_NAMES", &older_names)];
    filled(include_str!("ovn_k8s.conf.5"), &parts)
}

/// `ovn-k8s-cni-overlay(8)`
pub(super) fn of_plugin() -> String {
    let mut codes = Roff::new();
    for (_, number, name) in Code::table() {
        entry(&mut codes, &number.to_string(), "", name);
    }
    entry(&mut codes, &Code::Internal.number().to_string(), "", Code::Internal.name());
    filled(include_str!("ovn-k8s-cni-overlay.8"), &[("CODES", &codes)])
}

/// The page of a program of 2016 to 2018, which this one is by another name.
pub(super) fn of_older(program: &Command) -> String {
    let name = program.get_name();
    let about = program.get_about().map(ToString::to_string).unwrap_or_default();
    let mut page = Roff::new();
    page.control("TH", [name, "8", "", &format!("ovnkube {}", env!("CARGO_PKG_VERSION")), ""]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{name} - {about}"))]);
    page.control("SH", ["DESCRIPTION"]);
    if program.has_subcommands() {
        program.get_subcommands().for_each(|below| command(&mut page, name, below));
    } else {
        command(&mut page, "", program);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("ovnkube"), roman("(8), "), bold("ovs-appctl"), roman("(8)")]);
    page.to_roff()
}

/// A command and those below it: arguments, meaning, options.
fn command(page: &mut Roff, above: &str, command: &Command) {
    if command.is_hide_set() {
        return;
    }
    let name = format!("{above} {}", command.get_name()).trim_start().to_owned();
    for below in command.get_subcommands() {
        self::command(page, &name, below);
    }
    if command.has_subcommands() {
        return;
    }
    let words: Vec<String> = command.get_positionals().map(|word| word.to_string()).collect();
    page.control("SS", [format!("{name} {}", words.join(" ")).as_str()]);
    for text in [command.get_long_about().or(command.get_about()), command.get_after_help()]
        .into_iter()
        .flatten()
    {
        let text = text.to_string();
        for paragraph in text.split("\n\n") {
            page.control("PP", []);
            // Lines that begin with spaces are examples and tables.
            let is_verbatim = paragraph.lines().any(|line| line.starts_with("  "));
            if is_verbatim {
                page.control("nf", []);
            }
            page.text([roman(paragraph)]);
            if is_verbatim {
                page.control("fi", []);
            }
        }
    }
    for option in command.get_opts().filter(|option| !option.is_hide_set()) {
        let flag = format!("--{}", option.get_long().unwrap_or_default());
        let value = option
            .get_value_names()
            .and_then(|names| names.first())
            .map_or("", |name| name.as_str());
        entry(page, &flag, value, &option.get_help().map(ToString::to_string).unwrap_or_default());
    }
}

/// The page with its generated parts, each in place of a line `@NAME@`.
fn filled(page: &str, parts: &[(&str, &Roff)]) -> String {
    let page = page.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    parts
        .iter()
        .fold(page, |page, (name, part)| page.replace(&format!("@{name}@\n"), &part.to_roff()))
}

fn option(page: &mut Roff, spec: &Spec) {
    let aliases = spec.aliases.iter().map(|alias| format!(" Also --{alias}."));
    let variable = spec.environment.map(|name| format!(" Environment: {name}."));
    let key = spec.key.map(|key| format!(" File: [{}] {}.", key.section, key.name));
    let external_id = spec.external_id.map(|name| format!(" external_ids: {name}."));
    let more: String = aliases.chain(key).chain(variable).chain(external_id).collect();
    entry(page, &spec.flag(), value_name(spec), &about(spec, more.trim_start()));
}

pub(super) fn value_name(spec: &Spec) -> &'static str {
    if matches!(spec.kind, Kind::Switch) { "" } else { spec.value_name }
}

fn about(spec: &Spec, more: &str) -> String {
    let default = if spec.default.is_empty() {
        String::new()
    } else {
        format!(" Default: {}.", spec.default)
    };
    let effect = match spec.effect {
        Effect::Full => String::new(),
        Effect::Later(part) => format!(" It has no effect yet: it is for {}.", part.name()),
        Effect::Never(why) => format!(" It has no effect: it {why}."),
    };
    format!("{}.{default} {more}{effect}", spec.help)
}

fn entry(page: &mut Roff, name: &str, value: &str, text: &str) {
    page.control("TP", []);
    if value.is_empty() {
        page.text([bold(name)])
    } else {
        page.text([bold(name), roman(" "), italic(value)])
    };
    page.text([roman(text)]);
}

fn sections() -> Vec<&'static str> {
    let mut sections = Vec::new();
    for key in table::all().filter_map(|spec| spec.key) {
        if !sections.contains(&key.section) {
            sections.push(key.section);
        }
    }
    sections
}
