//! The types that a field of a row can have, and how they take the values of a column.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::Pairs;
use crate::{
    schema::ColumnType,
    value::{Atom, AtomicType, Datum, Uuid, ValueError},
};

/// A Rust type that holds a column.
pub trait Field {
    /// Whether every value of a column of this type fits into the field.
    fn fits(&self, column: &ColumnType) -> bool;

    /// Replaces the field's value.
    ///
    /// # Errors
    /// The value has another type. The field may have its old value or part of the new one.
    fn set(&mut self, value: Datum) -> Result<(), ValueError>;

    /// Applies a difference, as ovsdb-server(7) §4.1.14 defines it. For sets: the elements to add
    /// or remove. For maps: the pairs to add, to remove (with their old value) or to change (with
    /// their new value). For columns of at most one value, updates carry the new value, which goes
    /// to [`set`](Self::set).
    ///
    /// # Errors
    /// The difference has another type. Part of it may have been applied.
    fn apply(&mut self, difference: Datum) -> Result<(), ValueError>;

    /// The value in the form that is sent.
    fn datum(&self) -> Datum;

    /// Whether the field has this value. The order of sets and maps is ignored.
    fn is(&self, value: &Datum) -> bool;

    /// The sorted elements of a `Vec` of references to rows, without a copy; empty for other
    /// fields.
    fn references(&self) -> &[Uuid] {
        &[]
    }

    /// The sorted elements of a `Vec` of `Box<str>`, without a copy; `None` for other fields.
    fn texts(&self) -> Option<&[Box<str>]> {
        None
    }

    /// The pairs of a [`Pairs`] field, without a copy; `None` for other fields.
    fn pairs(&self) -> Option<&Pairs> {
        None
    }
}

/// A Rust type that holds one atom.
pub trait Scalar: Sized + Clone + PartialOrd {
    /// The atomic type of the columns that it holds.
    const TYPE: AtomicType;

    /// Converts a received value.
    ///
    /// # Errors
    /// The value has another type; the error quotes it.
    fn from_atom(atom: Atom) -> Result<Self, ValueError>;

    /// The value in the form that is sent.
    fn to_atom(&self) -> Atom;

    /// Whether this is the value.
    fn is_atom(&self, atom: &Atom) -> bool;

    /// The list itself if its elements are references to rows; otherwise empty.
    fn references(_: &[Self]) -> &[Uuid] {
        &[]
    }

    /// The list itself if its elements are `Box<str>`.
    fn texts(_: &[Self]) -> Option<&[Box<str>]> {
        None
    }
}

macro_rules! scalars {
    ($(
        $ty:ty: $variant:ident, $expected:literal, $take:expr, $atom:ident => $value:expr, $own:ident => $sent:expr
        $(, $method:ident($list:ident) -> $slice:ty: $same:expr)?;
    )*) => {$(
        impl Scalar for $ty {
            const TYPE: AtomicType = AtomicType::$variant;

            fn from_atom(atom: Atom) -> Result<Self, ValueError> {
                $take(atom).map(Self::from).map_err(|atom| ValueError::new($expected, &atom))
            }

            fn to_atom(&self) -> Atom {
                let $own = self;
                Atom::from($sent)
            }

            fn is_atom(&self, $atom: &Atom) -> bool {
                let $own = self;
                $value == Some($sent)
            }

            $(fn $method($list: &[Self]) -> $slice {
                $same
            })?
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

            fn is(&self, value: &Datum) -> bool {
                value.scalar().is_some_and(|atom| self.is_atom(atom))
            }
        }
    )*};
}

scalars! {
    i64: Integer, "an integer", |atom: Atom| atom.as_integer().ok_or(atom), atom => atom.as_integer(), own => *own;
    f64: Real, "a real", |atom: Atom| atom.as_real().ok_or(atom), atom => atom.as_real(), own => *own;
    bool: Boolean, "a boolean", |atom: Atom| atom.as_boolean().ok_or(atom), atom => atom.as_boolean(), own => *own;
    Uuid: Uuid, "a uuid", |atom: Atom| atom.as_uuid().ok_or(atom), atom => atom.as_uuid(), own => *own,
        references(list) -> &[Uuid]: list;
    String: String, "a string", Atom::into_text, atom => atom.as_str(), own => own.as_str();
    Box<str>: String, "a string", Atom::into_text, atom => atom.as_str(), own => &**own,
        texts(list) -> Option<&[Box<str>]>: Some(list);
    Arc<str>: String, "a string", Atom::into_text, atom => atom.as_str(), own => &**own;
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

    fn is(&self, value: &Datum) -> bool {
        match self {
            None => value.is_empty(),
            Some(own) => value.scalar().is_some_and(|atom| own.is_atom(atom)),
        }
    }
}

impl<T: Scalar> Field for Vec<T> {
    fn fits(&self, column: &ColumnType) -> bool {
        !column.is_map() && column.key == T::TYPE
    }

    fn set(&mut self, value: Datum) -> Result<(), ValueError> {
        *self = elements(value)?;
        // Servers send sets sorted in this order, so the sort is rarely needed.
        if !self.is_sorted() {
            self.sort_by(compare);
        }
        self.dedup();
        // The elements have the memory of the received atoms, which was allocated in steps and is
        // larger.
        self.shrink_to_fit();
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

    fn is(&self, value: &Datum) -> bool {
        is_set(self.iter(), value)
    }

    fn references(&self) -> &[Uuid] {
        T::references(self)
    }

    fn texts(&self) -> Option<&[Box<str>]> {
        T::texts(self)
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

    fn is(&self, value: &Datum) -> bool {
        is_set(self.iter(), value)
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

    fn is(&self, value: &Datum) -> bool {
        let pairs = sorted(value.pairs(), |(key, _)| key);
        let same = |(own, (key, value)): ((&K, &V), &(Atom, Atom))| {
            own.0.is_atom(key) && own.1.is_atom(value)
        };
        value.atoms().is_empty() && pairs.len() == self.len() && self.iter().zip(pairs).all(same)
    }
}

/// Compares elements. Only `f64` has values without an order (NaN), which JSON cannot express.
fn compare<T: PartialOrd>(a: &T, b: &T) -> std::cmp::Ordering {
    a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal)
}

/// Whether these sorted elements are exactly the set `value`.
fn is_set<'a, T: Scalar + 'a>(own: impl ExactSizeIterator<Item = &'a T>, value: &Datum) -> bool {
    let atoms = sorted(value.atoms(), |atom| atom);
    value.pairs().is_empty()
        && atoms.len() == own.len()
        && own.zip(atoms).all(|(own, atom)| own.is_atom(atom))
}

/// The elements sorted as servers and fields sort them.
fn sorted<E>(elements: &[E], by: impl Fn(&E) -> &Atom) -> Vec<&E> {
    let mut all: Vec<&E> = elements.iter().collect();
    all.sort_by(|one, other| compare(by(one), by(other)));
    all
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

fn pairs<K: Scalar, V: Scalar>(
    value: Datum,
) -> Result<impl Iterator<Item = Result<(K, V), ValueError>>, ValueError> {
    match value {
        Datum::Map(pairs) => {
            Ok(pairs.into_iter().map(|(key, value)| Ok((K::from_atom(key)?, V::from_atom(value)?))))
        }
        set @ Datum::Set(_) => Err(ValueError::new("a map", &set)),
    }
}
