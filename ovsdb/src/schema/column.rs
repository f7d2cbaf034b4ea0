//! The type of a column (RFC 7047 §3.2, `<column-schema>` and `<type>`).

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::value::AtomicType;

/// One column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnSchema {
    pub ty: ColumnType,
    /// Whether the column may be changed after its row was inserted.
    pub mutable: bool,
    /// Whether the value is lost when the server restarts.
    pub ephemeral: bool,
}

/// What values a column takes. The limits of single values (`minInteger`, `enum` …) are left to the server to check.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnType {
    pub key: AtomicType,
    /// The table whose rows a `uuid` refers to, and how strongly.
    pub references: Option<(String, RefType)>,
    /// Present where the column is a map.
    pub value: Option<AtomicType>,
    /// 0 or 1.
    pub min: u32,
    /// At least 1; `None` is unlimited.
    pub max: Option<u32>,
}

/// What happens to a reference when its row is deleted: a strong one forbids it, a weak one is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RefType {
    Strong,
    Weak,
}

impl ColumnType {
    /// Exactly one value.
    pub fn is_scalar(&self) -> bool {
        self.value.is_none() && self.min == 1 && self.max == Some(1)
    }

    /// At most one value, or one pair. Updates carry such a column whole, and any other as a difference
    /// (ovsdb-server(7) §4.1.14, "columns with single value").
    pub fn is_single(&self) -> bool {
        self.max == Some(1)
    }

    pub fn is_map(&self) -> bool {
        self.value.is_some()
    }
}

#[derive(Deserialize)]
struct WireColumn {
    #[serde(rename = "type")]
    ty: WireType,
    mutable: Option<bool>,
    #[serde(default)]
    ephemeral: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WireType {
    Atomic(AtomicType),
    Full { key: WireBase, value: Option<WireBase>, min: Option<u32>, max: Option<WireMax> },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WireBase {
    Atomic(AtomicType),
    #[serde(rename_all = "camelCase")]
    Full {
        r#type: AtomicType,
        ref_table: Option<String>,
        ref_type: Option<RefType>,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WireMax {
    Number(u32),
    Text(String),
}

impl<'de> Deserialize<'de> for ColumnSchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let WireColumn { ty, mutable, ephemeral } = WireColumn::deserialize(deserializer)?;
        let ty = match ty {
            WireType::Atomic(key) => ColumnType { key, references: None, value: None, min: 1, max: Some(1) },
            WireType::Full { key, value, min, max } => {
                let (key, references) = key.parts();
                let max = match max {
                    None => Some(1),
                    Some(WireMax::Number(number)) => Some(number),
                    Some(WireMax::Text(text)) if text == "unlimited" => None,
                    Some(WireMax::Text(text)) => return Err(D::Error::custom(format_args!("max {text:?} of a column"))),
                };
                ColumnType { key, references, value: value.map(|base| base.parts().0), min: min.unwrap_or(1), max }
            }
        };
        Ok(Self { ty, mutable: mutable.unwrap_or(true), ephemeral })
    }
}

impl WireBase {
    fn parts(self) -> (AtomicType, Option<(String, RefType)>) {
        match self {
            Self::Atomic(ty) => (ty, None),
            Self::Full { r#type, ref_table, ref_type } => (r#type, ref_table.map(|table| (table, ref_type.unwrap_or(RefType::Strong)))),
        }
    }
}
