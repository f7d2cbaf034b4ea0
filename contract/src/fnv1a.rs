//! 64-bit FNV-1a (draft-eastlake-fnv): short names for long ones, the same in each version of each
//! program, with each tool chain.
//!
//! Not a cryptographic hash: an attacker can find two inputs with the same value.

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// The hash of these bytes.
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    fnv1a_after(OFFSET_BASIS, bytes)
}

/// The value of bytes whose value is `before`, followed by these bytes.
pub fn fnv1a_after(before: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(before, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from the draft, appendix C.
    #[test]
    fn values_are_those_of_the_specification() {
        for (text, value) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(fnv1a(text.bytes()), value, "{text:?}");
        }
        assert_eq!(fnv1a_after(fnv1a(*b"foo"), *b"bar"), fnv1a(*b"foobar"));
    }
}
