use super::*;

/// A log in a directory of its own, with limits in bytes.
fn log(size: u64, backups: usize) -> (tempfile::TempDir, RotatedFile) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ovnkube.log");
    let mut rotated = RotatedFile::new(ReopenFile::new(&path), &path, Rotation::default());
    rotated.limits = Limits {
        size: Some(size),
        backups: Some(backups).filter(|backups| *backups > 0),
        age: None,
    };
    (dir, rotated)
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Writes a line after waiting for the next millisecond, so that each backup has its own name.
fn write(log: &mut RotatedFile, line: &str) {
    let now = OffsetDateTime::now_utc().format(TIME).unwrap();
    while OffsetDateTime::now_utc().format(TIME).unwrap() == now {
        std::hint::spin_loop();
    }
    log.write_all(line.as_bytes()).unwrap();
}

#[test]
fn a_line_that_would_be_too_much_begins_a_new_file_and_none_is_lost() {
    let (dir, mut log) = log(40, 0);
    for number in 0..10 {
        write(&mut log, &format!("line number {number:05}\n"));
    }
    let files = names(dir.path());
    assert_eq!(files.len(), 5, "{files:?}");
    let texts: Vec<String> =
        files.iter().map(|name| fs::read_to_string(dir.path().join(name)).unwrap()).collect();
    assert!(texts.iter().all(|text| text.lines().count() == 2), "{texts:?}");
    let mut lines: Vec<&str> = texts.iter().flat_map(|text| text.lines()).collect();
    lines.sort_unstable();
    assert_eq!(lines.first(), Some(&"line number 00000"));
    assert_eq!((lines.len(), lines.last()), (10, Some(&"line number 00009")));
    assert_eq!(
        texts[0], "line number 00008\nline number 00009\n",
        "the newest are in the log itself"
    );
}

#[test]
fn only_the_newest_are_kept_and_no_other_file_is_touched() {
    let (dir, mut log) = log(10, 2);
    let others = [
        "ovnkube.log.1",
        "ovnkube.log.2.gz",
        "ovnkube.log-20261121",
        "ovnkube-master.log",
        "ovnkube-2026-01-01T00-00-00.000.log",
        "ovnkube.log.2026-13-01T00-00-00.000",
        "ovnkube.log.2026-01-01T00-00-00.000.gz",
        "xovnkube.log.2026-01-01T00-00-00.000",
        "ovs-vswitchd.log",
    ];
    others.iter().for_each(|name| fs::write(dir.path().join(name), "foreign").unwrap());
    fs::create_dir(dir.path().join("ovnkube.log.2020-01-01T00-00-00.000")).unwrap();
    let old = ["ovnkube.log.2026-01-01T00-00-00.000", "ovnkube.log.2026-01-02T00-00-00.000"];
    old.iter().for_each(|name| fs::write(dir.path().join(name), "ours").unwrap());
    for number in 0..4 {
        write(&mut log, &format!("line {number:04}\n"));
    }
    let left = names(dir.path());
    assert!(others.iter().all(|name| left.contains(&(*name).to_owned())), "{left:?}");
    assert!(old.iter().all(|name| !left.contains(&(*name).to_owned())), "{left:?}");
    // The log, two renamed logs, the directory, and the others.
    assert_eq!(left.len(), 1 + 2 + 1 + others.len(), "{left:?}");
}

#[test]
fn what_is_too_old_goes() {
    let (dir, mut log) = log(1000, 0);
    log.limits.age = Some(5 * DAY);
    let now = SystemTime::now();
    let name = |age: Duration| log.backup(now - age).unwrap();
    let (young, old) = (name(4 * DAY), name(6 * DAY));
    fs::write(&young, "").unwrap();
    fs::write(&old, "").unwrap();
    log.prune(now);
    assert_eq!(names(dir.path()), [young.file_name().unwrap().to_str().unwrap()]);
}

#[test]
fn a_rename_by_logrotate_counts_as_an_empty_file() {
    let (dir, mut log) = log(40, 0);
    write(&mut log, "line number 00000\n");
    write(&mut log, "line number 00001\n");
    fs::rename(dir.path().join("ovnkube.log"), dir.path().join("ovnkube.log.1")).unwrap();
    log.looked = Instant::now() - Duration::from_secs(2);
    write(&mut log, "line number 00002\n");
    log.file.reopen_flag().store(true, std::sync::atomic::Ordering::Relaxed);
    write(&mut log, "line number 00003\n");
    assert_eq!(names(dir.path()), ["ovnkube.log", "ovnkube.log.1"], "nothing was renamed here");
}

#[test]
fn where_nothing_can_be_renamed_the_log_grows() {
    let (dir, mut log) = log(20, 0);
    write(&mut log, "line number 00000\n");
    log.path = dir.path().join("elsewhere/ovnkube.log");
    log.size = Some(30);
    write(&mut log, "line number 00001\n");
    assert!(log.not_before.is_some());
    assert_eq!(fs::read_to_string(dir.path().join("ovnkube.log")).unwrap().lines().count(), 2);
}

#[test]
fn limits_are_in_megabytes_files_and_days_and_zero_is_none() {
    let limits = Limits::from(Rotation { max_size: 100, max_backups: 5, max_age: 5 });
    assert_eq!(limits, Limits { size: Some(100 << 20), backups: Some(5), age: Some(5 * DAY) });
    assert_eq!(Limits::from(Rotation::default()), Limits { size: None, backups: None, age: None });
    assert_eq!(
        Limits::from(Rotation { max_size: u64::MAX, ..Rotation::default() }).size,
        Some(u64::MAX)
    );
}
