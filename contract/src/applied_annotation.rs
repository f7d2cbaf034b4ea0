//! The annotation by which an object's owner asks when it is in force.

use std::collections::BTreeMap;

/// Annotation of a pod, a Service or a policy: an event on it says on how many nodes each change of
/// it is in force, and after how long.
pub const REPORT_APPLIED: &str = "k8s.ovn.org/report-applied";

/// Whether this value of the annotation asks for it. Any other one asks for nothing.
pub fn asks(value: Option<&str>) -> bool {
    value == Some("true")
}

/// Whether the annotations ask for it.
pub fn is_asked(annotations: &BTreeMap<String, String>) -> bool {
    asks(annotations.get(REPORT_APPLIED).map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_true_asks() {
        let asked = |value: &str| {
            is_asked(&BTreeMap::from([(REPORT_APPLIED.to_owned(), value.to_owned())]))
        };
        assert_eq!(["true", "false", "yes", ""].map(asked), [true, false, false, false]);
        assert!(!is_asked(&BTreeMap::new()));
    }
}
