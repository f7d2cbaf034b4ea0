//! Annotations of namespaces, which users write.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::switch::{self, NotASwitch};

/// Annotation with the severities of log lines about the policies of a namespace.
pub const ACL_LOGGING: &str = "k8s.ovn.org/acl-logging";

/// Annotation of a namespace whose pods have multicast among themselves.
pub const MULTICAST: &str = "k8s.ovn.org/multicast-enabled";

/// Annotations that are read of a namespace.
pub const ALL: [&str; 2] = [ACL_LOGGING, MULTICAST];

/// Characters of a value in a message.
const SHOWN: usize = 64;

/// The severity of a log line, as ovn-nb(5) spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    Alert,
    Warning,
    Notice,
    Info,
    Debug,
}

/// With which severities the policies of a namespace are logged. None: not at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AclLogging {
    /// What a policy allows.
    pub allow: Option<Severity>,
    /// What no policy allows.
    pub deny: Option<Severity>,
}

/// Whether the pods of a namespace have multicast among themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Multicast {
    #[default]
    Off,
    On,
}

/// A value of an annotation that cannot be used, and what is without effect for that reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadNamespaceAnnotation {
    #[error(
        "{ACL_LOGGING} has {0:?}, which is not JSON like {{\"allow\": \"info\", \"deny\": \"alert\"}}; nothing is logged"
    )]
    NoLogging(Box<str>),
    #[error(
        "{ACL_LOGGING} has the severity {value:?} of {verdict}, which is none of alert, warning, notice, info \
         and debug; that is not logged"
    )]
    Severity { verdict: &'static str, value: Box<str> },
    #[error("{0}; the pods have no multicast")]
    Multicast(#[from] NotASwitch),
    #[error(
        "{MULTICAST} has no effect without the option --enable-multicast of the control plane; the pods have \
         no multicast"
    )]
    MulticastIsOff,
}

impl Multicast {
    /// What the annotations of a namespace say.
    ///
    /// # Errors
    /// The value is neither `true` nor `false`.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
    ) -> Result<Self, BadNamespaceAnnotation> {
        // Off for upstream without a word, which only looks for `true`.
        if annotations.get(MULTICAST).is_some_and(String::is_empty) {
            return Ok(Self::Off);
        }
        Ok(if switch::is_on(annotations, MULTICAST)? { Self::On } else { Self::Off })
    }
}

impl Severity {
    pub const ALL: [Self; 5] = [Self::Alert, Self::Warning, Self::Notice, Self::Info, Self::Debug];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alert => "alert",
            Self::Warning => "warning",
            Self::Notice => "notice",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

impl AclLogging {
    /// What the annotations of a namespace say, and the first value among them that cannot be used.
    /// Such a value, an empty one and an absent one turn off what they are about, and nothing else.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
    ) -> (Self, Option<BadNamespaceAnnotation>) {
        let Some(text) = annotations.get(ACL_LOGGING).filter(|text| !text.is_empty()) else {
            return (Self::default(), None);
        };
        let levels = serde_json::from_str::<Map<String, Value>>(text).ok();
        let level = |levels: &Map<String, Value>, verdict| match levels.get(verdict) {
            None => Some(String::new()),
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => None,
        };
        let levels =
            levels.and_then(|levels| Some((level(&levels, "allow")?, level(&levels, "deny")?)));
        let Some((allow, deny)) = levels else {
            return (Self::default(), Some(BadNamespaceAnnotation::NoLogging(shown(text))));
        };
        let mut bad = None;
        let mut severity = |verdict, text: &str| {
            let known = Severity::ALL.into_iter().find(|severity| severity.as_str() == text);
            if known.is_none() && !text.is_empty() {
                bad.get_or_insert(BadNamespaceAnnotation::Severity { verdict, value: shown(text) });
            }
            known
        };
        let logging = Self { allow: severity("allow", &allow), deny: severity("deny", &deny) };
        (logging, bad)
    }
}

fn shown(text: &str) -> Box<str> {
    text.chars().take(SHOWN).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (AclLogging, Option<String>) {
        let annotations = BTreeMap::from([(ACL_LOGGING.to_owned(), text.to_owned())]);
        let (logging, bad) = AclLogging::from_annotations(&annotations);
        (logging, bad.map(|bad| bad.to_string()))
    }

    #[test]
    fn a_severity_is_that_of_its_verdict_and_what_is_absent_is_not_logged() {
        let (allow, deny) = (Some(Severity::Info), Some(Severity::Alert));
        for (text, expected) in [
            (r#"{"allow":"info","deny":"alert"}"#, AclLogging { allow, deny }),
            (r#"{"deny": "alert", "other": 1}"#, AclLogging { allow: None, deny }),
            (r#"{"allow": "info", "deny": ""}"#, AclLogging { allow, deny: None }),
            ("{}", AclLogging::default()),
            ("", AclLogging::default()),
        ] {
            assert_eq!(read(text), (expected, None), "{text}");
        }
        assert_eq!(AclLogging::from_annotations(&BTreeMap::new()), (AclLogging::default(), None));
    }

    #[test]
    fn only_true_turns_multicast_on_and_another_value_leaves_pods_without() {
        let read = |text: &str| {
            Multicast::from_annotations(&BTreeMap::from([(MULTICAST.to_owned(), text.to_owned())]))
        };
        assert_eq!(Multicast::from_annotations(&BTreeMap::new()), Ok(Multicast::Off));
        assert_eq!(
            ["true", "false", ""].map(read),
            [Ok(Multicast::On), Ok(Multicast::Off), Ok(Multicast::Off)]
        );
        assert_eq!(
            read("yes").unwrap_err().to_string(),
            r#"k8s.ovn.org/multicast-enabled has "yes", which is neither true nor false; the pods have no multicast"#
        );
    }

    #[test]
    fn a_value_that_cannot_be_used_is_named_and_takes_nothing_else_away() {
        let (logging, bad) = read(r#"{"allow":"loud","deny":"alert"}"#);
        assert_eq!(logging, AclLogging { allow: None, deny: Some(Severity::Alert) });
        assert!(bad.unwrap().contains(r#"the severity "loud" of allow"#));
        for text in ["alert", "[]", r#"{"allow": 1}"#, r#"{"allow": "info""#, &"[".repeat(100_000)]
        {
            let (logging, bad) = read(text);
            assert_eq!(
                (logging, bad.is_some_and(|bad| bad.len() < 300)),
                (AclLogging::default(), true)
            );
        }
    }
}
