use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
    sync::{Mutex, atomic::Ordering},
};

use tracing::{info, info_span};

use super::*;

/// The lines that a subscriber with a log at `path` writes for the events in `emit`.
fn logged(path: &Path, level: Level, emit: impl FnOnce()) -> Vec<String> {
    let subscriber =
        Registry::default().with(level.filter()).with(layer(Mutex::new(ReopenFile::new(path))));
    tracing::subscriber::with_default(subscriber, emit);
    lines(path)
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// A line without its timestamp, after a check of the timestamp's form.
fn without_time(line: &str) -> &str {
    let (time, rest) = line.split_once('|').expect("a timestamp");
    let form: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(form, "0000-00-00T00:00:00.000Z", "{line}");
    rest
}

#[test]
fn a_line_is_that_of_open_vswitch() {
    let dir = tempfile::tempdir().unwrap();
    let log = logged(&dir.path().join("log"), Level::Debug, || {
        let span = info_span!(
            "request",
            cni.command = "ADD",
            pod.namespace = "shop",
            pod.name = "cart-0",
            sandbox = "0123456789abcdef",
            ifname = "eth0"
        );
        span.in_scope(|| info!(target: "cni::attach", ms = 12.5, addresses = ?["10.0.0.5/24"], reason = "two words", "attached"));
        tracing::error!(target: "cni::del", error = &std::io::Error::other("gone") as &dyn std::error::Error, "left something");
        tracing::warn!(target: "rows", "careful");
        tracing::debug!(target: "rows", none = "", "detail");
        tracing::error!(target: "panic", "dying");
    });
    assert_eq!(
        log.iter().map(|line| without_time(line)).collect::<Vec<_>>(),
        [
            "00001|attach|INFO|[ADD shop/cart-0 sandbox=0123456789ab eth0] attached ms=12.5 addresses=\"[\\\"10.0.0.5/24\\\"]\" \
             reason=\"two words\"",
            "00002|del|ERR|left something error=gone",
            "00003|rows|WARN|careful",
            "00004|rows|DBG|detail none=\"\"",
            "00005|panic|EMER|dying",
        ]
    );
}

#[test]
fn spans_inside_each_other_and_fields_recorded_later_share_one_bracket() {
    let dir = tempfile::tempdir().unwrap();
    let log = logged(&dir.path().join("log"), Level::Info, || {
        let outer = info_span!("request", cni.command = "DEL", ifname = tracing::field::Empty);
        outer.record("ifname", "eth0");
        outer.in_scope(|| info_span!("port", port = 7).in_scope(|| info!(target: "m", "here")));
    });
    assert_eq!(without_time(&log[0]), "00001|m|INFO|[DEL eth0 port=7] here");
}

#[test]
fn control_characters_and_endless_values_never_reach_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let endless = "ä".repeat(4000);
    let log = logged(&dir.path().join("log"), Level::Info, || {
        let span = info_span!("request", pod.name = "a\nb\u{1b}[31m");
        span.in_scope(
            || info!(target: "m", value = "x\u{2028}y\r\u{9b}\u{202e}", endless, "m\n2026-01-01T00:00:00.000Z|00001|m|INFO|forged"),
        );
    });
    let [line] = &log[..] else { panic!("one line: {log:?}") };
    assert!(!line.contains(|c: char| c.is_control() || "\u{2028}\u{202e}".contains(c)), "{line}");
    assert!(line.contains("[a\\nb\\u{1b}[31m] m\\n2026"), "{line}");
    assert!(line.contains("value=x\\u{2028}y\\r\\u{9b}\\u{202e} "), "{line}");
    assert!(line.ends_with("ä…") && line.len() < 1400, "{} bytes", line.len());
}

#[test]
fn twenty_processes_at_once_leave_no_torn_line() {
    const LINES: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    if let Some(path) = std::env::var_os("LOG_OF_ONE_OF_TWENTY") {
        logged(Path::new(&path), Level::Info, || {
            (0..LINES).for_each(|n| info!(target: "m", n, filler = "x".repeat(700), "line end"))
        });
        return;
    }
    let this_test = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "tests::twenty_processes_at_once_leave_no_torn_line"]);
        command.env("LOG_OF_ONE_OF_TWENTY", &path).stdout(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (0..20).map(|_| this_test()).collect();
    assert!(children.into_iter().all(|mut child| child.wait().unwrap().success()));

    let lines = lines(&path);
    assert_eq!(lines.len(), 20 * LINES);
    let torn = lines.iter().find(|line| {
        !without_time(line).contains("|m|INFO|line end n=") || !line.ends_with(&"x".repeat(700))
    });
    assert_eq!(torn, None);
}

#[test]
fn after_a_rename_lines_go_to_a_new_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, rotated) = (dir.path().join("log"), dir.path().join("log.1"));
    let mut file = ReopenFile::always_checking(&path);
    file.write_all(b"one\n").unwrap();
    fs::rename(&path, &rotated).unwrap();
    file.write_all(b"two\n").unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all(b"three\n").unwrap();
    assert_eq!((lines(&rotated), lines(&path)), (vec!["one".to_owned()], vec!["three".to_owned()]));
}

#[test]
fn the_path_is_looked_at_once_a_second_only() {
    let dir = tempfile::tempdir().unwrap();
    let (path, rotated) = (dir.path().join("log"), dir.path().join("log.1"));
    let mut file = ReopenFile::new(&path);
    file.write_all(b"one\n").unwrap();
    fs::rename(&path, &rotated).unwrap();
    file.write_all(b"two\n").unwrap();
    assert_eq!(lines(&rotated), ["one", "two"]);
}

#[test]
fn a_full_disk_costs_lines_and_nothing_else() {
    let mut file = ReopenFile::new("/dev/full");
    let lost = file.lost();
    file.write_all(b"one\n").unwrap();
    file.write_all(b"two\n").unwrap();
    assert_eq!(lost.load(Ordering::Relaxed), 2);
}

#[test]
fn a_missing_directory_is_created_and_one_that_cannot_be_costs_lines_only() {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("openvswitch/log");
    ReopenFile::new(&path).write_all(b"one\n").unwrap();
    assert_eq!(lines(&path), ["one"]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o137, 0, "at most 0640");

    let mut below_a_file = ReopenFile::new(path.join("log"));
    below_a_file.write_all(b"two\n").unwrap();
    assert_eq!(below_a_file.lost().load(Ordering::Relaxed), 1);
    assert!(below_a_file.check().is_ok(), "an error is not asked for twice in a second");
}

#[test]
fn a_directory_where_others_may_put_files_leads_to_no_other_file() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let dir = tempfile::tempdir().unwrap();
    let (victim, shared) = (dir.path().join("victim"), dir.path().join("shared"));
    fs::write(&victim, "as it was\n").unwrap();
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    symlink(&victim, shared.join("soft")).unwrap();
    fs::hard_link(&victim, shared.join("hard")).unwrap();
    for name in ["soft", "hard"] {
        let mut file = ReopenFile::new(shared.join(name));
        file.write_all(b"one\n").unwrap();
        assert_eq!(file.lost().load(Ordering::Relaxed), 1, "{name}");
    }
    assert_eq!(lines(&victim), ["as it was"]);

    let plain = shared.join("log");
    ReopenFile::new(&plain).write_all(b"one\n").unwrap();
    assert_eq!(lines(&plain), ["one"]);
    // Links in a directory that only this user can write to are followed: the user made them, such
    // as one to /dev/stderr.
    let link = dir.path().join("link");
    fs::remove_file(shared.join("hard")).unwrap();
    symlink(&victim, &link).unwrap();
    ReopenFile::new(&link).write_all(b"two\n").unwrap();
    assert_eq!(lines(&victim), ["as it was", "two"]);
}

#[test]
fn a_fifo_that_nobody_reads_blocks_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut file = ReopenFile::new(&path);
    file.write_all(b"one\n").unwrap();
    assert_eq!(file.lost().load(Ordering::Relaxed), 1);
}

#[test]
fn a_level_is_named_as_open_vswitch_or_as_klog_names_it() {
    for (text, level) in [
        ("emer", Level::Error),
        ("ERR", Level::Error),
        ("error", Level::Error),
        ("warn", Level::Warn),
        ("Info", Level::Info),
        ("dbg", Level::Debug),
        ("debug", Level::Debug),
        ("0", Level::Info),
        ("4", Level::Info),
        ("5", Level::Debug),
        ("10", Level::Debug),
    ] {
        assert_eq!(text.parse(), Ok(level), "{text}");
    }
    assert_eq!(
        "loud".parse::<Level>().unwrap_err().to_string(),
        "level \"loud\" is none of emer, err, warn, info, dbg, or a klog verbosity"
    );
}

#[test]
fn libraries_do_not_drown_what_is_told_of_pods() {
    let dir = tempfile::tempdir().unwrap();
    let log = logged(&dir.path().join("log"), Level::Debug, || {
        tracing::debug!(target: "hyper_util::client::legacy::pool", "pooling idle connection");
        tracing::warn!(target: "kube_client::client", "eof in poll");
        tracing::error!(target: "rustls::conn", "broken");
        tracing::debug!("of a pod");
        // A package of this project whose name begins like the libraries'.
        tracing::info!(target: "kubeapi::connection::reloading_client", "reloaded API server credentials");
    });
    assert_eq!(log.len(), 3, "{log:?}");
    assert!(log[0].ends_with("|conn|ERR|broken") && log[1].ends_with("of a pod"), "{log:?}");
    assert!(log[2].ends_with("|reloading_client|INFO|reloaded API server credentials"), "{log:?}");
}
