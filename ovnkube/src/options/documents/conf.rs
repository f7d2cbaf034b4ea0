//! The configuration file as it is installed: every key with its meaning and default, all commented
//! out.

use super::super::{
    kind::Kind,
    spec::{Effect, Spec},
    table,
};

const WIDTH: usize = 100;
const HEAD: &str = "\
# Options of OVN-Kubernetes: /etc/openvswitch/ovn_k8s.conf, as ovn_k8s.conf(5) describes it.
#
# Nothing is set here: every value below is the default. What is given on ovnkube's command line (the
# name behind each key) wins over this file, and this file over the environment, a pod's service account
# and external_ids of Open vSwitch's database. Files of earlier programs can be used as they are.
# `ovnkube --print-config` shows each value in force and where it comes from.
";

/// The text of the file. `make docs` writes it; a test compares `conf/ovn_k8s.conf` with it.
pub fn conf_file() -> String {
    let mut text = HEAD.to_owned();
    let mut sections: Vec<&str> = Vec::new();
    for key in table::all().filter_map(|spec| spec.key) {
        if !sections.contains(&key.section) {
            sections.push(key.section);
        }
    }
    // `[default]` comes first: it has most of the options that a node needs.
    sections.sort_by_key(|section| *section != "default");
    for section in sections {
        text.push_str(&format!("\n[{section}]\n"));
        let of_section =
            || table::all().filter(move |spec| spec.key.is_some_and(|key| key.section == section));
        let (with, without): (Vec<_>, Vec<_>) =
            of_section().partition(|spec| spec.effect == Effect::Full);
        with.into_iter().for_each(|spec| key(&mut text, spec));
        if !without.is_empty() {
            text.push_str("# Without effect in this version:\n");
        }
        without.into_iter().for_each(|spec| key(&mut text, spec));
    }
    text
}

fn key(text: &mut String, spec: &Spec) {
    let Some(key) = spec.key else { return };
    let mut line = String::from("#");
    for word in format!("{}. {}", spec.help, spec.flag()).split(' ') {
        if line.len() + 1 + word.len() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    // Only these characters need quotes in the file: `#` and `;` begin a comment.
    let quoted = if spec.default.contains(['#', ';', '"', '\\']) {
        format!("{:?}", spec.default)
    } else {
        spec.default.to_owned()
    };
    let value = if matches!(spec.kind, Kind::Switch) && quoted.is_empty() {
        "false".to_owned()
    } else {
        quoted
    };
    text.push_str(&format!("{line}\n#{}={value}\n", key.name));
}
