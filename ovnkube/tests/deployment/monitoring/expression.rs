//! The words of an expression of Prometheus' query language, as far as names of series and labels
//! go. Prometheus itself reads them in `prometheus`.

use super::series::Series;

/// Labels that are not in [`Series`]: Prometheus adds the first two, and `le` is in expressions
/// only.
const NOT_OURS: [&str; 3] = ["instance", "job", "le"];
/// Words that are no names ("Operators").
const KEYWORDS: [&str; 12] = [
    "and", "avg", "bool", "bottomk", "count", "max", "min", "offset", "or", "sum", "topk", "unless",
];
/// What is before a list of labels.
const BEFORE_LABELS: [&str; 6] = ["by", "group_left", "group_right", "ignoring", "on", "without"];

/// Names of series with the labels of their selectors, and labels of lists.
#[derive(Debug, Default)]
struct Names {
    series: Vec<(String, Vec<String>)>,
    labels: Vec<String>,
}

impl Names {
    fn of(expression: &str) -> Self {
        let mut names = Self::default();
        let mut rest = expression;
        while let Some(first) = rest.chars().next() {
            if first == '[' {
                // A range.
                rest = rest.split_once(']').unwrap().1;
            } else if first.is_ascii_digit() {
                rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
            } else if first.is_ascii_alphabetic() {
                let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
                let word;
                (word, rest) = rest.split_at(end);
                rest = names.read(word, rest.trim_start());
            } else {
                rest = &rest[first.len_utf8()..];
            }
        }
        names
    }

    /// Takes a word and what belongs to it. Returns what follows.
    fn read<'a>(&mut self, word: &str, after: &'a str) -> &'a str {
        if BEFORE_LABELS.contains(&word) {
            let (labels, rest) = after.strip_prefix('(').unwrap().split_once(')').unwrap();
            let labels = labels.split(',').map(str::trim).filter(|label| !label.is_empty());
            self.labels.extend(labels.map(str::to_owned));
            return rest;
        }
        if KEYWORDS.contains(&word) || NOT_OURS.contains(&word) || after.starts_with('(') {
            return after;
        }
        let Some(selector) = after.strip_prefix('{') else {
            self.series.push((word.to_owned(), Vec::new()));
            return after;
        };
        let (mut labels, mut rest) = (Vec::new(), selector);
        while !rest.starts_with('}') {
            let (label, value) = rest.split_once('"').unwrap();
            labels.push(label.trim_matches(|c: char| !is_word(c)).to_owned());
            rest = value.split_once('"').unwrap().1.trim_start_matches([',', ' ']);
        }
        self.series.push((word.to_owned(), labels));
        rest
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Checks that the series of an expression exist and have the labels of its selectors and lists.
pub(super) fn check(expression: &str, known: &Series) {
    let Names { series, labels } = Names::of(expression);
    // What Prometheus says of its targets.
    let ours = || series.iter().filter(|(name, _)| name != "up");
    assert!(ours().count() > 0, "no series: {expression}");
    for (name, labels) in ours() {
        let has = known.get(name).unwrap_or_else(|| panic!("{name} does not exist: {expression}"));
        for label in labels.iter().filter(|label| !NOT_OURS.contains(&label.as_str())) {
            assert!(has.contains(label), "{name} has no label {label}: {expression}");
        }
    }
    for label in labels.iter().filter(|label| !NOT_OURS.contains(&label.as_str())) {
        let is_known = ours().any(|(name, _)| known[name].contains(label));
        assert!(is_known, "no series has a label {label}: {expression}");
    }
}

#[test]
fn names_of_series_and_labels_are_found_and_nothing_else() {
    let expression = "max by (job, a) (rate(x_total{b=\"(y{\", c!~\"d|e\"}[5m] offset 1h)) > 1e9 \
                      unless on (f) group_left () z_2 == bool 0 or vector(0)";
    let Names { series, labels } = Names::of(expression);
    let labels_of_x = ["b", "c"].map(str::to_owned).to_vec();
    assert_eq!(series, [("x_total".to_owned(), labels_of_x), ("z_2".to_owned(), Vec::new())]);
    assert_eq!(labels, ["job", "a", "f"]);
}
