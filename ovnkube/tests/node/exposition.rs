//! Prometheus' text format, read strictly ("Exposition formats"; what `promtool check metrics`
//! looks at).

use std::collections::{BTreeMap, BTreeSet};

/// A valid page of `/metrics`.
pub(crate) struct Exposition {
    pub(crate) text: String,
    /// The type of each family, by its name.
    families: BTreeMap<String, String>,
    samples: Vec<Sample>,
}

struct Sample {
    family: String,
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Exposition {
    #[track_caller]
    pub(crate) fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line has no end");
        let mut page =
            Self { text: text.to_owned(), families: BTreeMap::new(), samples: Vec::new() };
        let mut helped = BTreeSet::new();
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, words) = help.split_once(' ').expect(line);
                assert!(helped.insert(name.to_owned()) && !words.is_empty(), "{line}");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect(line);
                assert!(
                    ["counter", "gauge", "histogram"].contains(&kind) && helped.contains(name),
                    "{line}"
                );
                // Prometheus' conventions: the names of counters, and only those, end with
                // `_total`.
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                assert!(
                    page.families.insert(name.to_owned(), kind.to_owned()).is_none(),
                    "twice: {line}"
                );
            } else {
                let sample = page.sample(line);
                page.samples.push(sample);
            }
        }
        page.check();
        page
    }

    fn sample(&self, line: &str) -> Sample {
        let (series, value) = line.rsplit_once(' ').expect(line);
        let value = if value == "+Inf" { f64::INFINITY } else { value.parse().expect(line) };
        let (name, rest) = series.split_once('{').unwrap_or((series, "}"));
        let name_is_good = |name: &str| {
            !name.starts_with(|c: char| c.is_ascii_digit())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                && !name.is_empty()
        };
        assert!(name_is_good(name), "{line}");
        let mut labels: Vec<(String, String)> = Vec::new();
        let mut rest = rest.strip_suffix('}').expect(line);
        while !rest.is_empty() {
            let (label, after) = rest.split_once("=\"").expect(line);
            let end = (0..after.len())
                .find(|&at| after[at..].starts_with('"') && !after[..at].ends_with('\\'))
                .expect(line);
            assert!(
                name_is_good(label) && labels.iter().all(|(other, _)| other != label),
                "{line}"
            );
            labels.push((label.to_owned(), after[..end].to_owned()));
            rest = after[end + 1..].trim_start_matches(',');
        }
        let of_histogram =
            ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let family = of_histogram
            .filter(|family| self.families.get(*family).is_some_and(|kind| kind == "histogram"))
            .unwrap_or(name);
        assert!(self.families.contains_key(family), "no type: {line}");
        Sample { family: family.to_owned(), name: name.to_owned(), labels, value }
    }

    /// Each series is there once. The buckets of a histogram do not fall, and the last one has the
    /// count of all.
    fn check(&self) {
        let mut series = BTreeSet::new();
        let mut last: Option<(Vec<&(String, String)>, f64)> = None;
        for Sample { name, labels, value, .. } in &self.samples {
            assert!(series.insert((name, labels)), "twice: {name} {labels:?}");
            if name.ends_with("_bucket") {
                let of: Vec<_> = labels.iter().filter(|(label, _)| label != "le").collect();
                if let Some((before, least)) = &last {
                    assert!(*before != of || value >= least, "{name} {labels:?}");
                }
                last = Some((of, *value));
            } else if name.ends_with("_count") {
                assert_eq!(last.take().map(|(_, all)| all), Some(*value), "{name} {labels:?}");
            } else if !name.ends_with("_sum") {
                last = None;
            }
        }
    }

    /// The value of a sample, whose labels may be in any order.
    pub(crate) fn value(&self, sample: &str) -> Option<f64> {
        let Sample { name, mut labels, .. } = self.sample(&format!("{sample} 0"));
        labels.sort();
        let same = |other: &&Sample| {
            let mut others = other.labels.clone();
            others.sort();
            other.name == name && others == labels
        };
        self.samples.iter().find(same).map(|sample| sample.value)
    }

    /// The values that must never fall: counters, and the counts of histograms.
    pub(crate) fn counters(&self) -> BTreeMap<String, f64> {
        let counts = |sample: &&Sample| self.families[&sample.family] != "gauge";
        self.samples
            .iter()
            .filter(counts)
            .map(|sample| (format!("{}{:?}", sample.name, sample.labels), sample.value))
            .collect()
    }

    /// All labels that a family has.
    pub(crate) fn labels(&self, family: &str) -> Option<BTreeSet<String>> {
        self.families.get(family)?;
        let samples = self.samples.iter().filter(|sample| sample.family == family);
        Some(
            samples
                .flat_map(|sample| sample.labels.iter().map(|(label, _)| label.clone()))
                .collect(),
        )
    }

    /// All values of a label of a family.
    pub(crate) fn values(&self, family: &str, label: &str) -> BTreeSet<String> {
        let samples = self.samples.iter().filter(|sample| sample.family == family);
        samples
            .flat_map(|sample| {
                sample
                    .labels
                    .iter()
                    .filter(|(name, _)| name == label)
                    .map(|(_, value)| value.clone())
            })
            .collect()
    }
}
