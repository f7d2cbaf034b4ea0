//! Conditions that select the rows of an operation or a monitor (RFC 7047 §5.1, `<condition>`).

use serde::{Serialize, Serializer};

use crate::value::{Datum, Uuid};

/// A test of one column of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    column: String,
    function: Function,
    value: Datum,
}

/// A list of conditions. In an operation, a row has to meet all of them (RFC 7047 §5.2). In a
/// monitor, it has to meet one of them, and an empty list selects every row (ovsdb-server(7)
/// §4.1.12).
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Where(Vec<Condition>);

/// How a column is compared (RFC 7047 §5.1, `<function>`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Function {
    #[serde(rename = "==")]
    Equal,
    #[serde(rename = "!=")]
    NotEqual,
    #[serde(rename = "<")]
    Less,
    #[serde(rename = "<=")]
    LessOrEqual,
    #[serde(rename = ">")]
    Greater,
    #[serde(rename = ">=")]
    GreaterOrEqual,
    /// The column's set or map has all of the given elements or pairs.
    #[serde(rename = "includes")]
    Includes,
    /// The column's set or map has none of the given elements or pairs.
    #[serde(rename = "excludes")]
    Excludes,
}

impl Condition {
    /// A test with any [`Function`].
    pub fn new(column: &str, function: Function, value: impl Into<Datum>) -> Self {
        Self { column: column.to_owned(), function, value: value.into() }
    }

    /// The column equals this value.
    pub fn equal(column: &str, value: impl Into<Datum>) -> Self {
        Self::new(column, Function::Equal, value)
    }

    /// The column does not equal this value.
    pub fn not_equal(column: &str, value: impl Into<Datum>) -> Self {
        Self::new(column, Function::NotEqual, value)
    }

    /// The column has all of these elements or, for a map, all of these pairs.
    pub fn includes(column: &str, value: impl Into<Datum>) -> Self {
        Self::new(column, Function::Includes, value)
    }

    /// The column has none of these elements or, for a map, none of these pairs.
    pub fn excludes(column: &str, value: impl Into<Datum>) -> Self {
        Self::new(column, Function::Excludes, value)
    }

    /// The row with this UUID.
    pub fn uuid(uuid: Uuid) -> Self {
        Self::equal("_uuid", uuid)
    }

    pub(crate) fn column(&self) -> &str {
        &self.column
    }
}

impl Where {
    /// Every row.
    pub fn all() -> Self {
        Self::default()
    }

    /// Whether there is no condition.
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Condition> {
        self.0.iter()
    }
}

impl From<Condition> for Where {
    fn from(condition: Condition) -> Self {
        Self(vec![condition])
    }
}

impl From<Vec<Condition>> for Where {
    fn from(conditions: Vec<Condition>) -> Self {
        Self(conditions)
    }
}

impl<const N: usize> From<[Condition; N]> for Where {
    fn from(conditions: [Condition; N]) -> Self {
        Self(conditions.into())
    }
}

impl From<Uuid> for Where {
    fn from(uuid: Uuid) -> Self {
        Condition::uuid(uuid).into()
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.column, self.function, &self.value).serialize(serializer)
    }
}
