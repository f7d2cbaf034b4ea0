//! The supported versions of the CNI specification: those of the Go library's `version.All`.

use std::{fmt, str::FromStr};

/// A version of the CNI specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpecVersion {
    V0_1_0,
    V0_2_0,
    V0_3_0,
    V0_3_1,
    V0_4_0,
    V1_0_0,
    V1_1_0,
}

/// A version that is not one of [`SpecVersion::ALL`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "CNI version {0:?} is not one of {known}",
    known = SpecVersion::ALL.map(SpecVersion::as_str).join(", ")
)]
pub struct UnknownVersion(pub String);

impl SpecVersion {
    /// Oldest first.
    pub const ALL: [Self; 7] = [
        Self::V0_1_0,
        Self::V0_2_0,
        Self::V0_3_0,
        Self::V0_3_1,
        Self::V0_4_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];
    /// The version in the answer to VERSION, and in an error for which the request is unknown.
    pub const NEWEST: Self = Self::V1_1_0;

    /// The version as the specification spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }
}

impl FromStr for SpecVersion {
    type Err = UnknownVersion;

    /// The empty text means 0.1.0, as in the Go library.
    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        if text.is_empty() {
            return Ok(Self::V0_1_0);
        }
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == text)
            .ok_or_else(|| UnknownVersion(text.chars().take(64).collect()))
    }
}

impl fmt::Display for SpecVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
