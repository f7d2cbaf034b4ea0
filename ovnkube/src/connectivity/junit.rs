//! A report as JUnit's XML, for programs that show tests.

use std::fmt::Write as _;

use crate::findings::{Report, State};

pub(super) fn document(report: &Report) -> String {
    let findings = &report.findings;
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"ovnkube connectivity test\" tests=\"{}\" failures=\"{}\" skipped=\"{}\">\n",
        findings.len(),
        count(State::Failed) + count(State::Unknown),
        count(State::Skipped)
    );
    for finding in findings {
        let (class, name) = (escaped(finding.subject), escaped(&finding.name));
        let _ = write!(text, "  <testcase classname=\"{class}\" name=\"{name}\"");
        let summary = escaped(&finding.summary);
        let _ = match finding.state {
            State::Ok | State::Warning => writeln!(text, "/>"),
            State::Skipped => writeln!(text, "><skipped message=\"{summary}\"/></testcase>"),
            State::Failed | State::Unknown => {
                let next = finding.next.as_deref().map(escaped).unwrap_or_default();
                writeln!(text, "><failure message=\"{summary}\">{next}</failure></testcase>")
            }
        };
    }
    text + "</testsuite>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Finding;

    #[test]
    fn a_failure_has_its_reason_and_nothing_of_it_is_markup() {
        let findings = vec![
            Finding::new("policies", "a", State::Ok, "1 ms"),
            Finding::new("policies", "b", State::Failed, "<\"&>").next("look"),
            Finding::new("DNS", "c", State::Skipped, "none"),
        ];
        let text = document(&Report::new("T", findings));
        assert!(text.contains("tests=\"3\" failures=\"1\" skipped=\"1\""), "{text}");
        assert!(text.contains("<failure message=\"&lt;&quot;&amp;&gt;\">look</failure>"), "{text}");
    }
}
