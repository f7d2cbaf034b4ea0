//! Spells the match of an ACL so that ovn-controller makes few flows of it.
//!
//! An OR of comparisons of one field is a dimension of a conjunction: with 50 addresses and 30 ports an ACL is 80
//! flows. An OR of several fields, `ip4.src == $a || ip6.src == $b`, is multiplied out (`expr_normalize_and` of OVN's
//! `lib/expr.c`): 1,500 flows. Such an OR is written in front of the AND: `(ip4.src == $a && …) || (ip6.src == $b &&
//! …)`.
//!
//! A range of ports becomes prefixes, and more of them with its ends than without: `10000<=tcp.dst<=10005` is five
//! prefixes, `9999<tcp.dst<10006` is two.

use std::borrow::Cow;

/// More alternatives than this stay as they are: each repeats the rest of the match.
const MOST: usize = 64;

/// The same match, spelled for few flows. Spelled again, it is the same text.
pub fn spelled(matching: &str) -> Cow<'_, str> {
    match alternatives(matching) {
        Some(alternatives) => without_ends(&alternatives).into_owned().into(),
        None => without_ends(matching),
    }
}

/// The match as an OR of ANDs, in each of which every OR is of one field. None if it has no other ORs, or too many.
fn alternatives(matching: &str) -> Option<String> {
    // Most matches have none.
    if !matching.contains("||") {
        return None;
    }
    let mut parser = Parser { text: matching, at: 0 };
    let whole = parser.any().filter(|_| parser.at == matching.len())?;
    let mut all = spread(&whole)?;
    all.retain(|terms| !(has_field(terms, "ip4.") && has_field(terms, "ip6.")));
    if all.len() < 2 || all.iter().all(|terms| terms.len() == 1) {
        return None;
    }
    let and = |terms: Vec<Term<'_>>| {
        let texts: Vec<Cow<'_, str>> = terms.into_iter().map(|term| term.text).collect();
        if texts.len() == 1 { texts.concat() } else { format!("({})", texts.join(" && ")) }
    };
    Some(all.into_iter().map(and).collect::<Vec<String>>().join(" || "))
}

/// What stands between two `&&`, or between two `||`.
#[derive(Debug)]
struct Node<'a> {
    /// With its parentheses.
    text: &'a str,
    kind: Kind<'a>,
}

#[derive(Debug)]
enum Kind<'a> {
    /// A comparison, or the name of a condition: `tcp`.
    Single,
    All(Vec<Node<'a>>),
    Any(Vec<Node<'a>>),
}

impl<'a> Node<'a> {
    /// The field of all comparisons. None if there are several, or none.
    fn field(&self) -> Option<&'a str> {
        match &self.kind {
            Kind::Single => field(self.text),
            Kind::All(nodes) | Kind::Any(nodes) => {
                let first = nodes.first()?.field()?;
                nodes.iter().all(|node| node.field() == Some(first)).then_some(first)
            }
        }
    }
}

/// What an alternative is an AND of.
#[derive(Debug, Clone)]
struct Term<'a> {
    text: Cow<'a, str>,
    field: Option<&'a str>,
}

fn has_field(terms: &[Term<'_>], prefix: &str) -> bool {
    terms.iter().any(|term| term.field.is_some_and(|field| field.starts_with(prefix)))
}

/// The node as an OR of ANDs. None if there are too many.
fn spread<'a>(node: &Node<'a>) -> Option<Vec<Vec<Term<'a>>>> {
    let whole = || vec![vec![Term { text: node.text.into(), field: node.field() }]];
    match &node.kind {
        Kind::Single => Some(whole()),
        Kind::All(nodes) => nodes.iter().try_fold(vec![Vec::new()], |all: Vec<Vec<Term<'_>>>, node| {
            let each = spread(node)?;
            let product =
                all.iter().flat_map(|terms| each.iter().map(move |more| [&terms[..], more].concat()));
            (all.len() * each.len() <= MOST).then(|| product.collect())
        }),
        // Conditions without a field are few flows in any case.
        Kind::Any(nodes)
            if nodes.iter().any(|node| matches!(node.kind, Kind::Single) && node.field().is_none()) =>
        {
            Some(whole())
        }
        Kind::Any(_) if node.field().is_some() => Some(whole()),
        Kind::Any(nodes) => {
            let mut all = Vec::new();
            for (index, node) in nodes.iter().enumerate() {
                let Some(field) = node.field() else {
                    all.extend(spread(node)?);
                    continue;
                };
                let of_field = |node: &&Node<'_>| node.field() == Some(field);
                if nodes[..index].iter().any(|node| of_field(&node)) {
                    continue;
                }
                let texts: Vec<&str> = nodes.iter().filter(of_field).map(|node| node.text).collect();
                let text = if texts.len() == 1 {
                    texts[0].into()
                } else {
                    format!("({})", texts.join(" || ")).into()
                };
                all.push(vec![Term { text, field: Some(field) }]);
            }
            (all.len() <= MOST).then_some(all)
        }
    }
}

/// The field of a comparison: `tcp.dst` of `tcp.dst=={80,81}` and of `80<=tcp.dst<=81`.
fn field(comparison: &str) -> Option<&str> {
    let mut words = comparison.split(['=', '!', '<', '>']).map(str::trim).filter(|word| !word.is_empty());
    let (first, second) = (words.next()?, words.next()?);
    let is_field = |word: &&str| word.starts_with(|first: char| first.is_ascii_alphabetic());
    Some(first).filter(is_field).or(Some(second).filter(is_field))
}

/// Reads `&&`, `||` and parentheses, and leaves the rest as text.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn any(&mut self) -> Option<Node<'a>> {
        self.list("||", Self::all, Kind::Any)
    }

    fn all(&mut self) -> Option<Node<'a>> {
        self.list("&&", Self::one, Kind::All)
    }

    /// One or more, separated by an operator.
    fn list(
        &mut self,
        operator: &str,
        next: impl Fn(&mut Self) -> Option<Node<'a>>,
        kind: impl Fn(Vec<Node<'a>>) -> Kind<'a>,
    ) -> Option<Node<'a>> {
        self.skip_spaces();
        let begin = self.at;
        let first = next(self)?;
        let (mut end, mut nodes) = (self.at, vec![first]);
        loop {
            self.skip_spaces();
            if !self.text[self.at..].starts_with(operator) {
                break;
            }
            self.at += operator.len();
            self.skip_spaces();
            nodes.push(next(self)?);
            end = self.at;
        }
        if nodes.len() == 1 {
            nodes.pop()
        } else {
            Some(Node { text: &self.text[begin..end], kind: kind(nodes) })
        }
    }

    fn one(&mut self) -> Option<Node<'a>> {
        let begin = self.at;
        if self.text[begin..].starts_with('(') {
            self.at += 1;
            let inner = self.any()?;
            self.text[self.at..].starts_with(')').then(|| self.at += 1)?;
            return Some(match inner.kind {
                Kind::Single => inner,
                kind => Node { text: &self.text[begin..self.at], kind },
            });
        }
        let rest = &self.text[begin..];
        let end = ["&&", "||", "(", ")"].iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
        let text = rest[..end].trim_end();
        self.at += text.len();
        (!text.is_empty()).then_some(Node { text, kind: Kind::Single })
    }

    fn skip_spaces(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }
}

/// The match with each range of ports without its ends.
fn without_ends(matching: &str) -> Cow<'_, str> {
    let mut text = String::new();
    let mut rest = matching;
    while let Some((before, (first, field, last), after)) = next_range(rest) {
        text.push_str(before);
        // The field has 16 bits. A range of all of them is never written.
        let from = first.checked_sub(1).map(|before| format!("{before}<")).unwrap_or_default();
        let to = last.checked_add(1).map(|after| format!("<{after}")).unwrap_or_default();
        text.push_str(&format!("{from}{field}{to}"));
        rest = after;
    }
    if text.is_empty() { matching.into() } else { (text + rest).into() }
}

/// The first range in the text, with what is before and after it.
fn next_range(text: &str) -> Option<(&str, (u16, &str, u16), &str)> {
    text.match_indices("<=").find_map(|(at, operator)| {
        let digits =
            |text: &str| text.len() - text.trim_end_matches(|digit: char| digit.is_ascii_digit()).len();
        let begin = at - digits(&text[..at]);
        let (field, rest) = text[at + operator.len()..].split_once(operator)?;
        let end = rest.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(rest.len());
        let is_field = field.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '.');
        let (first, last): (u16, u16) = (text[begin..at].parse().ok()?, rest[..end].parse().ok()?);
        (is_field && (first, last) != (0, u16::MAX)).then_some((
            &text[..begin],
            (first, field, last),
            &rest[end..],
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is_spelled(matching: &str, wanted: &str) {
        assert_eq!(spelled(matching), wanted);
        assert_eq!(spelled(wanted), wanted, "again");
    }

    #[test]
    fn an_or_of_two_families_is_in_front_of_the_and() {
        is_spelled(
            "(ip4.src == {$a1, $a2} || ip6.src == {$b}) && tcp && tcp.dst=={80,81} && outport == @g",
            "(ip4.src == {$a1, $a2} && tcp && tcp.dst=={80,81} && outport == @g) || \
             (ip6.src == {$b} && tcp && tcp.dst=={80,81} && outport == @g)",
        );
        is_spelled(
            "(ip4.dst == {10.0.0.0/8, 192.0.2.0/24} || (ip4.dst == 198.51.100.0/24 && ip4.dst != {198.51.100.1/32}) || \
             ip6.dst == fd00::/64) && inport == @g",
            "((ip4.dst == {10.0.0.0/8, 192.0.2.0/24} || (ip4.dst == 198.51.100.0/24 && ip4.dst != \
             {198.51.100.1/32})) && inport == @g) || (ip6.dst == fd00::/64 && inport == @g)",
        );
    }

    #[test]
    fn ports_with_names_are_beside_the_others() {
        is_spelled(
            "(ip4.src == {$a} || ip6.src == {$b}) && tcp && (tcp.dst==80 || tcp.dst==81 || \
             (tcp.dst==8080 && (ip4.dst == $c || ip6.dst == $d))) && outport == @g",
            "(ip4.src == {$a} && tcp && (tcp.dst==80 || tcp.dst==81) && outport == @g) || \
             (ip4.src == {$a} && tcp && tcp.dst==8080 && ip4.dst == $c && outport == @g) || \
             (ip6.src == {$b} && tcp && (tcp.dst==80 || tcp.dst==81) && outport == @g) || \
             (ip6.src == {$b} && tcp && tcp.dst==8080 && ip6.dst == $d && outport == @g)",
        );
    }

    #[test]
    fn a_range_is_without_its_ends() {
        is_spelled(
            "ip4.src == $a && tcp && (tcp.dst==80 || 10000<=tcp.dst<=10005) && outport == @g",
            "ip4.src == $a && tcp && (tcp.dst==80 || 9999<tcp.dst<10006) && outport == @g",
        );
        is_spelled("0<=udp.dst<=5 || 1<=udp.dst<=5", "udp.dst<6 || 0<udp.dst<6");
        is_spelled("60000<=sctp.dst<=65535 && ip4", "59999<sctp.dst && ip4");
    }

    #[test]
    fn other_matches_stay() {
        for matching in [
            "ip4.src == {$a1, $a2} && tcp && (tcp.dst==80 || tcp.dst==81) && outport == @g",
            "(ip4.src == $a || ip6.src == $b)",
            "(ip4 || ip6) && outport == @g",
            "outport == @g && (arp || nd)",
            "(igmp || (ip4.src == $a && ip4.mcast)) && inport == @g",
            "ip4.src == 10.0.0.0/8 && ip4.src != {10.1.0.0/16, 10.2.0.0/16} && outport == @g",
            "ip4.src == 10.244.1.2 || ip4.src == 10.244.1.3",
            "0<=tcp.dst<=65535",
            "(ip4.src == $a || ip6.src == $b",
            "ip4.src == $a || ip6.src == $b)",
            "",
        ] {
            assert_eq!(spelled(matching), matching);
        }
        let ports: Vec<String> =
            (0..MOST).map(|port| format!("(tcp.dst=={port} && ip4.dst == $p{port})")).collect();
        let many = format!("ip4.src == $a && tcp && (tcp.dst==80 || {})", ports.join(" || "));
        assert_eq!(spelled(&many), many);
    }
}
