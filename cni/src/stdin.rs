//! Standard input: the bytes of the network configuration, limited in time and size. A runtime
//! writes them and closes its end; a caller that does not would keep the pod waiting forever. Must
//! not know what the bytes mean.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, read},
};

/// Limit of a configuration in bytes. Real ones are far smaller; an input without end must not fill
/// the memory.
const MOST: usize = 1024 * 1024;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum StdinError {
    #[error("read standard input")]
    Read(#[source] io::Error),
    #[error(
        "standard input is still open after {} s: {came} bytes of a network configuration came, \
         and not its end",
        .limit.as_secs_f32()
    )]
    Open { limit: Duration, came: usize },
    #[error("standard input has more than {MOST} bytes, which is no network configuration")]
    TooLong,
}

/// Reads everything up to the end of `input`, which has to come before `limit` is over.
///
/// # Errors
/// The input cannot be read, its end does not come in time, or it is too long.
pub fn read_to_end(input: impl AsFd, limit: Duration) -> Result<Vec<u8>, StdinError> {
    let (input, deadline) = (input.as_fd(), Instant::now() + limit);
    let mut all = Vec::new();
    let mut some = [0; 16 * 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // The limit ends the wait, not the reading: bytes that are there already are read, whatever
        // the limit.
        if !is_readable(input, left).map_err(StdinError::Read)? {
            if left.is_zero() {
                return Err(StdinError::Open { limit, came: all.len() });
            }
            continue;
        }
        match read(input, &mut some) {
            Ok(0) => return Ok(all),
            Ok(length) => all.extend_from_slice(&some[..length]),
            // Another process has read the bytes first, or a signal came.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(StdinError::Read(errno.into())),
        }
        if all.len() > MOST {
            return Err(StdinError::TooLong);
        }
    }
}

/// Waits until bytes, or the end, can be read. poll(2) reports the end of a pipe, and an error,
/// like bytes.
fn is_readable(input: BorrowedFd<'_>, at_most: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(at_most).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _};

    use super::*;

    const NO_TIME: Duration = Duration::from_millis(50);
    const ENOUGH: Duration = Duration::from_secs(10);

    #[test]
    fn what_was_written_is_read_to_its_end_whatever_the_limit() {
        for length in [0, 1, 16 * 1024, 60_000] {
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(&vec![b'x'; length]).unwrap();
            drop(writer);
            assert_eq!(read_to_end(&reader, Duration::ZERO).unwrap().len(), length);
        }
        assert!(read_to_end(File::open("/dev/null").unwrap(), Duration::ZERO).unwrap().is_empty());
    }

    #[test]
    fn a_pipe_that_stays_open_is_given_up_with_the_number_of_bytes() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"{}").unwrap();
        let error = read_to_end(&reader, NO_TIME).unwrap_err();
        assert_eq!(
            error.to_string(),
            "standard input is still open after 0.05 s: 2 bytes of a network configuration came, \
             and not its end"
        );
    }

    #[test]
    fn bytes_that_come_late_and_slowly_are_read() {
        let (reader, mut writer) = io::pipe().unwrap();
        let writing = std::thread::spawn(move || {
            for _ in 0..20 {
                writer.write_all(b"x").unwrap();
                std::thread::yield_now();
            }
        });
        assert_eq!(read_to_end(&reader, ENOUGH).unwrap().len(), 20);
        writing.join().unwrap();
    }

    #[test]
    fn an_input_without_end_is_not_read_for_ever() {
        assert!(matches!(
            read_to_end(File::open("/dev/zero").unwrap(), ENOUGH),
            Err(StdinError::TooLong)
        ));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        assert!(matches!(read_to_end(File::open("/").unwrap(), ENOUGH), Err(StdinError::Read(_))));
    }
}
