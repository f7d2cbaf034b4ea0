use std::{fs, time::Instant};

use tempfile::TempDir;

use super::*;

/// A directory that is followed, and its source.
struct Followed {
    directory: TempDir,
    source: Manifests,
}

impl Followed {
    fn start(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| fs::write(directory.path().join(name), text).unwrap());
        let source = Manifests::start(directory.path()).unwrap();
        Self { directory, source }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).unwrap();
    }

    /// The UID of `default/<pod>` once it satisfies `wanted`. `None` for a pod that is not known.
    async fn uid(&self, pod: &str, wanted: Option<&str>) {
        let mut watch = self.source.watch(&PodKey::new("default", pod).unwrap());
        let there = async {
            while watch.now().map(|pod| pod.facts.uid.clone()).as_deref() != wanted {
                watch.changed().await;
            }
        };
        if timeout(Duration::from_secs(5), there).await.is_err() {
            panic!("pod {pod}: wanted {wanted:?}, have {:?}", watch.now());
        }
    }
}

fn pod(name: &str, uid: &str) -> String {
    format!("kind: Pod\nmetadata: {{name: {name}, uid: {uid}}}\n")
}

#[tokio::test]
async fn files_are_followed_from_first_to_last() {
    let followed = Followed::start(&[("a.yaml", &pod("a", "u1"))]);
    followed.uid("a", Some("u1")).await;
    followed.write("b.json", r#"{"kind":"Pod","metadata":{"name":"b","uid":"u2"}}"#);
    followed.uid("b", Some("u2")).await;

    followed.write(".a.yaml.swp", &pod("a", "wrong"));
    fs::rename(
        followed.directory.path().join(".a.yaml.swp"),
        followed.directory.path().join("a.yaml"),
    )
    .unwrap();
    followed.uid("a", Some("wrong")).await;
    fs::rename(followed.directory.path().join("a.yaml"), followed.directory.path().join("a.yaml~"))
        .unwrap();
    followed.uid("a", None).await;
    fs::remove_file(followed.directory.path().join("b.json")).unwrap();
    followed.uid("b", None).await;
}

#[tokio::test]
async fn a_malformed_file_costs_neither_other_pods_nor_its_own_of_before() {
    let followed = Followed::start(&[("a.yaml", &pod("a", "u1")), ("b.yaml", "kind: [")]);
    followed.write("a.yaml", "kind: Pod\nmetadata: {name: A}\n");
    followed.write("b.yaml", &pod("b", "u2"));
    followed.uid("b", Some("u2")).await;
    followed.uid("a", Some("u1")).await;
}

#[tokio::test]
async fn of_several_files_with_one_pod_the_last_counts_until_it_is_gone() {
    let followed = Followed::start(&[("1.yaml", &pod("a", "u1")), ("2.yaml", &pod("a", "u2"))]);
    followed.uid("a", Some("u2")).await;
    followed.write("1.yaml", &pod("a", "u3"));
    followed.uid("a", Some("u3")).await;
    fs::remove_file(followed.directory.path().join("1.yaml")).unwrap();
    followed.uid("a", Some("u2")).await;

    // The events are handled together: their order counts, not that of the names.
    followed.write("2.yaml", &pod("a", "u4"));
    followed.write("1.yaml", &pod("a", "u5"));
    followed.uid("a", Some("u5")).await;
}

#[tokio::test]
async fn a_mounted_config_map_changes_all_of_its_files_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for (version, uid) in [("..1", "u1"), ("..2", "u2")] {
        fs::create_dir(path(version)).unwrap();
        fs::write(path(version).join("a.yaml"), pod("a", uid)).unwrap();
    }
    std::os::unix::fs::symlink("..1", path("..data")).unwrap();
    std::os::unix::fs::symlink("..data/a.yaml", path("a.yaml")).unwrap();
    let source = Manifests::start(directory.path()).unwrap();
    let followed = Followed { directory, source };
    followed.uid("a", Some("u1")).await;

    let path = |name: &str| followed.directory.path().join(name);
    std::os::unix::fs::symlink("..2", path("..data_tmp")).unwrap();
    fs::rename(path("..data_tmp"), path("..data")).unwrap();
    followed.uid("a", Some("u2")).await;
}

#[tokio::test]
async fn events_that_were_too_many_are_made_up_for() {
    let followed = Followed::start(&[]);
    // More than /proc/sys/fs/inotify/max_queued_events, while this thread (the runtime's only one)
    // keeps the reader from reading.
    let queue: usize = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    for n in 0..queue + 1000 {
        followed.write(if n % 2 == 0 { "x" } else { "y" }, "");
    }
    followed.write("a.yaml", &pod("a", "u1"));
    followed.uid("a", Some("u1")).await;
}

#[tokio::test]
async fn a_directory_that_vanishes_keeps_its_pods_and_is_found_again() {
    let followed = Followed::start(&[("a.yaml", &pod("a", "u1"))]);
    let path = followed.directory.path().to_owned();
    let elsewhere = path.with_extension("moved");
    fs::rename(&path, &elsewhere).unwrap();
    readiness(&followed.source, |readiness| matches!(readiness, Readiness::NotSynced(_))).await;
    followed.uid("a", Some("u1")).await;

    fs::create_dir(&path).unwrap();
    followed.write("b.yaml", &pod("b", "u2"));
    followed.uid("b", Some("u2")).await;
    followed.uid("a", None).await;
    readiness(&followed.source, |readiness| *readiness == Readiness::Synced).await;
    fs::remove_dir_all(elsewhere).unwrap();
}

async fn readiness(source: &Manifests, wanted: impl Fn(&Readiness) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !wanted(&source.readiness()) {
        assert!(Instant::now() < deadline, "{:?}", source.readiness());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_missing_directory_is_an_error_that_names_it() {
    let error = Manifests::start(Path::new("/no/such/directory")).unwrap_err();
    assert_eq!(
        crate::chain(&error),
        "pod manifests in \"/no/such/directory\": No such file or directory (os error 2)"
    );
}
