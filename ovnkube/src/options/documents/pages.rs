//! The reference pages in Markdown.

use std::fmt::Write as _;

use contract::{
    annotations::{self, Annotation},
    error::Code,
    limits::{self, Limit, Subject},
};

use super::{
    super::{
        command_line::heading,
        kind::Kind,
        spec::{Effect, Group, Spec},
        table,
    },
    manual::value_name,
};

const GENERATED: &str = "<!-- Generated: `make docs` writes this page. -->";

/// `options.md`
pub(super) fn options() -> String {
    let mut text = format!(
        "{GENERATED}\n\n# Options of `ovnkube`\n\n\
         `--name value`, `--name=value`, and both with one dash. Those of upstream's `ovnkube` have its names; \
         those that have no effect yet are accepted and named in\n\
         the log and on standard error. (The shell and Python programs before it had others, such as \
         `--cluster-ip-subnet`.)\n\n\
         An option that is not on the command line is looked up in the configuration file \
         (`/etc/openvswitch/ovn_k8s.conf`, section and key below), in the\n\
         environment, in the files of a pod's service account, and in `external_ids` of Open vSwitch's \
         database, in this order; the default comes last.\n\
         `ovnkube --print-config` shows each value, its source, and whether it has an effect for the roles \
         of the process. All errors are reported together.\n\n\
         A node's server follows `external_ids`. The control plane reads them once, before its start, waits \
         2 s at most, and does without where there is no Open\n\
         vSwitch.\n"
    );
    for group in Group::ALL {
        let _ = write!(
            text,
            "\n## {}\n\n| option | default | meaning | elsewhere |\n|---|---|---|---|\n",
            group.title()
        );
        table::all().filter(|spec| heading(spec) == group).for_each(|spec| option(&mut text, spec));
    }
    text
}

fn option(text: &mut String, spec: &Spec) {
    let value = value_name(spec);
    let value = if value.is_empty() { String::new() } else { format!(" {value}") };
    let default =
        if spec.default.is_empty() { String::new() } else { format!("`{}`", spec.default) };
    let effect = match spec.effect {
        Effect::Full => String::new(),
        Effect::Later(part) => format!(". No effect yet: it is for {}", part.name()),
        Effect::Never(why) => format!(". No effect: it {why}"),
    };
    let aliases = spec.aliases.iter().map(|alias| format!("`--{alias}`"));
    let keys = spec
        .key
        .into_iter()
        .chain(spec.old_keys.iter().map(|old| old.key))
        .map(|key| format!("`[{}] {}`", key.section, key.name));
    let variable = spec.environment.map(|name| format!("`${name}`"));
    let external_id = spec.external_id.map(|name| format!("`external_ids:{name}`"));
    let elsewhere: Vec<String> = aliases.chain(keys).chain(variable).chain(external_id).collect();
    let secret = if matches!(spec.kind, Kind::Secret) { " (never shown)" } else { "" };
    row(
        text,
        &[
            &format!("`{}{value}`", spec.flag()),
            &default,
            &format!("{}{effect}{secret}", spec.help),
            &elsewhere.join(", "),
        ],
    );
}

/// `errors.md`
pub(super) fn errors() -> String {
    let mut text = format!(
        "{GENERATED}\n\n# Error codes of the plugin\n\n\
         A call that fails exits with 1 and prints one JSON object: `code`, `msg` (what failed, for which \
         pod, at which stage, after how long) and\n\
         `details` (what to look at next). Codes below 100 are those of the CNI specification and of its Go \
         library.\n\n\
         | code | name | meaning | what to do |\n|---|---|---|---|\n"
    );
    for code in Code::table().map(|(code, ..)| code).chain([Code::Internal]) {
        let (meaning, advice) = code.explanation();
        row(&mut text, &[&code.number().to_string(), code.name(), meaning, advice]);
    }
    text
}

/// `annotations.md`
pub(super) fn annotations() -> String {
    let mut text = format!("{GENERATED}\n\n# Annotations\n");
    for (title, table) in [
        ("Pods", annotations::OF_PODS.as_slice()),
        ("Nodes", &annotations::OF_NODES),
        ("Namespaces", &annotations::OF_NAMESPACES),
        ("NetworkPolicies", &annotations::OF_POLICIES),
        ("Services, and policies of the cluster", &annotations::OF_SERVICES),
    ] {
        let _ = write!(
            text,
            "\n## {title}\n\n| annotation | meaning | written by | read by | example |\n"
        );
        text.push_str("|---|---|---|---|---|\n");
        for Annotation { name, meaning, written_by, read_by, example } in table {
            let example = if example.is_empty() { String::new() } else { format!("`{example}`") };
            row(&mut text, &[&format!("`{name}`"), meaning, written_by, read_by, &example]);
        }
    }
    text
}

/// `limits.md`
pub(super) fn limits() -> String {
    let mut text = format!(
        "{GENERATED}\n\n# Limits\n\n\
         What an object may cost, and all objects of a kind in a namespace together (older ones first). The \
         cost is known before rows are made of the\n\
         object. An object beyond a limit has an event `{}` that names limit and value.\n\n\
         | object | counted | limit | beyond it | why this value |\n|---|---|---|---|---|\n",
        limits::TOO_LARGE
    );
    for Limit { of, counted, most, beyond, why } in limits::ALL {
        let object = match of {
            Subject::Each(kind) => (*kind).to_owned(),
            Subject::AllOfNamespace(kind) => format!("all of kind {kind} in a namespace"),
        };
        row(&mut text, &[&object, counted, &most.to_string(), beyond, why]);
    }
    text
}

fn row(text: &mut String, cells: &[&str]) {
    for cell in cells {
        // In a table a bar ends the cell.
        let _ = write!(text, "| {} ", cell.replace('|', "\\|"));
    }
    text.push_str("|\n");
}
