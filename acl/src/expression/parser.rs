//! Text of OVN's expression language to an [`Expression`]. Must not know what fields and predicates
//! mean.

use super::{Expression, Relation};

/// Nested parentheses of a match. Matches of policies have two; a limit keeps foreign ones from
/// using up the stack.
const DEEPEST: usize = 64;

/// None if it cannot be read.
pub(super) fn parse(text: &str) -> Option<Expression> {
    let mut parser = Parser { tokens: tokens(text)?, place: 0, depth: 0 };
    let expression = parser.any()?;
    (parser.place == parser.tokens.len()).then_some(expression)
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A field, a predicate or a constant.
    Word(String),
    /// A constant in quotes.
    Text(String),
    Relation(Relation),
    Symbol(&'static str),
}

fn tokens(text: &str) -> Option<Vec<Token>> {
    const SYMBOLS: [&str; 8] = ["&&", "||", "(", ")", "{", "}", ",", "!"];
    const RELATIONS: [(&str, Relation); 6] = [
        ("==", Relation::Equal),
        ("!=", Relation::NotEqual),
        ("<=", Relation::LessOrEqual),
        (">=", Relation::GreaterOrEqual),
        ("<", Relation::Less),
        (">", Relation::Greater),
    ];
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_.:$@/-[]".contains(c);
    let (mut found, mut rest) = (Vec::new(), text.trim_start());
    while !rest.is_empty() {
        let after;
        if let Some((sign, relation)) = RELATIONS.iter().find(|(sign, _)| rest.starts_with(sign)) {
            found.push(Token::Relation(*relation));
            after = &rest[sign.len()..];
        } else if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
            found.push(Token::Symbol(symbol));
            after = &rest[symbol.len()..];
        } else if let Some(quoted) = rest.strip_prefix('"') {
            let (inner, behind) = quoted.split_once('"')?;
            found.push(Token::Text(inner.to_owned()));
            after = behind;
        } else {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            if end == 0 {
                return None;
            }
            found.push(Token::Word(rest[..end].to_owned()));
            after = &rest[end..];
        }
        rest = after.trim_start();
    }
    Some(found)
}

struct Parser {
    tokens: Vec<Token>,
    place: usize,
    depth: usize,
}

impl Parser {
    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.place).cloned();
        self.place += 1;
        token
    }

    /// Goes on if the next token is this symbol.
    fn takes(&mut self, symbol: &str) -> bool {
        let is_it =
            matches!(self.tokens.get(self.place), Some(Token::Symbol(next)) if *next == symbol);
        self.place += usize::from(is_it);
        is_it
    }

    fn relation(&mut self) -> Option<Relation> {
        let Some(Token::Relation(relation)) = self.tokens.get(self.place) else { return None };
        self.place += 1;
        Some(*relation)
    }

    fn any(&mut self) -> Option<Expression> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let mut terms = vec![self.all()?];
        while self.takes("||") {
            terms.push(self.all()?);
        }
        self.depth -= 1;
        Some(if terms.len() == 1 { terms.pop()? } else { Expression::Any(terms) })
    }

    fn all(&mut self) -> Option<Expression> {
        let mut terms = vec![self.one()?];
        while self.takes("&&") {
            terms.push(self.one()?);
        }
        Some(if terms.len() == 1 { terms.pop()? } else { Expression::All(terms) })
    }

    fn one(&mut self) -> Option<Expression> {
        if self.takes("!") {
            self.depth += 1;
            if self.depth > DEEPEST {
                return None;
            }
            let inner = self.one()?;
            self.depth -= 1;
            return Some(Expression::Not(Box::new(inner)));
        }
        if self.takes("(") {
            let inner = self.any()?;
            return self.takes(")").then_some(inner);
        }
        let Token::Word(first) = self.next()? else { return None };
        let Some(relation) = self.relation() else { return Some(Expression::Is(first)) };
        if first.starts_with(|c: char| c.is_ascii_digit()) {
            // `80 <= tcp.dst <= 90`
            let Token::Word(field) = self.next()? else { return None };
            let lower = Expression::Compare {
                field: field.clone(),
                relation: relation.turned(),
                constants: vec![first],
            };
            let Some(relation) = self.relation() else { return Some(lower) };
            let upper = Expression::Compare { field, relation, constants: self.constants()? };
            return Some(Expression::All(vec![lower, upper]));
        }
        Some(Expression::Compare { field: first, relation, constants: self.constants()? })
    }

    fn constants(&mut self) -> Option<Vec<String>> {
        let constant = |token| match token {
            Token::Word(text) | Token::Text(text) => Some(text),
            Token::Relation(_) | Token::Symbol(_) => None,
        };
        if !self.takes("{") {
            return Some(vec![constant(self.next()?)?]);
        }
        let mut all = Vec::new();
        while !self.takes("}") {
            all.push(constant(self.next()?)?);
            self.takes(",");
        }
        Some(all)
    }
}

impl Relation {
    /// The same with its sides exchanged.
    fn turned(self) -> Self {
        match self {
            Self::Equal => Self::Equal,
            Self::NotEqual => Self::NotEqual,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }
}
