//! A label selector (`LabelSelector`).

/// The labels of an object, each key once.
pub type Labels<'a> = Vec<(&'a str, &'a str)>;

/// A selector of objects by their labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Selector<'a> {
    pub match_labels: Labels<'a>,
    pub match_expressions: Vec<Expression<'a>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Expression<'a> {
    pub key: &'a str,
    pub operator: Operator,
    pub values: Vec<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Selector<'_> {
    /// "The result of matchLabels and matchExpressions are ANDed. An empty label selector matches
    /// all objects."
    pub fn selects(&self, labels: &Labels<'_>) -> bool {
        let value = |key: &str| labels.iter().find(|(own, _)| *own == key).map(|(_, value)| *value);
        self.match_labels.iter().all(|(key, wanted)| value(key) == Some(*wanted))
            && self.match_expressions.iter().all(|Expression { key, operator, values }| {
                let is_one = value(key).is_some_and(|value| values.contains(&value));
                match operator {
                    Operator::In => is_one,
                    Operator::NotIn => !is_one,
                    Operator::Exists => value(key).is_some(),
                    Operator::DoesNotExist => value(key).is_none(),
                }
            })
    }
}
