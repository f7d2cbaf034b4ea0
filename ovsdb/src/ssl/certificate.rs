//! The subject, issuer and validity of a certificate (RFC 5280 §4.1).
//!
//! Reads these fields, but does not verify signatures; `verify` does.

use time::OffsetDateTime;
use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_cert::{
    certificate::{CertificateInner, Raw},
    der::{Decode as _, oid::db::rfc4519::COMMON_NAME},
    name::Name,
    time::Time,
};

/// The fields of a certificate that error messages and checks need.
#[derive(Debug)]
pub(super) struct Facts {
    issuer: Name,
    subject: Name,
    pub(super) not_before: OffsetDateTime,
    pub(super) not_after: OffsetDateTime,
}

/// Whether a time is before, within or after a certificate's validity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Validity {
    NotYet,
    Valid,
    Expired,
}

impl Facts {
    /// The facts of a certificate, or `None` if the bytes are not a certificate.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        // `Raw`: authorities made by hand have serial numbers of more than 20 bytes, which rustls
        // takes.
        let certificate = CertificateInner::<Raw>::from_der(certificate).ok()?;
        let signed = certificate.tbs_certificate();
        Some(Self {
            issuer: signed.issuer().clone(),
            subject: signed.subject().clone(),
            not_before: moment(signed.validity().not_before)?,
            not_after: moment(signed.validity().not_after)?,
        })
    }

    /// Whether the certificate names itself as its issuer. The signature is not verified.
    pub(super) fn is_self_signed(&self) -> bool {
        self.issuer == self.subject
    }

    pub(super) fn validity(&self, now: OffsetDateTime) -> Validity {
        if now < self.not_before {
            Validity::NotYet
        } else if now > self.not_after {
            Validity::Expired
        } else {
            Validity::Valid
        }
    }

    /// The common name, or the last one if there are several.
    pub(super) fn common_name(&self) -> Option<String> {
        let last = self.subject.iter().filter(|attribute| attribute.oid == COMMON_NAME).last()?;
        // Whatever string type it has: names are compared as UTF-8.
        String::from_utf8(last.value.value().to_vec()).ok()
    }
}

/// A time as error messages show it, such as `2026-01-02 03:04:05 UTC`.
pub(super) fn shown(moment: OffsetDateTime) -> String {
    format!(
        "{} {:02}:{:02}:{:02} UTC",
        moment.date(),
        moment.hour(),
        moment.minute(),
        moment.second()
    )
}

fn moment(time: Time) -> Option<OffsetDateTime> {
    let seconds = i64::try_from(time.to_unix_duration().as_secs()).ok()?;
    OffsetDateTime::from_unix_timestamp(seconds).ok()
}

#[cfg(test)]
mod tests;
