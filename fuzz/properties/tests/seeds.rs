//! Every property holds for every seed of its target, also if the seed is cut off anywhere.
//! Targets, their files and their seeds are complete.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use properties::TARGETS;

fn fuzz_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn names_in(directory: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("an entry can be read").path()).collect();
    paths.sort();
    paths
}

#[test]
fn every_property_holds_for_its_seeds_whole_and_cut_off() {
    let mut broken = Vec::new();
    for (name, check) in TARGETS {
        let seeds = names_in(&fuzz_dir().join("corpus-seeds").join(name));
        assert!(!seeds.is_empty(), "{name} has no seeds");
        for seed in seeds {
            let data = fs::read(&seed).unwrap();
            let cuts = (0..8).map(|eighth| data.len() * eighth / 8);
            for length in cuts.chain([data.len()]) {
                if catch_unwind(AssertUnwindSafe(|| check(&data[..length]))).is_err() {
                    broken.push(format!("{name}: the first {length} bytes of {}", seed.display()));
                }
            }
        }
    }
    assert_eq!(broken, [""; 0], "what broke them is printed above");
}

#[test]
fn every_target_has_its_file_and_its_place_in_the_manifest_and_nothing_else_has() {
    let manifest = fs::read_to_string(fuzz_dir().join("Cargo.toml")).unwrap();
    let built: Vec<&str> = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")?.strip_suffix(".rs\""))
        .collect();
    let known: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(built, known, "fuzz/Cargo.toml");
    let stems = |directory: &str| -> Vec<String> {
        names_in(&fuzz_dir().join(directory))
            .iter()
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect()
    };
    assert_eq!(stems("fuzz_targets"), known, "fuzz/fuzz_targets");
    assert_eq!(stems("corpus-seeds"), known, "fuzz/corpus-seeds");
}
