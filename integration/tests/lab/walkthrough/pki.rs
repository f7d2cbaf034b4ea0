//! Authorities, and what they sign, in a directory that every node sees.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;
use integration::{command, fabric, mounts};

const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30";

pub(crate) fn file(name: &str) -> String {
    directory().join(name).display().to_string()
}

/// An authority: `NAME.key`, `NAME.crt`.
pub(crate) fn authority(name: &str) -> Result<()> {
    fs::create_dir_all(directory())?;
    openssl(&format!("req -x509 {KEY} -keyout {name}.key -out {name}.crt -subj /CN={name}"))
}

/// `NAME.key` and `NAME.crt` for a client, or for a server at the lab's address.
pub(crate) fn sign(authority: &str, name: &str) -> Result<()> {
    let address = fabric::LAB_ADDRESS;
    openssl(&format!(
        "req -x509 {KEY} -keyout {name}.key -out {name}.crt -subj /CN={name} -CA {authority}.crt \
         -CAkey {authority}.key -addext subjectAltName=IP:{address} \
         -addext basicConstraints=critical,CA:FALSE"
    ))
}

fn directory() -> PathBuf {
    Path::new(mounts::LAB).join("pki")
}

fn openssl(arguments: &str) -> Result<()> {
    let mut openssl = Command::new("openssl");
    openssl.args(arguments.split_whitespace()).current_dir(directory());
    command::output(&mut openssl).map(drop)
}
