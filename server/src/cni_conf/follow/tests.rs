use std::fs;

use super::{super::tests::conf, *};

#[test]
fn who_keeps_taking_the_file_away_is_answered_less_and_less_often() {
    let mut damping = Damping::default();
    let mut now = Instant::now();
    assert!(damping.allows(now));
    let mut pauses = Vec::new();
    for _ in 0..9 {
        pauses.push(damping.wrote(now).as_secs());
        assert!(!damping.allows(now) && damping.allows(damping.next(now)));
        now = damping.next(now);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    assert_eq!(damping.wrote(now + QUIET), FIRST_PAUSE);
}

/// Waits until the condition is met, or missing with these words; panics with what it is.
async fn becomes(conditions: &Conditions, words: Option<&str>) {
    let mut watch = conditions.watch();
    let is_so = watch.wait_for(|missing| match (missing.get(&Part::CNI_CONF), words) {
        (None, None) => true,
        (Some(why), Some(words)) => why.contains(words),
        (Some(_), None) | (None, Some(_)) => false,
    });
    let waited = tokio::time::timeout(Duration::from_secs(20), is_so).await.map(drop);
    waited.unwrap_or_else(|_| panic!("{words:?}: {:?}", conditions.all_missing()));
}

/// Waits until the file has this content.
async fn is_back(path: &Path, text: &[u8]) {
    let began = Instant::now();
    while !fs::read(path).is_ok_and(|there| there == text) {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", fs::read_to_string(path));
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_file_that_is_removed_changed_or_hidden_by_another_is_put_back_and_the_other_one_is_named()
 {
    let directory = tempfile::tempdir().unwrap();
    let conf = conf(directory.path(), "10-ovn-kubernetes.conflist");
    let (conditions, path) = (Conditions::default(), conf.path());
    let keeping = tokio::spawn(ConfReconciler::new(conf, conditions.clone()).run());
    becomes(&conditions, None).await;
    let text = fs::read(&path).unwrap();

    fs::remove_file(&path).unwrap();
    is_back(&path, &text).await;
    fs::write(&path, "{}").unwrap();
    is_back(&path, &text).await;

    let other = directory.path().join("05-other.conflist");
    fs::write(&other, r#"{"cniVersion":"1.0.0","name":"other","plugins":[{"type":"bridge"}]}"#)
        .unwrap();
    becomes(&conditions, Some("05-other.conflist (network \"other\")")).await;
    fs::remove_file(&other).unwrap();
    becomes(&conditions, None).await;

    // Multus calls our network.
    fs::write(
        directory.path().join("00-multus.conf"),
        r#"{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus-shim"}"#,
    )
    .unwrap();
    fs::remove_file(&path).unwrap();
    is_back(&path, &text).await;
    becomes(&conditions, None).await;
    keeping.abort();
}

#[tokio::test]
async fn chained_plugins_are_followed_and_wrong_ones_leave_what_is_there() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let chain = elsewhere.path().join("chain.json");
    let conf = CniConf {
        chain: Some(chain.clone()),
        ..conf(directory.path(), "10-ovn-kubernetes.conflist")
    };
    let (conditions, path) = (Conditions::default(), conf.path());
    let keeping = tokio::spawn(ConfReconciler::new(conf, conditions.clone()).run());
    becomes(&conditions, Some("No such file")).await;
    assert!(!path.exists());

    fs::write(&chain, r#"{"type":"portmap"}"#).unwrap();
    becomes(&conditions, None).await;
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(r#"{"type":"portmap"}]"#) && !text.contains("1.1.0"), "{text}");

    fs::write(&chain, "[").unwrap();
    becomes(&conditions, Some("chain.json\" is no JSON")).await;
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    fs::write(&chain, r#"{"plugins":[{"type":"tuning"}],"cniVersions":["1.0.0","1.1.0"]}"#)
        .unwrap();
    becomes(&conditions, None).await;
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.contains(r#""cniVersions":["1.0.0","1.1.0"]"#)
            && text.contains(r#"{"type":"tuning"}]"#),
        "{text}"
    );
    keeping.abort();
}
