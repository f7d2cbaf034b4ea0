//! What a field of a row can be, and how a column gets into it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    schema::ColumnType,
    value::{Atom, AtomicType, Datum, Uuid, ValueError},
};

/// A Rust type that holds a column.
pub trait Field {
    /// Whether every value of such a column fits.
    fn fits(&self, column: &ColumnType) -> bool;

    /// Takes a value in place of the one before. On an error the field may hold either.
    fn set(&mut self, value: Datum) -> Result<(), ValueError>;

    /// Takes a difference, as ovsdb-server(7) §4.1.14 defines it: of a set the elements that come or go, of a map the pairs
    /// that come, go (with the value they had) or get this value. A column of at most one value is [`set`](Self::set) instead.
    fn apply(&mut self, difference: Datum) -> Result<(), ValueError>;

    /// The value, to be sent.
    fn datum(&self) -> Datum;
}

/// A Rust type that holds one atom.
pub trait Scalar: Sized + Clone + PartialOrd {
    /// The type of column that it holds.
    const TYPE: AtomicType;

    /// Takes a received value, or names it where it has another type.
    fn from_atom(atom: Atom) -> Result<Self, ValueError>;

    /// The value, to be sent.
    fn to_atom(&self) -> Atom;
}

macro_rules! scalars {
    ($($ty:ty: $variant:ident, $expected:literal, $atom:ident => $value:expr;)*) => {$(
        impl Scalar for $ty {
            const TYPE: AtomicType = AtomicType::$variant;

            fn from_atom($atom: Atom) -> Result<Self, ValueError> {
                $value.ok_or_else(|| ValueError::new($expected, &$atom))
            }

            fn to_atom(&self) -> Atom {
                Atom::$variant(self.clone())
            }
        }

        impl Field for $ty {
            fn fits(&self, column: &ColumnType) -> bool {
                column.is_single() && !column.is_map() && column.key == Self::TYPE
            }

            fn set(&mut self, value: Datum) -> Result<(), ValueError> {
                *self = optional(value, $expected)?.unwrap_or_default();
                Ok(())
            }

            fn apply(&mut self, difference: Datum) -> Result<(), ValueError> {
                self.set(difference)
            }

            fn datum(&self) -> Datum {
                self.to_atom().into()
            }
        }
    )*};
}

scalars! {
    i64: Integer, "an integer", atom => atom.as_integer();
    f64: Real, "a real", atom => atom.as_real();
    bool: Boolean, "a boolean", atom => atom.as_boolean();
    Uuid: Uuid, "a uuid", atom => atom.as_uuid();
    String: String, "a string", atom => atom.as_str().map(str::to_owned);
}

impl<T: Scalar> Field for Option<T> {
    fn fits(&self, column: &ColumnType) -> bool {
        column.is_single() && !column.is_map() && column.key == T::TYPE
    }

    fn set(&mut self, value: Datum) -> Result<(), ValueError> {
        *self = optional(value, "at most one value")?;
        Ok(())
    }

    fn apply(&mut self, difference: Datum) -> Result<(), ValueError> {
        self.set(difference)
    }

    fn datum(&self) -> Datum {
        Datum::set(self.as_ref().map(T::to_atom))
    }
}

impl<T: Scalar> Field for Vec<T> {
    fn fits(&self, column: &ColumnType) -> bool {
        !column.is_map() && column.key == T::TYPE
    }

    fn set(&mut self, value: Datum) -> Result<(), ValueError> {
        *self = elements(value)?;
        // Servers sort already, in this order.
        if !self.is_sorted() {
            self.sort_by(compare);
        }
        self.dedup();
        Ok(())
    }

    fn apply(&mut self, difference: Datum) -> Result<(), ValueError> {
        for element in elements::<T, Self>(difference)? {
            match self.binary_search_by(|own| compare(own, &element)) {
                Ok(index) => drop(self.remove(index)),
                Err(index) => self.insert(index, element),
            }
        }
        Ok(())
    }

    fn datum(&self) -> Datum {
        Datum::set(self.iter().map(T::to_atom))
    }
}

impl<T: Scalar + Ord> Field for BTreeSet<T> {
    fn fits(&self, column: &ColumnType) -> bool {
        !column.is_map() && column.key == T::TYPE
    }

    fn set(&mut self, value: Datum) -> Result<(), ValueError> {
        *self = elements(value)?;
        Ok(())
    }

    fn apply(&mut self, difference: Datum) -> Result<(), ValueError> {
        for element in elements::<T, Vec<T>>(difference)? {
            if !self.remove(&element) {
                self.insert(element);
            }
        }
        Ok(())
    }

    fn datum(&self) -> Datum {
        Datum::set(self.iter().map(T::to_atom))
    }
}

impl<K: Scalar + Ord, V: Scalar> Field for BTreeMap<K, V> {
    fn fits(&self, column: &ColumnType) -> bool {
        column.value == Some(V::TYPE) && column.key == K::TYPE
    }

    fn set(&mut self, value: Datum) -> Result<(), ValueError> {
        *self = pairs(value)?.collect::<Result<_, _>>()?;
        Ok(())
    }

    fn apply(&mut self, difference: Datum) -> Result<(), ValueError> {
        for pair in pairs::<K, V>(difference)? {
            let (key, value) = pair?;
            if self.get(&key) == Some(&value) {
                self.remove(&key);
            } else {
                self.insert(key, value);
            }
        }
        Ok(())
    }

    fn datum(&self) -> Datum {
        Datum::map(self.iter().map(|(key, value)| (key.to_atom(), value.to_atom())))
    }
}

/// Only `f64` knows values without an order, and a server sends none of them.
fn compare<T: PartialOrd>(a: &T, b: &T) -> std::cmp::Ordering {
    a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal)
}

fn optional<T: Scalar>(value: Datum, expected: &'static str) -> Result<Option<T>, ValueError> {
    match value {
        Datum::Set(mut atoms) if atoms.len() <= 1 => atoms.pop().map(T::from_atom).transpose(),
        value => Err(ValueError::new(expected, &value)),
    }
}

fn elements<T: Scalar, C: FromIterator<T>>(value: Datum) -> Result<C, ValueError> {
    match value {
        Datum::Set(atoms) => atoms.into_iter().map(T::from_atom).collect(),
        map @ Datum::Map(_) => Err(ValueError::new("a set", &map)),
    }
}

fn pairs<K: Scalar, V: Scalar>(value: Datum) -> Result<impl Iterator<Item = Result<(K, V), ValueError>>, ValueError> {
    match value {
        Datum::Map(pairs) => Ok(pairs.into_iter().map(|(key, value)| Ok((K::from_atom(key)?, V::from_atom(value)?)))),
        set @ Datum::Set(_) => Err(ValueError::new("a map", &set)),
    }
}
