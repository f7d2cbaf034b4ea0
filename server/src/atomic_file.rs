//! A file that is replaced in one step: whoever opens it finds the old one or the new one, whole, even after a power failure. Knows
//! nothing of what is in it.

use std::{
    fs::{File, OpenOptions, Permissions},
    io::{self, Read},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

/// Puts all of `content` at `path`, with these mode bits whatever the umask. Written beside it and renamed: an executable that is there may be
/// running (`ETXTBSY`), and a link in its place is replaced, not followed. What fails leaves nothing.
pub(crate) fn replace(path: &Path, mut content: impl Read, mode: u32) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Err(io::ErrorKind::InvalidInput.into()) };
    // Runtimes neither load nor execute a file of such a name.
    let temporary = directory.join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let written = (|| {
        // Of a process that had the same number and was killed.
        let _ = std::fs::remove_file(&temporary);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        io::copy(&mut content, &mut file)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        drop(file);
        std::fs::rename(&temporary, path)?;
        File::open(directory)?.sync_all()
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}
