//! Transmit checksum offload of an interface. It must be off if Open vSwitch forwards in user
//! space: no program fills in the checksums that the pod leaves out there, so that ping works and
//! TCP does not.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use contract::names::IfName;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// `ETHTOOL_GTXCSUM` of `linux/ethtool.h`.
const GET_TX_CHECKSUM: u32 = 0x16;
/// `ETHTOOL_STXCSUM` of `linux/ethtool.h`.
const SET_TX_CHECKSUM: u32 = 0x17;

/// Whether transmit checksum offload is on, in the namespace of the calling thread.
///
/// # Errors
/// There is no such interface, or its driver does not tell.
pub fn tx_checksum(if_name: &IfName) -> io::Result<bool> {
    let here = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    tx_checksum_beside(here.as_fd(), if_name)
}

/// Whether transmit checksum offload is on, in the namespace of a socket of any kind.
///
/// # Errors
/// There is no such interface, or its driver does not tell.
pub fn tx_checksum_beside(socket: BorrowedFd<'_>, if_name: &IfName) -> io::Result<bool> {
    ethtool(socket, if_name, GET_TX_CHECKSUM, 0).map(|value| value != 0)
}

/// Turns transmit checksum offload off, in the namespace of the calling thread.
///
/// # Errors
/// There is no such interface, or its driver refuses.
pub fn turn_tx_checksum_off(if_name: &IfName) -> io::Result<()> {
    let here = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    turn_tx_checksum_off_beside(here.as_fd(), if_name)
}

/// Turns transmit checksum offload off, in the namespace of a socket of any kind.
///
/// # Errors
/// There is no such interface, or its driver refuses.
pub fn turn_tx_checksum_off_beside(socket: BorrowedFd<'_>, if_name: &IfName) -> io::Result<()> {
    ethtool(socket, if_name, SET_TX_CHECKSUM, 0).map(drop)
}

#[expect(
    unsafe_code,
    reason = "ethtool has no safe binding that can set this, and its netlink family needs a newer kernel"
)]
mod ioctl {
    use std::{
        ffi::c_char,
        io,
        os::fd::{AsRawFd, BorrowedFd},
    };

    use contract::names::IfName;
    use nix::libc::{IFNAMSIZ, SIOCETHTOOL, ifreq};

    /// `struct ethtool_value` of `linux/ethtool.h`.
    #[repr(C)]
    struct EthtoolValue {
        command: u32,
        value: u32,
    }

    nix::ioctl_write_ptr_bad!(siocethtool, SIOCETHTOOL, ifreq);

    /// Sends a command with one value to a link's driver. Returns the value afterwards, which read
    /// commands set.
    pub(super) fn ethtool(
        socket: BorrowedFd<'_>,
        if_name: &IfName,
        command: u32,
        value: u32,
    ) -> io::Result<u32> {
        let mut argument = EthtoolValue { command, value };
        // SAFETY: `ifreq` is a plain C structure, for which all zeroes is a valid value.
        let mut request: ifreq = unsafe { std::mem::zeroed() };
        // An `IfName` has at most 15 bytes, so that the final zero stays.
        for (slot, byte) in
            request.ifr_name[..IFNAMSIZ - 1].iter_mut().zip(if_name.as_str().bytes())
        {
            *slot = c_char::from_ne_bytes([byte]);
        }
        let pointer = &raw mut argument;
        request.ifr_ifru.ifru_data = pointer.cast();
        // SAFETY: the request and the value it points to live until the call returns; the kernel
        // reads and writes nothing else.
        unsafe { siocethtool(socket.as_raw_fd(), &raw const request) }?;
        // SAFETY: the value is this function's own, and no other pointer to it is left. It is read
        // through the pointer that the kernel was given, so that what the kernel wrote is seen.
        Ok(unsafe { pointer.read() }.value)
    }
}

use ioctl::ethtool;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_is_not_there_is_an_error_and_nothing_worse() {
        let error = turn_tx_checksum_off(&"no-such-link".parse().unwrap()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(nix::libc::ENODEV));
    }
}
