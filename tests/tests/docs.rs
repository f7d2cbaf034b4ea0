//! What the README and the pages of `docs/` promise is what the programs do.

use std::{fs, process::Command};

use contract::error::Code;
use tests::{executable, program};

fn page(name: &str) -> String {
    fs::read_to_string(executable::workspace().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The text under a heading, up to the next one of the same or a higher level.
fn section(title: &str) -> String {
    let readme = page("README.md");
    let level = |line: &str| line.chars().take_while(|c| *c == '#').count();
    let heading = |line: &&str| level(line) > 0 && line.trim_start_matches('#').trim().eq_ignore_ascii_case(title);
    let from = readme.lines().position(|line| heading(&line)).unwrap_or_else(|| panic!("README.md has a section {title:?}"));
    let own = level(readme.lines().nth(from).unwrap_or_default());
    let body = readme.lines().skip(from + 1).take_while(|line| !(1..=own).contains(&level(line)));
    body.map(|line| format!("{line}\n")).collect()
}

/// The cells of each row of the tables in a text, without their backticks.
fn rows(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter(|line| line.starts_with('|'));
    lines.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect()).collect()
}

#[test]
fn every_code_is_in_its_page_under_its_name() {
    let table: Vec<(u32, String)> =
        rows(&page("docs/errors.md")).into_iter().filter_map(|row| Some((row[0].parse().ok()?, row[1].clone()))).collect();
    let internal = (Code::Internal.number(), Code::Internal.name());
    let expected = Code::table().map(|(_, number, name)| (number, name)).chain([internal]);
    assert_eq!(table, expected.map(|(number, name)| (number, name.to_owned())).collect::<Vec<_>>());
}

#[test]
fn every_option_of_the_page_is_one_with_that_default() {
    let help = program::output(Command::new(executable::path(executable::SERVER)).arg("--help").env("COLUMNS", "100"));
    // It is wrapped to the width of a terminal.
    let words: Vec<&str> = help.split_whitespace().collect();
    let help = words.join(" ");
    let in_help: Vec<&str> =
        words.iter().filter_map(|word| word.split('[').next()).filter(|word| word.starts_with("--") && word.len() > 2).collect();
    let table = rows(&page("docs/options.md"));
    let in_page: Vec<(&str, &str)> = table
        .iter()
        .filter(|row| row[0].starts_with("--") && !row[0].ends_with('-'))
        .map(|row| (row[0].split(' ').next().unwrap_or_default(), row[1].as_str()))
        .collect();
    assert!(!in_page.is_empty());
    for option in ["--init-node", "--pod-manifests", "--k8s-kubeconfig", "--k8s-apiserver", "--sb-address", "--print-config"] {
        assert!(in_page.iter().any(|(name, _)| *name == option), "{option} is not in the page");
    }
    for (option, default) in in_page {
        assert!(in_help.contains(&option), "{option} is in the page only");
        assert!(default.is_empty() || help.contains(&format!("[default: {default}]")), "{option}: the default is not {default}");
    }
}

#[test]
fn every_folder_of_the_readmes_map_is_there_with_what_to_read_first() {
    let map = rows(&section("Where things are"));
    let folders: Vec<&Vec<String>> = map.iter().filter(|row| row[0].ends_with('/')).collect();
    assert!(!folders.is_empty());
    for row in folders {
        let folder = executable::workspace().join(&row[0]);
        assert!(folder.is_dir(), "{}", folder.display());
        for file in row.last().into_iter().flat_map(|cell| cell.split(", then ")).filter(|file| !file.is_empty()) {
            assert!(folder.join(file).is_file(), "{}{file}", row[0]);
        }
    }
}
