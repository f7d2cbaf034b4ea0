use proptest::prelude::*;

use super::*;

fn entries(text: &str) -> Vec<(String, String, String, usize)> {
    let (entries, faults) = parse(text);
    assert_eq!(faults, []);
    entries.into_iter().map(|entry| (entry.section, entry.key, entry.value, entry.line)).collect()
}

fn value(line: &str) -> String {
    let (entries, faults) = parse(&format!("[s]\nk={line}"));
    assert_eq!(faults, [], "{line}");
    entries[0].value.clone()
}

#[test]
fn sections_keys_and_comments_are_found_with_their_lines() {
    let text = "\u{feff}# head\n\n[Default] ; the first\r\nMTU = 1300\r\n  conntrack_zone=64000 # zone\n[OvnNorth]\n\taddress = tcp:1.2.3.4:6641\nnodeport\n";
    let expected = [
        ("Default", "MTU", "1300", 4),
        ("Default", "conntrack_zone", "64000", 5),
        ("OvnNorth", "address", "tcp:1.2.3.4:6641", 7),
        ("OvnNorth", "nodeport", "true", 8),
    ];
    assert_eq!(
        entries(text),
        expected.map(|(section, key, value, line)| (
            section.to_owned(),
            key.to_owned(),
            value.to_owned(),
            line
        ))
    );
}

#[test]
fn a_value_ends_at_a_comment_unless_that_is_in_quotes() {
    for (line, expected) in [
        ("a", "a"),
        ("", ""),
        ("  a b  ", "a b"),
        ("a;b", "a"),
        ("a # b", "a"),
        ("\"a;b # c\"", "a;b # c"),
        ("a \" b \" c ; d", "a  b  c"),
        ("\" a \"", " a "),
        (r#""say \"no\"""#, "say \"no\""),
        (r"a\\b\tc\n", "a\\b\tc\n"),
        ("'single'", "'single'"),
        ("a \\\n  b", "a   b"),
        ("a\\\r\nb", "ab"),
        ("x=y", "x=y"),
    ] {
        assert_eq!(value(line), expected, "{line:?}");
    }
}

#[test]
fn a_continued_value_does_not_shift_the_lines_behind_it() {
    assert_eq!(entries("[s]\na=1\\\n2\\\n3\nb=4")[1].3, 5);
}

#[test]
fn every_fault_is_named_with_its_line_and_the_rest_is_read() {
    let (entries, faults) = parse(
        "early=1\n[s]\n<same as ovn north>\na=\"open\nb=2\nc d=3\n[t\nd=\\x\n[u] v\n[w \"x\ny=5",
    );
    let lines: Vec<usize> = faults.iter().map(|fault| fault.line).collect();
    assert_eq!(lines, [1, 3, 4, 6, 7, 8, 9, 10]);
    let keys: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(keys, ["b", "y"]);
}

#[test]
fn a_subsection_stands_in_quotes() {
    let (entries, faults) = parse("[remote \"a \\\" b\"]\nurl=x");
    assert_eq!((faults.len(), entries[0].subsection.as_deref()), (0, Some("a \" b")));
}

proptest! {
    #[test]
    fn nothing_makes_it_panic_and_lines_are_within_the_text(text in "[\\[\\]a-c=\"\\\\#;\n\r\t é'._-]{0,120}") {
        let (entries, faults) = parse(&text);
        let lines = text.matches('\n').count() + 1;
        prop_assert!(entries.iter().map(|entry| entry.line).chain(faults.iter().map(|fault| fault.line)).all(|line| (1..=lines).contains(&line)));
    }

    #[test]
    fn anything_at_all_is_read(text in any::<String>()) {
        parse(&text);
    }

    #[test]
    fn what_is_quoted_comes_out_as_it_went_in(value in "[ -~é\n\t]{0,40}") {
        let quoted = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
        let (entries, faults) = parse(&format!("[s]\nk = \"{quoted}\" ; comment\nnext=1"));
        prop_assert_eq!(faults, vec![]);
        prop_assert_eq!((entries[0].value.as_str(), entries[1].line), (value.as_str(), 3));
    }
}
