//! The type of a column (RFC 7047 §3.2, `<column-schema>` and `<type>`).

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IntoDeserializer, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::value::AtomicType;

/// One column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnSchema {
    /// The type of the column's values.
    pub ty: ColumnType,
    /// Whether the column may be changed after its row was inserted.
    pub mutable: bool,
    /// Whether the value is lost when the server restarts.
    pub ephemeral: bool,
}

/// The type of a column. Constraints on single values (`minInteger` …) are left out, but for the
/// words that a column is limited to; the server checks them.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnType {
    /// The type of a scalar, of the elements of a set, or of the keys of a map.
    pub key: AtomicType,
    /// For a `uuid`: the table whose rows it refers to, and the kind of reference.
    pub references: Option<(String, RefType)>,
    /// The type of a map's values; `None` for sets and scalars.
    pub value: Option<AtomicType>,
    /// The minimum number of elements, 0 or 1.
    pub min: u32,
    /// The maximum number of elements, at least 1; `None` is unlimited.
    pub max: Option<u32>,
    /// The strings that a scalar, an element or a key is limited to; `None`: it is not.
    pub words: Option<Box<[String]>>,
}

/// The kind of reference to a row. A strong reference forbids to delete the row; a weak one is
/// removed with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RefType {
    Strong,
    Weak,
}

impl ColumnType {
    /// Whether the column holds exactly one value.
    pub fn is_scalar(&self) -> bool {
        self.value.is_none() && self.min == 1 && self.max == Some(1)
    }

    /// Whether the column holds at most one value or pair. Updates carry the new value of such a
    /// column, and the difference of any other (ovsdb-server(7) §4.1.14, "columns with single
    /// value").
    pub fn is_single(&self) -> bool {
        self.max == Some(1)
    }

    /// Whether the column is a map.
    pub fn is_map(&self) -> bool {
        self.value.is_some()
    }
}

#[derive(Deserialize)]
struct WireColumn {
    #[serde(rename = "type")]
    ty: NameOr<WireType>,
    mutable: Option<bool>,
    #[serde(default)]
    ephemeral: bool,
}

#[derive(Deserialize)]
struct WireType {
    key: NameOr<WireBase>,
    value: Option<NameOr<WireBase>>,
    min: Option<u32>,
    max: Option<WireMax>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireBase {
    r#type: AtomicType,
    ref_table: Option<String>,
    ref_type: Option<RefType>,
    r#enum: Option<serde_json::Value>,
}

/// What a [`WireBase`] comes to.
struct Base {
    key: AtomicType,
    references: Option<(String, RefType)>,
    words: Option<Box<[String]>>,
}

/// A `<type>` or `<base-type>`: an object or, as a shorthand, the name of an atomic type.
enum NameOr<T> {
    Name(AtomicType),
    Object(T),
}

/// A number or `unlimited`.
struct WireMax(Option<u32>);

impl<'de> Deserialize<'de> for ColumnSchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let WireColumn { ty, mutable, ephemeral } = WireColumn::deserialize(deserializer)?;
        let ty = match ty {
            // RFC 7047 §3.2: without `min` and `max`, a column holds exactly one value.
            NameOr::Name(key) => {
                ColumnType { key, references: None, value: None, min: 1, max: Some(1), words: None }
            }
            NameOr::Object(WireType { key, value, min, max }) => {
                let Base { key, references, words } = key.base();
                let WireMax(max) = max.unwrap_or(WireMax(Some(1)));
                ColumnType {
                    key,
                    references,
                    value: value.map(|base| base.base().key),
                    min: min.unwrap_or(1),
                    max,
                    words,
                }
            }
        };
        Ok(Self { ty, mutable: mutable.unwrap_or(true), ephemeral })
    }
}

impl NameOr<WireBase> {
    fn base(self) -> Base {
        match self {
            Self::Name(key) => Base { key, references: None, words: None },
            Self::Object(WireBase { r#type: key, ref_table, ref_type, r#enum }) => {
                let references =
                    ref_table.map(|table| (table, ref_type.unwrap_or(RefType::Strong)));
                let words = r#enum.filter(|_| key == AtomicType::String);
                Base { key, references, words: words.as_ref().map(words_of) }
            }
        }
    }
}

/// The strings of an `enum`: a set of several, or a single one (RFC 7047 §3.2, §5.1 `<value>`).
fn words_of(value: &serde_json::Value) -> Box<[String]> {
    let all = match value.pointer("/1").and_then(serde_json::Value::as_array) {
        Some(all) => all.as_slice(),
        None => std::slice::from_ref(value),
    };
    all.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect()
}

/// Written by hand because serde's `untagged` buffers its input first. That made parsing a schema
/// three times slower, for which each short-lived client has to wait.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for NameOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for NameOrVisitor<T> {
            type Value = NameOr<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a type, or an object")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<NameOr<T>, E> {
                AtomicType::deserialize(name.into_deserializer()).map(NameOr::Name)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NameOr<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(NameOr::Object)
            }
        }

        deserializer.deserialize_any(NameOrVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for WireMax {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MaxVisitor;

        impl Visitor<'_> for MaxVisitor {
            type Value = WireMax;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or \"unlimited\"")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<WireMax, E> {
                u32::try_from(number).map(|number| WireMax(Some(number))).map_err(E::custom)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<WireMax, E> {
                if text == "unlimited" {
                    Ok(WireMax(None))
                } else {
                    Err(E::invalid_value(serde::de::Unexpected::Str(text), &self))
                }
            }
        }

        deserializer.deserialize_any(MaxVisitor)
    }
}
