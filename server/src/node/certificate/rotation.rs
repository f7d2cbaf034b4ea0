//! The moment at which a certificate is renewed: after two thirds of its lifetime, and a part of a
//! twentieth before or after that, so that nodes that started together do not ask together.

use std::time::{Duration, SystemTime};

/// Two thirds.
const LIFETIME: f64 = 2.0 / 3.0;
/// The random part, to both sides.
const JITTER: f64 = 0.05;

/// The moment for a certificate that is used from `since` and expires at `until`. `draw`, from 0 to
/// 1, belongs to the certificate, so that the moment does not move each time that it is computed.
pub(super) fn due(since: SystemTime, until: SystemTime, draw: f64) -> SystemTime {
    let lifetime = until.duration_since(since).unwrap_or_default();
    let part = LIFETIME - JITTER + 2.0 * JITTER * draw.clamp(0.0, 1.0);
    since + Duration::from_secs_f64(lifetime.as_secs_f64() * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_at_two_thirds_of_its_lifetime_a_twentieth_more_or_less() {
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let until = since + Duration::from_secs(600);
        let after =
            |draw| due(since, until, draw).duration_since(since).unwrap().as_secs_f64().round();
        assert_eq!([0.0, 0.5, 1.0].map(after), [370.0, 400.0, 430.0]);
        // A draw that is none does not leave the range.
        assert_eq!([-5.0, 7.0].map(after), [370.0, 430.0]);
    }

    #[test]
    fn a_certificate_without_a_lifetime_is_due_at_once() {
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert_eq!(due(since, since - Duration::from_secs(1), 0.5), since);
    }
}
