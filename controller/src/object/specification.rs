//! The specification of an object, as text: of a user's object nothing larger is made before its
//! size is known.
//!
//! A specification of 1.2 MB may be 400,000 rules `{}`; as values each takes fifty times what it
//! takes as text. Knows nothing of what it specifies.

pub(crate) mod list;

use std::{collections::BTreeMap, fmt};

use contract::limits::SPECIFICATION;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;

/// Bytes of a field that is kept although the whole specification is too large: what tells the pods
/// of a policy is a few labels.
const KEPT: usize = 4096;
/// Of one that is too large, more fields than any kind has, and longer names.
const MOST_FIELDS: usize = 16;
const LONGEST_NAME: usize = 64;

/// The fields of a `spec` or `status`, each as JSON without spaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Specification {
    fields: BTreeMap<Box<str>, Field>,
    /// What it is instead of an object with fields, in words of the parser.
    other: Option<Box<str>>,
    bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    Text(Box<str>),
    /// Not kept. It is not empty.
    TooLarge,
}

/// A part of a specification, as JSON without spaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Json(pub(crate) String);

/// Why there is no value of a field.
#[derive(Debug, thiserror::Error)]
pub enum FieldError {
    #[error("{0}")]
    Unreadable(String),
    #[error("the field is not kept, because the specification is too large")]
    TooLarge,
}

impl Specification {
    /// Its size, as JSON without spaces.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the object has none, or `null`.
    pub fn is_missing(&self) -> bool {
        self.bytes == 0 && self.other.is_none()
    }

    /// Whether it has the field with something in it.
    pub fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|field| match field {
            Field::Text(text) => !matches!(&**text, "null" | "[]" | "{}" | "\"\""),
            Field::TooLarge => true,
        })
    }

    /// The value of a field; the default if the field is missing or `null`.
    ///
    /// # Errors
    ///
    /// The field, or the whole specification, is of another type, or too large.
    pub fn field<T: DeserializeOwned + Default>(&self, name: &str) -> Result<T, FieldError> {
        if let Some(why) = &self.other {
            return Err(FieldError::Unreadable(why.to_string()));
        }
        match self.fields.get(name) {
            None => Ok(T::default()),
            Some(Field::TooLarge) => Err(FieldError::TooLarge),
            Some(Field::Text(text)) => serde_json::from_str::<Option<T>>(text)
                .map(Option::unwrap_or_default)
                .map_err(|error| FieldError::Unreadable(format!("{name}: {error}"))),
        }
    }

    /// All fields as one value.
    ///
    /// # Errors
    ///
    /// As for [`field`](Self::field).
    pub fn whole<T: DeserializeOwned>(&self) -> Result<T, FieldError> {
        if let Some(why) = &self.other {
            return Err(FieldError::Unreadable(why.to_string()));
        }
        if self.is_missing() {
            return Err(FieldError::Unreadable("there is none".to_owned()));
        }
        let mut text = "{".to_owned();
        for (name, field) in &self.fields {
            let Field::Text(field) = field else { return Err(FieldError::TooLarge) };
            let comma = if text.len() == 1 { "" } else { "," };
            text.push_str(&format!("{comma}{}:{field}", Value::from(&**name)));
        }
        text.push('}');
        serde_json::from_str(&text).map_err(|error| FieldError::Unreadable(error.to_string()))
    }
}

impl<'de> Deserialize<'de> for Specification {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Fields)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut text = Text { text: String::new(), bytes: 0, most: SPECIFICATION };
        (&mut text).deserialize(deserializer)?;
        Ok(Self(text.text))
    }
}

impl From<Value> for Specification {
    fn from(value: Value) -> Self {
        // It accepts every value.
        Self::deserialize(value).unwrap_or_default()
    }
}

/// Reads the fields.
struct Fields;

impl Fields {
    fn other<E: serde::de::Error>(
        unexpected: serde::de::Unexpected<'_>,
    ) -> Result<Specification, E> {
        let why = serde_json::Error::invalid_type(unexpected, &"an object").to_string();
        Ok(Specification { other: Some(why.into()), ..Specification::default() })
    }
}

impl<'de> Visitor<'de> for Fields {
    type Value = Specification;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a specification")
    }

    fn visit_unit<E>(self) -> Result<Specification, E> {
        Ok(Specification::default())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Specification, E> {
        Self::other(serde::de::Unexpected::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Specification, E> {
        Self::other(serde::de::Unexpected::Signed(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Specification, E> {
        Self::other(serde::de::Unexpected::Unsigned(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Specification, E> {
        Self::other(serde::de::Unexpected::Float(value))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Specification, E> {
        let shown: String = value.chars().take(64).collect();
        Self::other(serde::de::Unexpected::Str(&shown))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Specification, A::Error> {
        while elements.next_element::<serde::de::IgnoredAny>()?.is_some() {}
        Self::other(serde::de::Unexpected::Seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Specification, A::Error> {
        let mut read = Specification { bytes: "{}".len(), ..Specification::default() };
        while let Some(name) = map.next_key::<String>()? {
            let most = SPECIFICATION.saturating_sub(read.bytes).max(KEPT);
            let mut text = Text { text: String::new(), bytes: 0, most };
            map.next_value_seed(&mut text)?;
            read.bytes += name.len() + "\"\":,".len() + text.bytes;
            let field =
                if text.bytes > most { Field::TooLarge } else { Field::Text(text.text.into()) };
            let is_known = name.len() <= LONGEST_NAME && read.fields.len() < MOST_FIELDS;
            if read.bytes <= SPECIFICATION || is_known {
                read.fields.insert(name.into(), field);
            }
        }
        if read.bytes > SPECIFICATION {
            for field in read.fields.values_mut() {
                if matches!(field, Field::Text(text) if text.len() > KEPT) {
                    *field = Field::TooLarge;
                }
            }
        }
        Ok(read)
    }
}

/// Writes a value as JSON, and counts on when it has become too long.
struct Text {
    text: String,
    bytes: usize,
    most: usize,
}

impl Text {
    fn write(&mut self, text: &str) {
        self.bytes += text.len();
        if self.bytes <= self.most {
            self.text.push_str(text);
        } else if !self.text.is_empty() {
            self.text = String::new();
        }
    }
}

impl<'de> DeserializeSeed<'de> for &mut Text {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Text {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.write("null");
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.write(if value { "true" } else { "false" });
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.write(&value.to_string());
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.write(&value.to_string());
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.write(&Value::from(value).to_string());
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.write(&serde_json::to_string(value).map_err(E::custom)?);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        self.write("[");
        let mut place = 0_usize;
        // A comma that is too many at the end would be wrong.
        loop {
            let begun = (self.text.len(), self.bytes);
            if place > 0 {
                self.write(",");
            }
            if elements.next_element_seed(&mut *self)?.is_none() {
                self.text.truncate(begun.0);
                self.bytes = begun.1;
                break;
            }
            place += 1;
        }
        self.write("]");
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.write("{");
        let mut place = 0_usize;
        while let Some(name) = map.next_key::<String>()? {
            if place > 0 {
                self.write(",");
            }
            place += 1;
            self.write(&serde_json::to_string(&name).map_err(A::Error::custom)?);
            self.write(":");
            map.next_value_seed(&mut *self)?;
        }
        self.write("}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Specification {
        serde_json::from_str(text).unwrap()
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            let list = proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from);
            let map = proptest::collection::btree_map(any::<String>(), inner, 0..4);
            prop_oneof![list, map.prop_map(|map| map.into_iter().collect())]
        })
    }

    proptest! {
        #[test]
        fn the_fields_are_what_was_written(value in any_value()) {
            let value = json!({"a": value.clone(), "b\"": [value]});
            let read = read(&value.to_string());
            prop_assert_eq!(read.whole::<Value>().unwrap(), value.clone());
            prop_assert_eq!(read.bytes().abs_diff(value.to_string().len()) <= 3, true);
            prop_assert_eq!(Specification::from(value), read);
        }
    }

    #[test]
    fn a_field_that_is_missing_or_null_is_its_default_and_another_type_is_told() {
        let read = read(r#"{"rules":null,"name":[]}"#);
        assert_eq!(read.field::<Vec<u8>>("rules").unwrap(), [0; 0]);
        assert_eq!(read.field::<Vec<u8>>("other").unwrap(), [0; 0]);
        let why = read.field::<String>("name").unwrap_err().to_string();
        assert!(why.starts_with("name: invalid type: sequence, expected a string"), "{why}");
        for other in ["5", "\"text\"", "[1,2]", "true", "1.5", "-1"] {
            assert!(tests::read(other).field::<String>("name").is_err(), "{other}");
        }
        assert_eq!(tests::read("null").field::<String>("name").unwrap(), "");
    }

    /// 1.2 MB, which is 400,000 rules.
    #[test]
    fn a_field_beyond_the_limit_is_counted_and_not_kept_and_small_ones_are() {
        let rules = vec!["{}"; 400_000].join(",");
        let text = format!(
            r#"{{"podSelector":{{"matchLabels":{{"a":"b"}}}},"ingress":[{rules}],"policyTypes":["Ingress"]}}"#
        );
        let read = read(&text);
        assert!(read.bytes().abs_diff(text.len()) <= 1, "{} {}", read.bytes(), text.len());
        assert!(read.has("ingress") && !read.has("egress"));
        assert!(matches!(read.field::<Vec<Value>>("ingress"), Err(FieldError::TooLarge)));
        assert_eq!(read.field::<Vec<String>>("policyTypes").unwrap(), ["Ingress"]);
        assert_eq!(read.field::<Value>("podSelector").unwrap(), json!({"matchLabels": {"a": "b"}}));
        let kept: usize = read
            .fields
            .values()
            .map(|field| match field {
                Field::Text(text) => text.len(),
                Field::TooLarge => 0,
            })
            .sum();
        assert!(kept < 100, "{kept}");
    }
}
