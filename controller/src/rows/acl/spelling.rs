//! Spells the match of an ACL so that ovn-controller makes few flows of it.
//!
//! An OR of comparisons of one field is a dimension of a conjunction: with 50 addresses and 30
//! ports an ACL is 80 flows. An OR of several fields, `ip4.src == $a || ip6.src == $b`, is
//! multiplied out (`expr_normalize_and` of OVN's `lib/expr.c`): 1,500 flows. Such an OR is written
//! in front of the AND: `(ip4.src == $a && …) || (ip6.src == $b && …)`.
//!
//! A network with exceptions, `ip4.src == 10.0.0.0/8 && ip4.src != {10.1.0.0/16, …}`, becomes a
//! flow for each bit of an exception, and the product of that for several. It is written as the
//! networks that are left: everything but the three private networks is 31 flows instead of 130, or
//! 1,112 before OVN 23.09.
//!
//! A range of ports becomes prefixes, and more of them with its ends than without:
//! `10000<=tcp.dst<=10005` is five prefixes, `9999<tcp.dst<10006` is two.

use std::borrow::Cow;

use contract::remainder::remainder;
use ipnet::IpNet;

/// More alternatives than this stay as they are: each repeats the rest of the match.
const MOST: usize = 64;

/// The same match, spelled for few flows. Spelled again, it is the same text.
pub fn spelled(matching: &str) -> Cow<'_, str> {
    let plain = without_exceptions(matching);
    match alternatives(&plain) {
        Some(alternatives) => without_ends(&alternatives).into_owned().into(),
        None => match plain {
            Cow::Borrowed(plain) => without_ends(plain),
            Cow::Owned(plain) => without_ends(&plain).into_owned().into(),
        },
    }
}

/// The match with the networks that are left in the place of each network with exceptions.
fn without_exceptions(matching: &str) -> Cow<'_, str> {
    if !matching.contains(" != ") {
        return matching.into();
    }
    let (mut text, mut rest) = (String::new(), matching);
    while let Some(at) = rest.find(" != ") {
        let (before, left, after) = match with_exceptions(rest, at) {
            Some((from, field, left, to)) => {
                (&rest[..from], Some(equals(field, &left)), &rest[to..])
            }
            None => (&rest[..at + NOT.len()], None, &rest[at + NOT.len()..]),
        };
        text.push_str(before);
        text.push_str(&left.unwrap_or_default());
        rest = after;
    }
    (text + rest).into()
}

const NOT: &str = " != ";

fn equals(field: &str, nets: &[IpNet]) -> String {
    match nets {
        [one] => format!("{field} == {one}"),
        nets => {
            let nets: Vec<String> = nets.iter().map(IpNet::to_string).collect();
            format!("{field} == {{{}}}", nets.join(", "))
        }
    }
}

/// The network whose first exception is at `at`: where it begins, its field, what is left of it,
/// and where its last exception ends. None if it is something else, or if nothing is left.
fn with_exceptions(text: &str, at: usize) -> Option<(usize, &str, Vec<IpNet>, usize)> {
    let head = &text[..at];
    let begin = head
        .rfind(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.')
        .map_or(0, |at| at + 1);
    let field = &head[begin..];
    let network = head[..begin].trim_end().strip_suffix("&&")?.trim_end();
    let from = network.rfind(&format!("{field} == "))?;
    let net: IpNet = network[from + field.len() + " == ".len()..].parse().ok()?;
    let (mut except, mut to) = (Vec::new(), at);
    // `!= {…}`, or several `!= …`.
    while let Some(list) = text[to..].strip_prefix(NOT) {
        to += NOT.len();
        let length = match list.strip_prefix('{') {
            Some(inside) => inside.find('}')? + 2,
            None => list.find([' ', '&', '|', ')']).unwrap_or(list.len()),
        };
        for one in list[..length].trim_matches(['{', '}']).split(',') {
            except.push(network_or_address(one.trim())?);
        }
        to += length;
        let more = text[to..].trim_start().strip_prefix("&&").map(str::trim_start);
        match more.and_then(|more| more.strip_prefix(field)) {
            Some(more) if more.starts_with(NOT) => to = text.len() - more.len(),
            Some(_) | None => break,
        }
    }
    let left = remainder(net, &except);
    (!left.is_empty()).then_some((from, field, left, to))
}

fn network_or_address(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| Some(IpNet::from(text.parse::<std::net::IpAddr>().ok()?)))
}

/// The match as an OR of ANDs, in each of which every OR is of one field. None if it has no other
/// ORs, or too many.
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
        Kind::All(nodes) => {
            nodes.iter().try_fold(vec![Vec::new()], |all: Vec<Vec<Term<'_>>>, node| {
                let each = spread(node)?;
                let product = all
                    .iter()
                    .flat_map(|terms| each.iter().map(move |more| [&terms[..], more].concat()));
                (all.len() * each.len() <= MOST).then(|| product.collect())
            })
        }
        // Conditions without a field are few flows in any case.
        Kind::Any(nodes)
            if nodes
                .iter()
                .any(|node| matches!(node.kind, Kind::Single) && node.field().is_none()) =>
        {
            Some(whole())
        }
        Kind::Any(_) if node.field().is_some() => Some(whole()),
        Kind::Any(nodes) => {
            // One for each field, in the place of its first comparison. There may be thousands of
            // these.
            let mut all = Vec::new();
            let mut of_fields: Vec<(&str, usize, Vec<&str>)> = Vec::new();
            for node in nodes {
                let Some(field) = node.field() else {
                    all.extend(spread(node)?);
                    if all.len() > MOST {
                        return None;
                    }
                    continue;
                };
                match of_fields.iter_mut().find(|(known, ..)| *known == field) {
                    Some((_, _, texts)) => texts.push(node.text),
                    None => {
                        of_fields.push((field, all.len(), vec![node.text]));
                        all.push(Vec::new());
                    }
                }
            }
            for (field, place, texts) in of_fields {
                let text = match texts[..] {
                    [one] => one.into(),
                    _ => format!("({})", texts.join(" || ")).into(),
                };
                all[place] = vec![Term { text, field: Some(field) }];
            }
            (all.len() <= MOST).then_some(all)
        }
    }
}

/// The field of a comparison: `tcp.dst` of `tcp.dst=={80,81}` and of `80<=tcp.dst<=81`.
fn field(comparison: &str) -> Option<&str> {
    let mut words =
        comparison.split(['=', '!', '<', '>']).map(str::trim).filter(|word| !word.is_empty());
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
        // In one go up to the first of them: what follows may be a megabyte.
        let end = rest.find(['&', '|', '(', ')']).unwrap_or(rest.len());
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
        let digits = |text: &str| {
            text.len() - text.trim_end_matches(|digit: char| digit.is_ascii_digit()).len()
        };
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
            "(ip4.dst == {10.0.0.0/8, 192.0.2.0/24} || (ip4.dst == 198.51.100.0/24 && ip4.dst != {198.51.100.0/25}) || \
             ip6.dst == fd00::/64) && inport == @g",
            "((ip4.dst == {10.0.0.0/8, 192.0.2.0/24} || ip4.dst == 198.51.100.128/25) && inport == @g) || \
             (ip6.dst == fd00::/64 && inport == @g)",
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
    fn a_network_with_exceptions_is_what_is_left_of_it() {
        is_spelled(
            "ip4.src == 10.0.0.0/14 && ip4.src != {10.1.0.0/16, 10.2.0.0/16} && outport == @g",
            "ip4.src == {10.0.0.0/16, 10.3.0.0/16} && outport == @g",
        );
        is_spelled(
            "((ip4.dst == 0.0.0.0/0 && ip4.dst != 0.0.0.0/1) || (ip6.dst == ::/0 && ip6.dst != ::/2&&ip6.dst != \
             4000::/2)) && inport == @g",
            "(ip4.dst == 128.0.0.0/1 && inport == @g) || (ip6.dst == 8000::/1 && inport == @g)",
        );
        let private = "ip4.dst == 0.0.0.0/0 && ip4.dst != {10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16} && inport == @g";
        let left = spelled(private);
        assert!(
            left.starts_with("ip4.dst == {0.0.0.0/5, 8.0.0.0/7, 11.0.0.0/8, ")
                && left.ends_with("} && inport == @g")
        );
        assert_eq!(left.matches('/').count(), 31);
        is_spelled("ip4.dst == 10.0.0.0/31 && ip4.dst != 10.0.0.1", "ip4.dst == 10.0.0.0/32");
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
            "ip4.dst == 192.0.2.1 && ip4.src != {10.1.0.0/16, 10.2.0.0/16}",
            "(ip4.dst == 10.244.9.0/24 && ip4.dst != 10.244.0.0/16) && inport == @g",
            "ip4.src == $a && ip4.src != 10.1.0.0/16",
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
