//! The JSON spelling of atoms and data (RFC 7047 §5.1, `<value>`).

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, SeqAccess, Visitor},
    ser::Error as _,
};

use super::{Atom, Datum, Uuid};

impl Serialize for Atom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Integer(number) => serializer.serialize_i64(*number),
            // JSON cannot express infinities and NaN; serde_json would write null.
            Self::Real(number) if !number.is_finite() => {
                Err(S::Error::custom(format_args!("{number} is not a finite number")))
            }
            Self::Real(number) => serializer.serialize_f64(*number),
            Self::Boolean(truth) => serializer.serialize_bool(*truth),
            // ovsdb-server closes the connection when it reads a NUL (its lib/json.c). All requests
            // of the connection would fail with this one.
            Self::String(text) if text.contains('\0') => {
                Err(S::Error::custom("a string holds a NUL character"))
            }
            Self::String(text) => serializer.serialize_str(text),
            Self::Uuid(uuid) => ("uuid", uuid).serialize(serializer),
            Self::NamedUuid(name) => ("named-uuid", name).serialize(serializer),
        }
    }
}

impl Serialize for Datum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Set(atoms) => match atoms.as_slice() {
                // RFC 7047 §5.1 allows a set of one element to be written as the bare element.
                [atom] => atom.serialize(serializer),
                _ => ("set", atoms).serialize(serializer),
            },
            Self::Map(pairs) => ("map", pairs).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Atom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Datum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor(PhantomData))
    }
}

/// The first element of an array that spells a value.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Tag {
    Uuid,
    NamedUuid,
    Set,
    Map,
}

/// What decoding an [`Atom`] and a [`Datum`] does not share: which tags are valid, and what follows
/// them.
trait Value: From<Atom> {
    fn tagged<'de, A: SeqAccess<'de>>(tag: Tag, seq: &mut A) -> Result<Option<Self>, A::Error>;
}

impl Value for Atom {
    fn tagged<'de, A: SeqAccess<'de>>(tag: Tag, seq: &mut A) -> Result<Option<Self>, A::Error> {
        match tag {
            Tag::Uuid => Ok(seq.next_element::<Uuid>()?.map(Self::Uuid)),
            Tag::NamedUuid => Ok(seq.next_element()?.map(Self::NamedUuid)),
            Tag::Set | Tag::Map => Err(A::Error::custom("a set or a map inside of a set or a map")),
        }
    }
}

impl Value for Datum {
    fn tagged<'de, A: SeqAccess<'de>>(tag: Tag, seq: &mut A) -> Result<Option<Self>, A::Error> {
        match tag {
            Tag::Uuid | Tag::NamedUuid => Ok(Atom::tagged(tag, seq)?.map(Self::from)),
            Tag::Set => Ok(seq.next_element()?.map(Self::Set)),
            Tag::Map => Ok(seq.next_element()?.map(Self::Map)),
        }
    }
}

struct ValueVisitor<T>(PhantomData<T>);

impl<'de, T: Value> Visitor<'de> for ValueVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an OVSDB value")
    }

    fn visit_bool<E>(self, truth: bool) -> Result<T, E> {
        Ok(Atom::Boolean(truth).into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<T, E> {
        Ok(Atom::Integer(number).into())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
        let number = i64::try_from(number)
            .map_err(|_| E::custom(format_args!("{number} exceeds 64 signed bits")))?;
        Ok(Atom::Integer(number).into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<T, E> {
        Ok(Atom::Real(number).into())
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(Atom::String(text.to_owned()).into())
    }

    fn visit_string<E>(self, text: String) -> Result<T, E> {
        Ok(Atom::String(text).into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<T, A::Error> {
        let tag = seq.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
        T::tagged(tag, &mut seq)?.ok_or_else(|| A::Error::invalid_length(1, &self))
    }
}
