//! The modules of a package are in layers: no module needs another that needs it, directly or by
//! way of others. Arrows between packages are compared with the architecture page in `docs.rs`. Of
//! `controller` the same holds for its files, no kind of object needs another one, and the engine
//! needs none.
//!
//! Reads the paths `crate::…` of the sources. A module is one that `lib.rs` or `main.rs` declares,
//! with all below it; what `lib.rs` exports again counts as the module that it comes from.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use testkit::{Scratch, executable};

/// For each module of a package the modules that it needs, each with a file that says so.
type Needs = BTreeMap<String, BTreeMap<String, PathBuf>>;

#[test]
fn no_module_of_a_package_needs_one_that_needs_it() {
    let mut packages = 0;
    for folder in fs::read_dir(executable::workspace()).unwrap().flatten() {
        let source = folder.path().join("src");
        // A kind of object and the world that holds all of them need each other's files: see below.
        if !source.is_dir() || source == controller() {
            continue;
        }
        packages += 1;
        let needs = needs(&source);
        for module in needs.keys() {
            let circle = way_back(&needs, module);
            assert!(
                circle.is_none(),
                "{}: {}",
                source.display(),
                described(&needs, &circle.unwrap())
            );
        }
    }
    assert!(packages > 10, "{packages}");
}

#[test]
fn a_circle_of_three_is_found_with_the_files_that_make_it() {
    let scratch = Scratch::new();
    let write = |file: &str, text: &str| fs::write(scratch.join(file), text).unwrap();
    write("lib.rs", "mod pod;\nmod node;\nmod lab;\npub use lab::{Lab, Site as Place};\n");
    write("pod.rs", "// crate::lab is a comment\nuse crate::{\n    node::{self, Node},\n};\n");
    write("node.rs", "fn place() -> crate::Place {}\n");
    write(
        "lab.rs",
        "use crate::node::Link;\n#[cfg(test)]\nmod tests {\n    use crate::pod::Pod;\n}\n",
    );
    let two = needs(scratch.path());
    assert_eq!(way_back(&two, "pod"), None);
    assert_eq!(
        described(&two, &way_back(&two, "node").unwrap()),
        "node needs lab (node.rs), lab needs node (lab.rs)"
    );
    write("lab.rs", "use crate::pod::Pod;\n");
    let three = needs(scratch.path());
    assert_eq!(way_back(&three, "lab").unwrap(), ["lab", "pod", "node", "lab"]);
}

/// The files of `engine/northbound` that still need each other: the owner of a row follows from the
/// index, and the index keeps owners.
const NORTHBOUND: [&str; 4] = ["foreign", "index", "owner", "touched"];
/// Files of the engine that still need kinds of objects. The list only becomes shorter.
const ENGINE_NEEDS_KINDS: [&str; 7] = [
    "engine/northbound",
    "engine/northbound/foreign",
    "engine/northbound/owner",
    "engine/reconcile",
    "engine/reconcile/moves",
    "engine/reconcile/observed",
    "engine/reconcile/start",
];

#[test]
fn no_file_of_the_controller_needs_one_that_needs_it() {
    let needs = files_needed(&controller());
    assert!(needs.len() > 80, "{}", needs.len());
    for file in needs.keys() {
        let is_known = |file: &String| {
            file.strip_prefix("engine/northbound/").is_some_and(|name| NORTHBOUND.contains(&name))
        };
        if let Some(circle) = way_back(&needs, file) {
            assert!(circle.iter().all(is_known), "{}", described(&needs, &circle));
        }
    }
}

/// What a kind gives others to read is its `object`; all else they learn from the world.
#[test]
fn no_kind_of_object_needs_another_one_but_its_object() {
    let needs = files_needed(&controller());
    let kind = |file: &str| {
        file.strip_prefix("kinds/").map(|rest| rest.split('/').next().unwrap().to_owned())
    };
    for (file, needed) in needs.iter().filter_map(|(file, needed)| Some((kind(file)?, needed))) {
        for other in needed.keys().filter(|other| kind(other).is_some_and(|kind| kind != file)) {
            assert!(
                other.ends_with("/object"),
                "the kind {file} needs {other} ({})",
                needed[other].display()
            );
        }
    }
}

#[test]
fn the_engine_needs_no_kind_of_object() {
    let needs = files_needed(&controller());
    let of_engine = needs.iter().filter(|(file, _)| file.starts_with("engine/"));
    let need_kinds =
        of_engine.filter(|(_, needed)| needed.keys().any(|other| other.starts_with("kinds/")));
    let need_kinds: Vec<&str> = need_kinds.map(|(file, _)| file.as_str()).collect();
    assert_eq!(need_kinds, ENGINE_NEEDS_KINDS);
}

#[test]
fn a_circle_of_files_is_found_by_way_of_lists_of_paths_but_not_between_a_module_and_its_parts() {
    let scratch = Scratch::new();
    let write = |file: &str, text: &str| {
        fs::create_dir_all(scratch.join(file).parent().unwrap()).unwrap();
        fs::write(scratch.join(file), text).unwrap();
    };
    write("lib.rs", "mod kinds;\nmod world;\n");
    write("kinds.rs", "pub mod pod;\nuse crate::kinds::pod::rows;\n");
    write(
        "kinds/pod/rows.rs",
        "use crate::{\n    kinds::desired,\n    world::{self, World},\n};\n",
    );
    write("kinds/pod/state.rs", "use std::sync::Arc;\n");
    write("world.rs", "use crate::kinds::{self, pod::state::{Pods, Pod}};\n");
    let needs = files_needed(scratch.path());
    assert_eq!(way_back(&needs, "kinds/pod/rows"), None, "{needs:?}");
    write("kinds/pod/state.rs", "fn all() -> crate::kinds::pod::rows::Rows {}\n");
    let circle = way_back(&files_needed(scratch.path()), "world").unwrap();
    assert_eq!(circle, ["world", "kinds/pod/state", "kinds/pod/rows", "world"]);
}

fn controller() -> PathBuf {
    executable::workspace().join("controller/src")
}

/// The same as [`needs`] for files, named by their paths. A module and its own parts may need each
/// other.
fn files_needed(source: &Path) -> Needs {
    let module = |file: &Path| {
        let below = file.strip_prefix(source).expect("a file below it").with_extension("");
        below.to_string_lossy().into_owned()
    };
    let files: BTreeMap<String, PathBuf> = files(source)
        .into_iter()
        .map(|file| (module(&file), file))
        .filter(|(name, _)| name != "lib")
        .collect();
    let mut needs = Needs::new();
    for (name, file) in &files {
        let text = code(&fs::read_to_string(file).expect("a source"));
        let needed = needs.entry(name.clone()).or_default();
        for path in text.split("crate::").skip(1).flat_map(paths) {
            let mut longest = (1..=path.len()).rev().map(|length| path[..length].join("/"));
            let Some(other) = longest.find(|other| files.contains_key(other)) else { continue };
            let is_part = |part: &str, of: &str| {
                part.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if !is_part(name, &other) && !is_part(&other, name) {
                needed
                    .entry(other)
                    .or_insert_with(|| file.strip_prefix(source).expect("below it").to_owned());
            }
        }
    }
    needs
}

/// The paths that a text begins with, of which there may be several in braces.
fn paths(text: &str) -> Vec<Vec<&str>> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    // The path so far, and its length at each open brace.
    let (mut path, mut open): (Vec<&str>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut rest = text;
    loop {
        rest =
            rest.trim_start_matches(|c: char| c.is_whitespace() || (!open.is_empty() && c == '*'));
        let end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
        let before = open.last().copied().unwrap_or_default();
        if end > 0 {
            path.push(&rest[..end]);
            rest = &rest[end..];
            if let Some(next) =
                rest.strip_prefix("::").filter(|next| next.starts_with(|c| is_name(c) || c == '{'))
            {
                rest = next;
                continue;
            }
        }
        if let Some(next) = rest.strip_prefix('{').filter(|_| end == 0) {
            open.push(path.len());
            rest = next;
            continue;
        }
        if path.len() > before {
            found.push(path.clone());
        }
        if open.is_empty() {
            return found;
        }
        path.truncate(before);
        match rest.chars().next() {
            Some('}') => {
                open.pop();
                path.truncate(open.last().copied().unwrap_or_default());
                rest = &rest[1..];
                if open.is_empty() {
                    return found;
                }
            }
            Some(c) => rest = &rest[c.len_utf8()..],
            None => return found,
        }
    }
}

/// Reads the sources of a package below `source`.
fn needs(source: &Path) -> Needs {
    let mut modules: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let mut exported: BTreeMap<String, String> = BTreeMap::new();
    let files = files(source);
    for file in &files {
        let below = file.strip_prefix(source).expect("a file below it");
        let first = below.components().next().expect("a name").as_os_str();
        let name = Path::new(first).file_stem().expect("a name").to_string_lossy().into_owned();
        if name != "lib" && name != "main" {
            modules.entry(name).or_default().push(file.clone());
        }
    }
    for root in ["lib.rs", "main.rs"].map(|file| source.join(file)) {
        let text = fs::read_to_string(root).map(|text| code(&text)).unwrap_or_default();
        for (_, used) in text.match_indices("use ").map(|(at, word)| text.split_at(at + word.len()))
        {
            let Some((module, items)) =
                used.split_once("::").filter(|(first, _)| modules.contains_key(*first))
            else {
                continue;
            };
            let names = items.split(';').next().unwrap_or_default().split([',', '{', '}', ':']);
            for name in names.filter_map(|item| item.split_whitespace().last()) {
                exported.insert(name.to_owned(), module.to_owned());
            }
        }
    }
    let module_of = |name: &str| {
        modules.get_key_value(name).map(|(name, _)| name).or_else(|| exported.get(name))
    };
    let mut needs = Needs::new();
    for (module, files) in &modules {
        for file in files {
            let text = code(&fs::read_to_string(file).expect("a source"));
            for needed in
                roots(&text).into_iter().filter_map(module_of).filter(|needed| *needed != module)
            {
                let below = file.strip_prefix(source).expect("a file below it").to_owned();
                needs.entry(module.clone()).or_default().entry(needed.clone()).or_insert(below);
            }
        }
    }
    needs
}

/// The files of the product's code: without those of unit tests.
fn files(folder: &Path) -> Vec<PathBuf> {
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = fs::read_dir(folder)
        .expect("a folder of sources")
        .flatten()
        .map(|entry| entry.path())
        .partition(|path| path.is_dir());
    let is_code = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs")
    };
    let below = folders
        .iter()
        .filter(|path| !path.ends_with("tests"))
        .flat_map(|folder| self::files(folder));
    files.into_iter().filter(is_code).chain(below).collect()
}

/// A file without comments and without unit tests, which are at its end.
fn code(text: &str) -> String {
    let lines = text.lines().take_while(|line| *line != "mod tests {");
    lines.map(|line| format!("{}\n", line.split("//").next().unwrap_or_default())).collect()
}

/// The first name of each path that begins with `crate::`.
fn roots(text: &str) -> BTreeSet<&str> {
    let name =
        |text: &'_ str| text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let mut roots = BTreeSet::new();
    for path in text.split("crate::").skip(1) {
        let Some(list) = path.strip_prefix('{') else {
            roots.insert(&path[..name(path)]);
            continue;
        };
        let mut depth = 0;
        let mut starts = true;
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => starts = true,
                _ if starts && (c.is_alphanumeric() || c == '_') => {
                    roots.insert(&list[at..at + name(&list[at..])]);
                    starts = false;
                }
                _ => {}
            }
        }
    }
    roots
}

/// The shortest way from a module over those that it needs back to itself.
fn way_back(needs: &Needs, module: &str) -> Option<Vec<String>> {
    let mut ways = vec![vec![module.to_owned()]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for next in needs.get(way.last()?).into_iter().flat_map(BTreeMap::keys) {
                let way: Vec<String> = way.iter().chain([next]).cloned().collect();
                if next == module {
                    return Some(way);
                }
                if seen.insert(next.clone()) {
                    longer.push(way);
                }
            }
        }
        ways = longer;
    }
    None
}

fn described(needs: &Needs, circle: &[String]) -> String {
    let arrows = circle.windows(2).map(|pair| {
        let file = &needs[&pair[0]][&pair[1]];
        format!("{} needs {} ({})", pair[0], pair[1], file.display())
    });
    arrows.collect::<Vec<_>>().join(", ")
}
