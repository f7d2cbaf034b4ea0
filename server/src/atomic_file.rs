//! Atomic replacement of a file: a reader finds the old content or the new one, complete, even
//! after a power failure. Knows nothing of the content.

use std::{
    fs::{File, OpenOptions, Permissions},
    io::{self, Read},
    os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink},
    path::Path,
};

/// Puts all of `content` at `path`, with mode bits `mode` whatever the umask is. The data goes to a
/// temporary file in the same directory, which is renamed over `path`: writing into an executable
/// that runs fails with `ETXTBSY`, and a symbolic link at `path` is replaced, not followed. A
/// failure removes the temporary file.
pub(crate) fn replace(path: &Path, mut content: impl Read, mode: u32) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // Runtimes ignore this name: its extension is a number, so it is neither a configuration nor a
    // plugin.
    let temporary = directory.join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let written = (|| {
        // Left by a killed process that had the same id.
        let _ = std::fs::remove_file(&temporary);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        io::copy(&mut content, &mut file)?;
        // open(2) applies the umask to the mode; fchmod(2) does not.
        file.set_permissions(Permissions::from_mode(mode))?;
        // First the data, then the name, then the directory: after a power failure the name never
        // refers to an incomplete file (fsync(2)).
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

/// Makes the symbolic link `path` to `target`, in place of whatever has that name.
pub(crate) fn link(target: &str, path: &Path) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let temporary = directory.join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let _ = std::fs::remove_file(&temporary);
    symlink(target, &temporary)?;
    std::fs::rename(&temporary, path).inspect_err(|_| drop(std::fs::remove_file(&temporary)))
}
