//! Rows by the addresses that each of them has. Must not know what the addresses mean.

use std::{collections::HashMap, net::IpAddr};

use ovsdb::Uuid;

use crate::few::{Few, leave};

#[derive(Debug, Default)]
pub(crate) struct ByAddress {
    /// Each list is sorted.
    rows: HashMap<IpAddr, Few<Uuid>>,
    addresses: HashMap<Uuid, Few<IpAddr>>,
}

impl ByAddress {
    /// The rows with this address, sorted.
    pub(crate) fn rows(&self, address: IpAddr) -> &[Uuid] {
        self.rows.get(&address).map_or(&[], |rows| rows)
    }

    /// The row has these addresses from now on. Returns those that it had.
    pub(crate) fn set(
        &mut self,
        row: Uuid,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Few<IpAddr> {
        let mut now = Few::default();
        addresses.into_iter().for_each(|address| now.insert(address));
        let before = self.addresses.remove(&row).unwrap_or_default();
        for address in before.iter().filter(|address| !now.contains(address)) {
            leave(&mut self.rows, address, &row);
        }
        for address in now.iter() {
            self.rows.entry(*address).or_default().insert(row);
        }
        if !now.is_empty() {
            self.addresses.insert(row, now);
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_found_by_the_addresses_that_it_has_now_and_by_no_other() {
        let [a, b, c] =
            ["10.0.0.1", "10.0.0.2", "fd00::1"].map(|text| text.parse::<IpAddr>().unwrap());
        let [one, other] = [1, 2].map(Uuid::from_u128);
        let mut index = ByAddress::default();
        assert!(index.set(one, [a, c, a]).is_empty() && index.set(other, [a]).is_empty());
        assert_eq!(
            (index.rows(a), index.rows(b), index.rows(c)),
            (&[one, other][..], &[][..], &[one][..])
        );
        assert_eq!(*index.set(one, [b, a]), [a, c]);
        assert_eq!(
            (index.rows(a), index.rows(b), index.rows(c)),
            (&[one, other][..], &[one][..], &[][..])
        );
        assert_eq!(*index.set(one, []), [a, b]);
        assert_eq!(*index.set(other, []), [a]);
        assert!(index.rows.is_empty() && index.addresses.is_empty(), "{index:?}");
    }
}
