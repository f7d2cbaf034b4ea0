use std::{
    fs::{File, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
};

use super::*;
use crate::node::certificate::authority::{certificate, moment};

const USER: &str = "system:ovn-node:n1";

struct Place {
    directory: tempfile::TempDir,
    store: Store,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(&directory.path().join("certificates"), "n1");
        Self { directory, store }
    }

    fn write(&self, text: &str) {
        fs::create_dir_all(self.store.path().parent().unwrap()).unwrap();
        fs::write(self.store.path(), text).unwrap();
    }

    fn read(&self) -> Result<Current, Unusable> {
        self.store.read(SystemTime::now())
    }
}

fn issued((chain, key): (String, String)) -> Issued {
    Issued { chain, key }
}

#[test]
fn key_and_certificate_are_one_file_that_only_root_reads() {
    let place = Place::new();
    assert_eq!(place.read(), Err(Unusable::Absent));
    let written =
        place.store.write(&issued(certificate(USER, 300, 600)), SystemTime::now()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(
        (mode(place.store.path()), mode(place.store.path().parent().unwrap())),
        (0o600, 0o700)
    );
    let left = written.left(SystemTime::now()).as_secs();
    assert!((590..=600).contains(&left), "{left}");
    // Two thirds of ten minutes, and not of those five more by which it is dated back.
    let due = place.read().unwrap().due().duration_since(SystemTime::now()).unwrap().as_secs();
    assert!((365..=430).contains(&due), "{due}");
    let files: Vec<_> = fs::read_dir(place.store.path().parent().unwrap()).unwrap().collect();
    assert_eq!(files.len(), 1, "{files:?}");
}

/// A file that was copied, restored or is another program's has another age than its certificate.
#[test]
fn a_certificate_is_as_old_as_its_file_only_if_the_file_is_of_its_lifetime() {
    let place = Place::new();
    let (chain, key) = certificate(USER, 3000, 600);
    place.write(&format!("{chain}{key}"));
    let due = |stored: SystemTime| {
        File::options()
            .append(true)
            .open(place.store.path())
            .unwrap()
            .set_modified(stored)
            .unwrap();
        let due = place.read().unwrap().due();
        due.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
            - SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
    };
    // Half an hour ago: 2400 s of lifetime, of which two thirds have been over for 200 s.
    let after = due(moment(-1800));
    assert!((-321.0..=-79.0).contains(&after), "{after}");
    // Before it was valid: from its beginning, which leaves 600 of 3600 s.
    let after = due(moment(-9000));
    assert!((-782.0..=-418.0).contains(&after), "{after}");
}

#[test]
fn a_file_that_cannot_be_used_says_why() {
    let place = Place::new();
    let (chain, key) = certificate(USER, 300, 600);
    let (other_chain, other_key) = certificate("system:ovn-node:n2", 300, 600);
    let (expired, expired_key) = certificate(USER, 600, -1);
    for (text, problem) in [
        (String::new(), "there is no private key in it"),
        (chain.clone(), "there is no private key in it"),
        (key.clone(), "there is no certificate in it"),
        (format!("{chain}{other_key}"), "the private key does not fit the certificate"),
        (
            format!("{}{key}", &chain[..chain.len() / 2]),
            "it is not a certificate with its private key",
        ),
        (format!("{other_chain}{other_key}"), "of user \"system:ovn-node:n2\""),
        (format!("{expired}{expired_key}"), "it has expired"),
        ("x".repeat(2 << 20), "it is too large"),
    ] {
        place.write(&text);
        let why = place.read().unwrap_err().to_string();
        assert!(why.contains(problem), "{why}");
        // What a message shows, a log keeps.
        assert!(!why.contains("PRIVATE") && !why.contains("MII"), "{why}");
    }
    fs::remove_file(place.store.path()).unwrap();
    fs::create_dir(place.store.path()).unwrap();
    assert!(matches!(place.read(), Err(Unusable::Unreadable(_))));
}

#[test]
fn a_certificate_of_another_user_or_key_does_not_replace_the_one_in_use() {
    let place = Place::new();
    place.store.write(&issued(certificate(USER, 300, 600)), SystemTime::now()).unwrap();
    let before = fs::read(place.store.path()).unwrap();
    let (chain, _) = certificate(USER, 300, 600);
    let (_, key) = certificate(USER, 300, 600);
    for wrong in [(chain, key), certificate("system:masters", 300, 600), certificate(USER, 600, -1)]
    {
        let error = place.store.write(&issued(wrong), SystemTime::now()).unwrap_err();
        assert!(matches!(error, WriteError::Unusable(_)), "{error}");
    }
    assert_eq!(fs::read(place.store.path()).unwrap(), before);
}

/// Upstream's store has a symbolic link to a file with a date in its name.
#[test]
fn the_file_of_upstreams_store_is_used_and_replaced_and_its_target_stays() {
    let place = Place::new();
    let directory = place.store.path().parent().unwrap().to_owned();
    fs::create_dir_all(&directory).unwrap();
    let (chain, key) = certificate(USER, 300, 600);
    let dated = directory.join("ovnkube-client-2026-01-01-00-00-00.pem");
    fs::write(&dated, format!("{chain}{key}")).unwrap();
    symlink(&dated, place.store.path()).unwrap();
    assert!(place.read().is_ok());
    place.store.write(&issued(certificate(USER, 300, 900)), SystemTime::now()).unwrap();
    assert!(!fs::symlink_metadata(place.store.path()).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(dated).unwrap(), format!("{chain}{key}"));
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error_with_the_path() {
    let place = Place::new();
    // Root may write anywhere but into a file.
    fs::write(place.directory.path().join("certificates"), "").unwrap();
    fs::set_permissions(place.directory.path().join("certificates"), Permissions::from_mode(0o400))
        .unwrap();
    let error =
        place.store.write(&issued(certificate(USER, 300, 600)), SystemTime::now()).unwrap_err();
    assert!(
        matches!(&error, WriteError::Write { path, .. } if path == place.store.path()),
        "{error:?}"
    );
}
