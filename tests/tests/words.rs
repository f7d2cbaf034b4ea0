//! Words and width of the sources: a type's name stands for one thing in its package, and a line has at most 100
//! columns. What is not so yet is listed in `words/exceptions.txt`, a line for each; the list only shrinks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use testkit::executable;

/// Columns of a line. Rustfmt has the same limit for code, and leaves literals and comments alone.
const WIDTH: usize = 100;
const EXCEPTIONS: &str = "tests/tests/words/exceptions.txt";

#[test]
fn a_type_has_a_name_of_its_own_and_lines_are_narrow() {
    let mut found = BTreeSet::new();
    let mut packages = 0;
    for package in folders(executable::workspace()) {
        let sources = sources(&package.join("src"));
        if sources.is_empty() {
            continue;
        }
        packages += 1;
        let package =
            package.file_name().expect("a folder has a name").to_string_lossy().into_owned();
        found.extend(exceptions(&package, &sources));
    }
    assert!(packages > 10, "{packages}");
    let text = fs::read_to_string(executable::workspace().join(EXCEPTIONS)).unwrap_or_default();
    let listed: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    let mended: Vec<_> = listed.difference(&found).collect();
    assert!(new.is_empty(), "not as the other sources; rename or wrap: {new:#?}");
    assert!(
        mended.is_empty(),
        "no exception any more; take these lines out of {EXCEPTIONS}: {mended:#?}"
    );
}

#[test]
fn a_name_that_two_files_define_and_a_wide_line_are_found() {
    let wide = format!("pub(crate) struct Known;\nconst TEXT: &str = \"{}\";\n", "x".repeat(WIDTH));
    let two = "enum Known<T> {}\ntrait Kind {}\nconst RESYNC: u8 = 1;\n#[cfg(test)]\nmod tests {\n    struct Kind;\n}\n";
    let sources = [("a.rs", &*wide), ("b.rs", two), ("c.rs", "const RESYNC: u8 = 2;\n")];
    let sources = sources.map(|(file, text)| (file.to_owned(), text.to_owned()));
    let found: Vec<_> = exceptions("pod", &sources).into_iter().collect();
    assert_eq!(
        found,
        ["pod: a.rs has 1 wide lines", "pod: 2 files define Known", "pod: 2 files define RESYNC",]
            .into_iter()
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
    );
}

/// What of a package is not as it should be. `sources`: names of files below `src`, and their text.
fn exceptions(package: &str, sources: &[(String, String)]) -> BTreeSet<String> {
    let mut defined: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for (file, text) in sources {
        let wide = text.lines().filter(|line| line.chars().count() > WIDTH).count();
        if wide > 0 {
            found.insert(format!("{package}: {file} has {wide} wide lines"));
        }
        if !file.ends_with("tests.rs") {
            for name in without_tests(text).lines().filter_map(definition) {
                defined.entry(name).or_default().insert(file);
            }
        }
    }
    let several = defined.iter().filter(|(_, files)| files.len() > 1);
    found.extend(
        several.map(|(name, files)| format!("{package}: {} files define {name}", files.len())),
    );
    found
}

/// The name that a line defines, if it is that of a type, or one of the constants that belong in one place.
fn definition(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let mut word = words.next()?;
    while word.starts_with("pub") || word.ends_with(')') {
        word = words.next()?;
    }
    let name = words.next()?.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    let is_ours = match word {
        "struct" | "enum" | "trait" => name.starts_with(char::is_uppercase),
        "const" => name == "RESYNC",
        _ => false,
    };
    is_ours.then_some(name)
}

fn without_tests(text: &str) -> &str {
    text.split_once("#[cfg(test)]\nmod tests {").map_or(text, |(before, _)| before)
}

fn folders(below: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(below).expect("a folder of the workspace").flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Every source file below `root`, by its path there.
fn sources(root: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(folder) = left.pop().filter(|folder| folder.is_dir()) {
        for entry in fs::read_dir(&folder).expect("a folder of sources").flatten() {
            let path = entry.path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path
                    .strip_prefix(root)
                    .expect("a file below it")
                    .to_string_lossy()
                    .into_owned();
                all.push((name, fs::read_to_string(&path).expect("a text")));
            }
        }
    }
    all
}
