//! The file of authorities, taken from the first server that answers.
//!
//! Decides what may be written and writes it; the connection is the part of `handshake`.

use std::{fs, io, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tokio_rustls::rustls::{
    crypto::WebPkiSupportedAlgorithms,
    pki_types::{CertificateDer, UnixTime},
};

use super::{SslError, certificate::Facts, material::Authorities, verify::verify_chain};

/// The authority at the end of a server's chain, if it really signed that chain.
pub(super) fn authority<'a>(
    chain: &'a [CertificateDer<'static>],
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<&'a CertificateDer<'static>, String> {
    let (own, between) = chain.split_first().ok_or("the server shows no certificate")?;
    let last = between.last().unwrap_or(own);
    if !Facts::of(last).is_some_and(|facts| facts.is_self_signed()) {
        return Err("the server does not send the certificate of its authority (its option --peer-ca-cert does)".to_owned());
    }
    let verified = Authorities::of(last).and_then(|authorities| verify_chain(&authorities, algorithms, own, between, UnixTime::now()));
    verified.map_err(|error| format!("the authority that the server sends has not signed the server's certificate: {error}"))?;
    Ok(last)
}

/// Writes the file whole or not at all, and never over another. Blocks.
pub(super) fn write(path: &Path, certificate: &CertificateDer<'_>) -> Result<(), SslError> {
    let failed = |error| SslError::Write { path: path.to_owned(), error };
    let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?.to_string_lossy();
    let new = path.with_file_name(format!(".{name}.{}.new", std::process::id()));
    let written = write_new(&new, pem(certificate).as_bytes()).and_then(|()| match fs::hard_link(&new, path) {
        // Somebody else was faster: what they wrote counts.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    drop(fs::remove_file(&new));
    written.map_err(failed)
}

fn write_new(path: &Path, contents: &[u8]) -> io::Result<()> {
    // One of the same name can only be left over from a process that died.
    drop(fs::remove_file(path));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.write_all(contents)?;
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
