//! Rust values as atoms and data, so that callers write `row.with("name", "p0")`.

use std::collections::{BTreeMap, BTreeSet};

use super::{Atom, Datum, Uuid};

macro_rules! atoms {
    ($($from:ty: $value:ident => $atom:expr;)*) => {$(
        impl From<$from> for Atom {
            fn from($value: $from) -> Self {
                $atom
            }
        }

        impl From<$from> for Datum {
            fn from(value: $from) -> Self {
                Self::Set(vec![value.into()])
            }
        }
    )*};
}

atoms! {
    i64: n => Self::Integer(n);
    i32: n => Self::Integer(n.into());
    u32: n => Self::Integer(n.into());
    u16: n => Self::Integer(n.into());
    f64: n => Self::Real(n);
    bool: truth => Self::Boolean(truth);
    String: text => Self::String(text);
    &String: text => Self::String(text.clone());
    &str: text => Self::String(text.to_owned());
    Uuid: uuid => Self::Uuid(uuid);
}

impl From<Atom> for Datum {
    fn from(atom: Atom) -> Self {
        Self::Set(vec![atom])
    }
}

impl<T: Into<Atom>> From<Option<T>> for Datum {
    fn from(value: Option<T>) -> Self {
        Self::set(value)
    }
}

impl<T: Into<Atom>> From<Vec<T>> for Datum {
    fn from(values: Vec<T>) -> Self {
        Self::set(values)
    }
}

impl<T: Into<Atom>, const N: usize> From<[T; N]> for Datum {
    fn from(values: [T; N]) -> Self {
        Self::set(values)
    }
}

impl<T: Into<Atom> + Clone> From<&[T]> for Datum {
    fn from(values: &[T]) -> Self {
        Self::set(values.iter().cloned())
    }
}

impl<T: Into<Atom>> From<BTreeSet<T>> for Datum {
    fn from(values: BTreeSet<T>) -> Self {
        Self::set(values)
    }
}

impl<K: Into<Atom>, V: Into<Atom>> From<BTreeMap<K, V>> for Datum {
    fn from(map: BTreeMap<K, V>) -> Self {
        Self::map(map)
    }
}
