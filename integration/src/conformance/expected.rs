//! The specs that have to pass, lane by lane: a file of the checkout, which only grows.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, Result};

use super::{checked_out, selection::Lane};

/// One spec a line: `ipv4 [sig-network] Services should …`. `#` begins a line for readers.
const FILE: &str = "conformance-expected.txt";

/// The specs that have to pass in `lane`.
pub(super) fn read(lane: Lane) -> Result<BTreeSet<String>> {
    let file = checked_out(FILE);
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    Ok(of_lane(&text, lane))
}

/// Adds specs of `lane` to the file.
pub(super) fn add(lane: Lane, names: &[String]) -> Result<()> {
    let file = checked_out(FILE);
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    fs::write(&file, with(&text, lane, names)).with_context(|| format!("write {}", file.display()))
}

fn of_lane(text: &str, lane: Lane) -> BTreeSet<String> {
    let prefix = format!("{lane} ");
    text.lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
}

fn with(text: &str, lane: Lane, names: &[String]) -> String {
    let (head, lines): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with('#'));
    let mut lines: BTreeSet<String> = lines.into_iter().map(str::to_owned).collect();
    lines.extend(names.iter().map(|name| format!("{lane} {name}")));
    head.into_iter().map(str::to_owned).chain(lines).map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_added_in_order_and_nothing_is_taken_away() {
        let text = "# for readers\nipv4 b\nipv6 b\n";
        let text = with(text, Lane::Ipv4, &["a".to_owned(), "b".to_owned()]);
        assert_eq!(text, "# for readers\nipv4 a\nipv4 b\nipv6 b\n");
        assert_eq!(of_lane(&text, Lane::Ipv6), BTreeSet::from(["b".to_owned()]));
    }
}
