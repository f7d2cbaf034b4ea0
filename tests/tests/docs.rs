//! The programs do what the README and the pages of `docs/` promise.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use contract::error::Code;
use testkit::{executable, program};

fn page(name: &str) -> String {
    fs::read_to_string(executable::workspace().join(name))
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The text under a heading, up to the next one of the same or a higher level.
fn section(name: &str, title: &str) -> String {
    let text = page(name);
    let level = |line: &str| line.chars().take_while(|c| *c == '#').count();
    let heading = |line: &&str| {
        level(line) > 0 && line.trim_start_matches('#').trim().eq_ignore_ascii_case(title)
    };
    let from = text
        .lines()
        .position(|line| heading(&line))
        .unwrap_or_else(|| panic!("{name} has a section {title:?}"));
    let own = level(text.lines().nth(from).unwrap_or_default());
    let body = text.lines().skip(from + 1).take_while(|line| !(1..=own).contains(&level(line)));
    body.map(|line| format!("{line}\n")).collect()
}

/// The cells of each row of the tables in a text, without their backticks.
fn rows(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter(|line| line.starts_with('|'));
    lines
        .map(|line| {
            line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect()
        })
        .collect()
}

#[test]
fn every_code_is_in_its_page_under_its_name() {
    let table: Vec<(u32, String)> = rows(&page("docs/errors.md"))
        .into_iter()
        .filter_map(|row| Some((row[0].parse().ok()?, row[1].clone())))
        .collect();
    let internal = (Code::Internal.number(), Code::Internal.name());
    let expected = Code::table().map(|(_, number, name)| (number, name)).chain([internal]);
    assert_eq!(table, expected.map(|(number, name)| (number, name.to_owned())).collect::<Vec<_>>());
}

#[test]
fn every_option_of_the_page_is_one_with_that_default() {
    let help = program::output(
        Command::new(executable::path(executable::SERVER)).arg("--help").env("COLUMNS", "100"),
    );
    // The help is wrapped to the width of the terminal.
    let words: Vec<&str> = help.split_whitespace().collect();
    let help = words.join(" ");
    let in_help: Vec<&str> = words
        .iter()
        .filter_map(|word| word.split('[').next())
        .filter(|word| word.starts_with("--") && word.len() > 2)
        .collect();
    let table = rows(&page("docs/options.md"));
    let in_page: Vec<(&str, &str)> = table
        .iter()
        .filter(|row| row[0].starts_with("--") && !row[0].ends_with('-'))
        .map(|row| (row[0].split(' ').next().unwrap_or_default(), row[1].as_str()))
        .collect();
    assert!(!in_page.is_empty());
    for option in [
        "--init-node",
        "--pod-manifests",
        "--k8s-kubeconfig",
        "--k8s-apiserver",
        "--sb-address",
        "--print-config",
    ] {
        assert!(in_page.iter().any(|(name, _)| *name == option), "{option} is not in the page");
    }
    for (option, default) in in_page {
        assert!(in_help.contains(&option), "{option} is in the page only");
        assert!(
            default.is_empty() || help.contains(&format!("[default: {default}]")),
            "{option}: the default is not {default}"
        );
    }
}

#[test]
fn every_folder_of_the_map_is_there_with_what_to_read_first() {
    let map = rows(&section("docs/source-tree.md", "Folders"));
    let folders: Vec<&Vec<String>> = map.iter().filter(|row| row[0].ends_with('/')).collect();
    assert!(!folders.is_empty());
    for row in folders {
        let folder = executable::workspace().join(&row[0]);
        assert!(folder.is_dir(), "{}", folder.display());
        for file in row
            .last()
            .into_iter()
            .flat_map(|cell| cell.split(", then "))
            .filter(|file| !file.is_empty())
        {
            assert!(folder.join(file).is_file(), "{}{file}", row[0]);
        }
    }
}

/// The packages of the workspace, each with the ones in its `[dependencies]`.
fn packages() -> BTreeMap<String, BTreeSet<String>> {
    let root = page("Cargo.toml");
    let members =
        root.lines().find_map(|line| line.strip_prefix("members = [")).expect("a list of members");
    let folders = members.trim_end_matches(']').split(", ").map(|member| member.trim_matches('"'));
    let manifests: Vec<String> =
        folders.map(|folder| page(&format!("{folder}/Cargo.toml"))).collect();
    let name = |manifest: &str| {
        manifest
            .lines()
            .find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
            .map(str::to_owned)
    };
    let names: BTreeSet<String> =
        manifests.iter().map(|manifest| name(manifest).expect("a name")).collect();
    let needs = |manifest: &str| {
        let lines = manifest
            .lines()
            .skip_while(|line| *line != "[dependencies]")
            .skip(1)
            .take_while(|line| !line.starts_with('['));
        let needed = lines.filter_map(|line| line.split(['.', ' ', '=']).next().map(str::to_owned));
        needed.filter(|needed| names.contains(needed)).collect()
    };
    manifests.iter().map(|manifest| (name(manifest).unwrap_or_default(), needs(manifest))).collect()
}

#[test]
fn packages_and_arrows_of_the_architecture_page_are_those_of_the_manifests() {
    let packages = packages();
    let mut above = BTreeSet::new();
    for row in rows(&section("docs/architecture.md", "Packages"))
        .into_iter()
        .filter(|row| packages.contains_key(&row[0]))
    {
        let needs: BTreeSet<String> =
            row[1].split(", ").filter(|need| !need.is_empty()).map(str::to_owned).collect();
        assert_eq!(needs, packages[&row[0]], "{}", row[0]);
        assert!(needs.is_subset(&above), "{} needs a package that is not above it", row[0]);
        above.insert(row[0].clone());
    }
    assert!(above.iter().eq(packages.keys()), "{above:?}");
}

/// The words of a page that look like paths of the source tree.
fn paths(text: &str) -> BTreeSet<&str> {
    let words = text
        .split(|c: char| c.is_whitespace() || "`(),;:|│".contains(c))
        .map(|word| word.trim_end_matches('.'));
    // Files that `make` writes need not exist, and `PACKAGE/failpoints` is a feature, not a file.
    let is_path = |word: &&str| {
        word.contains('/')
            && !word.starts_with(['/', '.'])
            && !word.starts_with("target/")
            && !word.ends_with("/failpoints")
    };
    words.filter(is_path).collect()
}

#[test]
fn every_path_of_the_architecture_page_is_there() {
    let text = page("docs/architecture.md");
    let paths = paths(&text);
    assert!(paths.len() > 50, "{paths:?}");
    for path in paths {
        assert!(executable::workspace().join(path).exists(), "{path}");
    }
}

#[test]
fn every_path_of_other_pages_is_there_if_its_first_folder_is() {
    let workspace = executable::workspace();
    let is_plain =
        |path: &str| path.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b));
    let is_of_the_tree =
        |path: &str| path.split('/').next().is_some_and(|first| workspace.join(first).is_dir());
    // The changelog's entries may name files that have been removed since.
    for name in pages().into_iter().filter(|name| name != "CHANGELOG.md") {
        for path in
            paths(&page(&name)).into_iter().filter(|path| is_plain(path) && is_of_the_tree(path))
        {
            assert!(workspace.join(path).exists(), "{name}: {path}");
        }
    }
}

/// Every Markdown page of the source tree.
fn pages() -> Vec<String> {
    let alone = [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "fuzz/README.md",
        "ovsdb/README.md",
    ];
    let folders = [
        "docs",
        "docs/decisions",
        "docs/explanation",
        "docs/figures",
        "docs/how-to",
        "docs/reference",
    ];
    let in_folders = folders.into_iter().flat_map(|folder| {
        let files = fs::read_dir(executable::workspace().join(folder))
            .expect("a folder of pages")
            .flatten();
        files
            .map(move |file| format!("{folder}/{}", file.file_name().to_string_lossy()))
            .filter(|name| name.ends_with(".md"))
    });
    alone.into_iter().map(str::to_owned).chain(in_folders).collect()
}

/// What a link to the heading has behind its `#`.
fn anchor_of(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let mut links = 0;
    for name in pages() {
        let text = page(&name);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            links += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let here = executable::workspace().join(&name);
            let target = if file.is_empty() { here } else { here.with_file_name(file) };
            assert!(target.exists(), "{name}: {link}");
            if !anchor.is_empty() {
                let text = fs::read_to_string(&target).expect("a page");
                let mut headings = text.lines().filter(|line| line.starts_with('#')).map(anchor_of);
                assert!(headings.any(|heading| heading == anchor), "{name}: {link}");
            }
        }
    }
    assert!(links > 30, "{links}");
}
