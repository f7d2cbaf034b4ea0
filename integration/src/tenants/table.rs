//! The table of SECURITY.md, made of the rows. Pure.

use super::matrix::{Party, ROWS, Row};

/// What comes before the table in SECURITY.md.
pub const BEGIN: &str =
    "<!-- The table is made of integration/src/tenants/matrix.rs: make tenants TABLE=1 -->\n";
/// What comes after it.
pub const END: &str = "<!-- The end of the table. -->\n";

/// The table, party by party.
pub fn table() -> String {
    let mut text = String::new();
    for party in Party::ALL {
        text += &format!("\n### {}\n\n| row | tries | must hold |\n|---|---|---|\n", party.title());
        ROWS.iter().filter(|row| row.party == party).for_each(|row| text += &line(row));
    }
    text + "\n"
}

/// The document with this table in place of the one that it has.
///
/// # Errors
/// If it has no place for it: what is missing.
pub fn renewed(document: &str) -> Result<String, &'static str> {
    let (before, rest) = document.split_once(BEGIN).ok_or(BEGIN)?;
    let (_, after) = rest.split_once(END).ok_or(END)?;
    Ok([before, BEGIN, &table(), END, after].concat())
}

fn line(row: &Row) -> String {
    let Row { number, party: _, attack, expected, beside, fails } = row;
    let beside = beside.map(|text| format!(" *Not prevented:* {text}.")).unwrap_or_default();
    let fails = fails.map(|text| format!(" **Fails today:** {text}.")).unwrap_or_default();
    format!("| {number} | {attack} | {expected}.{beside}{fails} |\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_security_md_is_that_of_the_rows() {
        let document = include_str!("../../../SECURITY.md");
        let renewed = renewed(document).unwrap();
        assert!(document == renewed, "run: make tenants TABLE=1");
    }

    #[test]
    fn no_cell_breaks_the_table() {
        for row in ROWS.iter() {
            let line = line(row);
            assert_eq!(line.matches('|').count(), 4, "{line}");
            assert_eq!(line.matches('\n').count(), 1, "{line}");
        }
    }
}
