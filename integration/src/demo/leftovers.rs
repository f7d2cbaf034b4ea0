//! The state of the nodes before, with and after the pods, as a table of counts. Pure.

use integration::Census;

use super::line::{Line, Paint};

/// The counted kinds: the first word of a census's lines, and a label.
const COUNTED: &[(&str, &str)] = &[
    ("link", "network links"),
    ("netns", "network namespaces"),
    ("Port", "switch ports"),
    ("Interface", "switch interfaces"),
    ("QoS", "QoS rows"),
    ("Queue", "queue rows"),
];
/// Right ends of the columns of numbers, for two nodes.
const COLUMNS: [[usize; 3]; 2] = [[30, 41, 48], [62, 73, 80]];

/// A node's name, with its censuses before, with and after the pods.
type Node<'a> = (&'a str, [&'a Census; 3]);

/// The table.
pub(crate) fn table(nodes: &[Node<'_>]) -> Vec<Line> {
    let texts: Vec<[String; 3]> =
        nodes.iter().map(|(_, censuses)| censuses.map(ToString::to_string)).collect();
    let mut names = Line::default();
    let mut heads = Line::default().to(4);
    for ((name, _), columns) in nodes.iter().zip(COLUMNS) {
        names = names.to(columns[0] - 6).add(Paint::Node, *name);
        for (column, head) in columns.into_iter().zip(["before", "with pods", "after"]) {
            heads = heads.right(column, Paint::Faint, head);
        }
    }
    let rows = COUNTED.iter().map(|(word, label)| {
        let mut line = Line::default().to(4).text(*label);
        for (texts, columns) in texts.iter().zip(COLUMNS) {
            let counts = texts.each_ref().map(|text| count(text, word));
            let paints =
                [Paint::Plain, if counts[0] == counts[1] { Paint::Faint } else { Paint::Bar }, after(counts)];
            for ((count, paint), column) in counts.into_iter().zip(paints).zip(columns) {
                line = line.right(column, paint, count.to_string());
            }
        }
        line
    });
    [names, heads].into_iter().chain(rows).collect()
}

fn after([before, _, after]: [usize; 3]) -> Paint {
    if before == after { Paint::Good } else { Paint::Bad }
}

fn count(census: &str, word: &str) -> usize {
    census.lines().filter(|line| line.split(' ').next() == Some(word)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_by_their_first_word() {
        let census = "Interface a\nInterface b\nPort Interface\nlink Port\nlink lo";
        assert_eq!(["Interface", "Port", "link", "QoS"].map(|word| count(census, word)), [2, 1, 2, 0]);
    }

    #[test]
    fn a_count_that_is_not_as_before_is_bad() {
        assert_eq!((after([1, 2, 1]), after([1, 2, 2])), (Paint::Good, Paint::Bad));
    }
}
