//! The end of a file that may be long, such as a log.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::Path,
};

/// The last `most` bytes, or fewer: a longer file's text begins at the beginning of a line.
///
/// # Errors
///
/// The file cannot be read.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match (length > most, text.split_once('\n')) {
        (true, Some((_, whole))) => Ok(whole.to_owned()),
        _ => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_begins_with_a_whole_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "first\nsecond\nthird\n").unwrap();
        for (most, text) in [(100, "first\nsecond\nthird\n"), (9, "third\n"), (3, "")] {
            assert_eq!(read(file.path(), most).unwrap(), text, "{most}");
        }
    }
}
