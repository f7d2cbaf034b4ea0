//! Rate limits of a pod, from its annotations.

use std::collections::BTreeMap;

/// Annotation with the rate limit of traffic to the pod.
pub const INGRESS_ANNOTATION: &str = "kubernetes.io/ingress-bandwidth";
/// Annotation with the rate limit of traffic from the pod.
pub const EGRESS_ANNOTATION: &str = "kubernetes.io/egress-bandwidth";

/// Bits per second that the Kubernetes API accepts for these annotations: 1k to 1P
/// (kubernetes, `pkg/util/bandwidth`).
const RANGE: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000_000_000;

/// Limits in bits per second, seen from the pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bandwidth {
    /// To the pod; `None` without a limit.
    pub ingress: Option<u64>,
    /// From the pod; `None` without a limit.
    pub egress: Option<u64>,
}

/// A rate limit that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("annotation {annotation} has {value:?}, not a rate from 1k to 1P bits per second")]
pub struct BadBandwidth {
    pub annotation: &'static str,
    pub value: String,
}

impl Bandwidth {
    /// The rate limits in a pod's annotations.
    ///
    /// # Errors
    /// The value of an annotation is not a quantity, or is outside of 1k to 1P.
    pub fn from_annotations(annotations: &BTreeMap<String, String>) -> Result<Self, BadBandwidth> {
        let limit = |annotation| match annotations.get(annotation) {
            None => Ok(None),
            Some(value) => {
                parse_quantity(value).filter(|rate| RANGE.contains(rate)).map(Some).ok_or_else(
                    || BadBandwidth { annotation, value: value.chars().take(64).collect() },
                )
            }
        };
        Ok(Self { ingress: limit(INGRESS_ANNOTATION)?, egress: limit(EGRESS_ANNOTATION)? })
    }
}

/// Parses a Kubernetes quantity and rounds it up to a whole number: decimal digits with an optional
/// fraction, then `k M G T P E`, `Ki Mi … Ei`, `m`, `e3` or nothing (apimachinery,
/// `resource.Quantity`).
fn parse_quantity(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.len() > 18 || fraction.contains('.') {
        return None;
    }
    // Integers throughout: a fraction such as 1.1G must not be subject to floating-point error.
    let (multiplier, divisor) = scale(suffix)?;
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let divisor = divisor.checked_mul(10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
    u64::try_from(digits.checked_mul(multiplier)?.div_ceil(divisor)).ok()
}

/// Multiplier and divisor for a suffix.
fn scale(suffix: &str) -> Option<(u128, u128)> {
    let decimal = |power: u32| Some((10u128.pow(power), 1));
    let binary = |power: u32| Some((1024u128.pow(power), 1));
    match suffix {
        "" => decimal(0),
        "m" => Some((1, 1000)),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        exponent => {
            let power: u32 =
                exponent.strip_prefix(['e', 'E'])?.parse().ok().filter(|power| *power <= 18)?;
            decimal(power)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ingress(value: &str) -> Result<Bandwidth, BadBandwidth> {
        Bandwidth::from_annotations(&BTreeMap::from([(
            INGRESS_ANNOTATION.to_owned(),
            value.to_owned(),
        )]))
    }

    #[test]
    fn quantities_mean_what_kubernetes_means_by_them() {
        for (text, rate) in [
            ("10M", 10_000_000),
            ("1k", 1_000),
            ("1Ki", 1024),
            ("1.5G", 1_500_000_000),
            ("2e6", 2_000_000),
            ("1P", 1_000_000_000_000_000),
            ("1500001m", 1501),
            (".5M", 500_000),
        ] {
            assert_eq!(
                ingress(text),
                Ok(Bandwidth { ingress: Some(rate), egress: None }),
                "{text}"
            );
        }
    }

    #[test]
    fn no_annotation_means_no_limit() {
        assert_eq!(Bandwidth::from_annotations(&BTreeMap::new()), Ok(Bandwidth::default()));
    }

    #[test]
    fn a_refused_limit_is_named_with_its_annotation() {
        for text in [
            "",
            "fast",
            "-1M",
            "999",
            "2P",
            "1.2.3M",
            "++10M",
            "1+M",
            ".+5M",
            "10Q",
            "1e99",
            &"9".repeat(60),
        ] {
            let error = ingress(text).expect_err(text);
            assert_eq!((error.annotation, error.value.as_str()), (INGRESS_ANNOTATION, text));
        }
    }
}
