//! The subject, issuer and validity of a certificate (RFC 5280 §4.1).
//!
//! Reads these fields, but does not verify signatures; `verify` does.

use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time};
use tokio_rustls::rustls::pki_types::CertificateDer;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The object identifier 2.5.4.3, `id-at-commonName`.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// The fields of a certificate that error messages and checks need.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    issuer: &'a [u8],
    subject: &'a [u8],
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

impl<'a> Facts<'a> {
    /// The facts of a certificate, or `None` if the bytes are not a certificate.
    pub(super) fn of(certificate: &'a CertificateDer<'_>) -> Option<Self> {
        let mut outer = Der(certificate.as_ref());
        let mut outer = outer.expect(SEQUENCE)?;
        let mut fields = outer.expect(SEQUENCE)?;
        // The version is absent from certificates of version 1.
        if fields.0.first() == Some(&VERSION) {
            fields.next()?;
        }
        let _serial_number = fields.next()?;
        let _signature_algorithm = fields.next()?;
        let issuer = fields.expect(SEQUENCE)?.0;
        let mut validity = fields.expect(SEQUENCE)?;
        let subject = fields.expect(SEQUENCE)?.0;
        Some(Self {
            issuer,
            subject,
            not_before: moment(validity.next()?)?,
            not_after: moment(validity.next()?)?,
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
        let mut found = None;
        let mut names = Der(self.subject);
        while let Some((_, set)) = names.next() {
            let mut attribute = Der(set).expect(SEQUENCE)?;
            let (_, kind) = attribute.next()?;
            let (_, value) = attribute.next()?;
            if kind == COMMON_NAME {
                found = String::from_utf8(value.to_vec()).ok();
            }
        }
        found
    }
}

/// A time as error messages show it, such as `2026-01-02 03:04:05 UTC`.
pub(super) fn shown(moment: OffsetDateTime) -> String {
    format!("{} {:02}:{:02}:{:02} UTC", moment.date(), moment.hour(), moment.minute(), moment.second())
}

/// A sequence of DER elements.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The tag and contents of the next element; `None` at the end and if the element is invalid.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // The long form: the number of bytes of the length, here 1 to 4, and then the length.
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, contents))
    }

    fn expect(&mut self, tag: u8) -> Option<Self> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, contents)| Self(contents))
    }
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ` (RFC 5280 §4.1.2.5).
fn moment((tag, text): (u8, &[u8])) -> Option<OffsetDateTime> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i32 = year.parse().ok()?;
            // RFC 5280 §4.1.2.5.1: two digits mean 1950 to 2049.
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let field = |index: usize| -> Option<u8> { rest.get(2 * index..2 * index + 2)?.parse().ok() };
    let date = Date::from_calendar_date(year, Month::try_from(field(0)?).ok()?, field(1)?).ok()?;
    let time = Time::from_hms(field(2)?, field(3)?, field(4)?).ok()?;
    Some(PrimitiveDateTime::new(date, time).assume_utc())
}

#[cfg(test)]
mod tests;
