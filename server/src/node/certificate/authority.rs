//! A certificate authority for tests, which signs for as long as a test says.

use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DnType, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData,
    SignatureAlgorithm,
};

/// The key of a certificate signing request.
struct RequestedKey(Vec<u8>);

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// A certificate for `user` that is valid from so long ago until so long from now, both in seconds,
/// for a key of its own: PEM of certificate and key.
pub(super) fn certificate(user: &str, ago: i64, ahead: i64) -> (String, String) {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    (sign(user, ago, ahead, &key), key.serialize_pem())
}

/// The same for the key of a request in the form of PKCS #10.
pub(super) fn certificate_for(request: &[u8], user: &str, ahead: i64) -> String {
    use rustls::pki_types::{CertificateSigningRequestDer, pem::PemObject};
    use x509_cert::{der::Decode, request::CertReq};
    let der = CertificateSigningRequestDer::from_pem_slice(request).unwrap();
    let request = CertReq::from_der(&der).unwrap();
    let key = request.info.public_key.subject_public_key.raw_bytes().to_vec();
    sign(user, 300, ahead, &RequestedKey(key))
}

fn sign(user: &str, ago: i64, ahead: i64, key: &impl PublicKeyData) -> String {
    let authority = Issuer::new(CertificateParams::default(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, user);
    params.not_before = moment(-ago).into();
    params.not_after = moment(ahead).into();
    params.signed_by(key, &authority).unwrap().pem()
}

/// So many seconds from now.
pub(super) fn moment(seconds: i64) -> SystemTime {
    let offset = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { SystemTime::now() - offset } else { SystemTime::now() + offset }
}
