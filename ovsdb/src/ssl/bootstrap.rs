//! Writes the CA file from the certificates of the first server that answers.
//!
//! Decides what may be written, and writes it. `handshake` makes the connection.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tokio_rustls::rustls::{
    crypto::WebPkiSupportedAlgorithms,
    pki_types::{CertificateDer, UnixTime},
};

use super::{certificate::Facts, material::Authorities, verify::verify_chain};
use crate::error::SslError;

/// The authority at the end of a server's chain, if it signed that chain.
pub(super) fn authority<'a>(
    chain: &'a [CertificateDer<'static>],
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<&'a CertificateDer<'static>, String> {
    let (own, between) = chain.split_first().ok_or("the server shows no certificate")?;
    // Of a chain of one, the server's own certificate may be self-signed, and is its authority
    // then.
    let last = between.last().unwrap_or(own);
    if !Facts::of(last).is_some_and(|facts| facts.is_self_signed()) {
        return Err(
            "the server does not send the certificate of its authority (its option --peer-ca-cert does)"
                .to_owned(),
        );
    }
    let verified = Authorities::of(last).and_then(|authorities| {
        verify_chain(&authorities, algorithms, own, between, UnixTime::now())
    });
    verified.map_err(|error| {
        format!(
            "the authority that the server sends has not signed the server's certificate: {error}"
        )
    })?;
    Ok(last)
}

/// Attempts of this process to write a file.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Writes the file atomically, and never replaces an existing one. Blocks.
pub(super) fn write(path: &Path, certificate: &CertificateDer<'_>) -> Result<(), SslError> {
    let failed = |error| SslError::Write { path: path.to_owned(), error };
    let name = path
        .file_name()
        .ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?
        .to_string_lossy();
    // In the same directory: a link cannot cross file systems.
    // Numbered: several connections of one process may bootstrap at once.
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let new = path.with_file_name(format!(".{name}.{}.{number}.new", std::process::id()));
    let written =
        // A link, because a rename would replace a file that appeared meanwhile.
        write_new(&new, pem(certificate).as_bytes()).and_then(|()| match fs::hard_link(&new, path) {
            // Another process or connection wrote the file first. It is read again and used.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        });
    drop(fs::remove_file(&new));
    written.map_err(failed)
}

fn write_new(path: &Path, contents: &[u8]) -> io::Result<()> {
    // Left over from a process with the same id that died.
    drop(fs::remove_file(path));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.write_all(contents)?;
    // Before the link: after a power failure the file must not be empty, because it is never
    // written again.
    file.sync_all()
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let text = STANDARD.encode(certificate.as_ref());
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem + "-----END CERTIFICATE-----\n"
}
