//! A set of strings in a single allocation.

use std::{collections::BTreeSet, fmt};

use super::Field;
use crate::{
    schema::ColumnType,
    value::{Atom, AtomicType, Datum, ValueError},
};

/// A set of strings, for tables with many rows. It takes as much memory as its strings, where a
/// `Vec` takes an allocation more, a word for itself and two for each string. A change copies all
/// strings: a set of thousands is a `Vec`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Texts(
    /// Each string with a NUL behind it, in their order. Strings of a server have no NUL (its
    /// lib/json.c refuses them).
    Box<str>,
);

impl Texts {
    /// `texts`: sorted, without duplicates.
    fn new(texts: &[&str]) -> Result<Self, ValueError> {
        if let Some(text) = texts.iter().find(|text| text.contains('\0')) {
            return Err(ValueError::new("a string without NUL", text));
        }
        let mut all = String::with_capacity(texts.iter().map(|text| text.len() + 1).sum());
        for text in texts {
            all.push_str(text);
            all.push('\0');
        }
        Ok(Self(all.into()))
    }

    /// The strings, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.split_terminator('\0')
    }
}

impl Field for Texts {
    fn fits(&self, column: &ColumnType) -> bool {
        column.key == AtomicType::String && !column.is_map()
    }

    fn set(&mut self, value: Datum) -> Result<(), ValueError> {
        *self = Self::new(&elements(&value)?)?;
        Ok(())
    }

    fn apply(&mut self, difference: Datum) -> Result<(), ValueError> {
        let now: BTreeSet<&str> = self.iter().collect();
        let moved: BTreeSet<&str> = elements(&difference)?.into_iter().collect();
        let texts: Vec<&str> = now.symmetric_difference(&moved).copied().collect();
        *self = Self::new(&texts)?;
        Ok(())
    }

    fn datum(&self) -> Datum {
        Datum::set(self.iter())
    }

    fn is(&self, value: &Datum) -> bool {
        let same =
            |elements: Vec<&str>| elements.len() == value.atoms().len() && self.iter().eq(elements);
        elements(value).is_ok_and(same)
    }
}

/// The elements, sorted and without duplicates.
fn elements(value: &Datum) -> Result<Vec<&str>, ValueError> {
    if !value.pairs().is_empty() {
        return Err(ValueError::new("a set", value));
    }
    let mut texts: Vec<&str> = value.atoms().iter().map(text).collect::<Result<_, _>>()?;
    texts.sort_unstable();
    texts.dedup();
    Ok(texts)
}

fn text(atom: &Atom) -> Result<&str, ValueError> {
    atom.as_str().ok_or_else(|| ValueError::new("a string", atom))
}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
