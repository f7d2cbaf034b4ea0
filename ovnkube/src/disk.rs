//! Room on a disk. Must not know what is written there.

use std::path::Path;

use nix::sys::statvfs::{FsFlags, statvfs};

use crate::findings::{Finding, State};

/// Files that have to be left, whatever the room is.
const FILES: u64 = 1000;

/// The room of a directory, or of the one in which it would be made; `needed` is in MiB.
pub(crate) fn disk(subject: &'static str, root: &Path, directory: &str, needed: u64) -> Finding {
    let path = root.join(directory.trim_start_matches('/'));
    let existing = path.ancestors().find(|path| path.exists()).unwrap_or(root);
    let found = |state, said: &str| Finding::new(subject, directory, state, said);
    let next = format!("df -h {0}; df -i {0}", existing.display());
    let room = match statvfs(existing) {
        Ok(room) => room,
        Err(error) => return found(State::Unknown, &format!("{}: {error}", existing.display())),
    };
    // The types differ between platforms.
    #[allow(
        clippy::unnecessary_cast,
        clippy::useless_conversion,
        reason = "fsblkcnt_t is not u64 everywhere"
    )]
    let (free, files, all_files) = (
        (room.blocks_available() as u64 * room.fragment_size() as u64) >> 20,
        room.files_available() as u64,
        room.files() as u64,
    );
    match () {
        () if room.flags().contains(FsFlags::ST_RDONLY) => {
            found(State::Failed, "is read-only").next(&next)
        }
        () if free < needed => {
            found(State::Failed, &format!("has {free} MiB left, and {needed} are needed"))
                .next(&next)
        }
        // Some file systems do not count files.
        () if all_files > 0 && files < FILES => {
            found(State::Failed, &format!("has room for {files} files only")).next(&next)
        }
        () => found(State::Ok, &format!("{free} MiB left")),
    }
}
