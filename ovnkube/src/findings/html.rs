//! A report as one page that can be attached to a ticket: no scripts, no other files. What is wrong
//! comes first, with the next command; then a picture of all that has a state, nodes and tunnels
//! among them; then every finding.

use std::fmt::Write as _;

use k8s_openapi::jiff::Timestamp;

use super::{Finding, Report, State};

/// Without scripts and other files, whatever is in the page.
const HEAD: &str = "<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, \
initial-scale=1\"><meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
style-src 'unsafe-inline'\">";

/// Colours have a contrast of at least 4.5 to 1 on their background ("WCAG 2.2", 1.4.3).
const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1f2328;--dim:#59636e;--back:#fff;--box:#f3f4f6;\
--line:#d1d9e0;\
--ok:#18722f;--warning:#875a00;--failed:#c0202b;--skipped:#59636e}\
@media(prefers-color-scheme:dark){:root{--text:#e6e8eb;--dim:#a2abb5;--back:#16191d;--box:#23282e;\
--line:#3a424b;--ok:#4ac264;--warning:#e0ac3c;--failed:#ff7b72;--skipped:#a2abb5}}\
*{box-sizing:border-box}\
body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:75em;padding:1em 1.25em 3em;\
color:var(--text);background:var(--back);overflow-wrap:anywhere}\
h1{font-size:1.5em;margin:.3em 0}h2{font-size:1.15em;margin:1.8em 0 .5em}h3{font-size:1em;\
margin:1.2em 0 .4em}p{margin:.3em 0}ul{margin:0;padding:0;list-style:none}\
.dim{color:var(--dim)}.ok{color:var(--ok)}.skipped{color:var(--skipped)}\
.warning,.unknown{color:var(--warning)}.failed{color:var(--failed)}\
.wrong li{border-left:4px solid;padding:.2em .8em;margin:.7em 0}\
.wrong p,.wrong b{color:var(--text)}.wrong .dim{color:var(--dim)}.state{font-weight:700}\
code{font:13px/1.5 ui-monospace,monospace;background:var(--box);padding:.1em .35em;\
border-radius:4px}\
.picture{display:grid;grid-template-columns:repeat(auto-fill,minmax(11em,1fr));gap:.4em}\
.picture li{border:1.5px solid;border-radius:5px;padding:.15em .5em;line-height:1.35;\
max-height:3.1em;overflow:hidden}\
.picture li.tunnel{border-style:dashed}.picture li.more{border-style:dotted;color:var(--dim)}\
.picture li.bad{background:var(--box);font-weight:600}\
table{border-collapse:collapse;width:100%}\
td{border-top:1px solid var(--line);padding:.35em .6em .35em 0;vertical-align:top}\
td:first-child{width:5.5em}td:nth-child(2){width:16em}\
@media(max-width:45em){table,tbody,tr,td{display:block}td{border:0;padding:0 0 .1em}\
td:first-child,td:nth-child(2){width:auto}tr{border-top:1px solid var(--line);padding:.4em 0}}";

/// The most names of findings that are alike; the picture has all of them.
const NAMES: usize = 10;

/// The page. `made`: when.
pub(super) fn page(report: &Report, made: Timestamp) -> String {
    let Report { kind, state, findings, omitted, .. } = report;
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head>{HEAD}<title>{kind}: {word}</title>\
         <style>{STYLE}</style></head><body>\n\
         <h1>{kind}: <span class=\"{class}\">{word}</span></h1>\n\
         <p>{counts}</p>\n<p class=\"dim\">{time}, ovnkube {version}</p>\n",
        word = word(*state),
        class = class(*state),
        counts = counts(report),
        time = made.strftime("%Y-%m-%d %H:%M:%S UTC"),
        version = env!("CARGO_PKG_VERSION"),
    );
    page += &wrong(findings);
    page += "<h2>Picture</h2>\n";
    for (subject, of_subject) in by_subject(findings) {
        let more = omitted.get(subject).copied().unwrap_or_default();
        page += &picture(subject, &of_subject, more);
    }
    page += "<h2>All findings</h2>\n";
    for (subject, of_subject) in by_subject(findings) {
        let _ = writeln!(page, "<h3>{}</h3>\n<table><tbody>", escaped(subject));
        of_subject.iter().for_each(|finding| page += &row(finding));
        page += "</tbody></table>\n";
        if let Some(more) = omitted.get(subject) {
            let _ = writeln!(page, "<p class=\"dim\">{more} more like these are left out</p>");
        }
    }
    page + "</body></html>\n"
}

/// How many findings there are of each state, the worst first.
fn counts(report: &Report) -> String {
    let mut counts = Vec::new();
    for state in [State::Failed, State::Unknown, State::Warning, State::Ok, State::Skipped] {
        let count = report.findings.iter().filter(|finding| finding.state == state).count();
        if count > 0 {
            let (class, word) = (class(state), word(state));
            counts.push(format!("<span class=\"{class}\">{count} {word}</span>"));
        }
    }
    let omitted: usize = report.omitted.values().sum();
    if omitted > 0 {
        counts.push(format!("{omitted} more are left out"));
    }
    counts.join(" · ")
}

/// What does not work or needs attention, the worst first. A cause may make hundreds of nodes fail:
/// what is said alike stands once, so that other causes are seen beside it.
fn wrong(findings: &[Finding]) -> String {
    let mut alike: Vec<Vec<&Finding>> = Vec::new();
    for finding in findings.iter().filter(|finding| finding.state > State::Skipped) {
        let same = |known: &&Finding| {
            (known.subject, known.state, &known.summary)
                == (finding.subject, finding.state, &finding.summary)
        };
        match alike.iter_mut().find(|group| group.first().is_some_and(same)) {
            Some(group) => group.push(finding),
            None => alike.push(vec![finding]),
        }
    }
    if alike.is_empty() {
        return String::new();
    }
    alike.sort_by_key(|group| group.first().map(|finding| std::cmp::Reverse(finding.state)));
    let mut list = String::from("<h2>What is wrong</h2>\n<ul class=\"wrong\">\n");
    for group in alike {
        let [Finding { subject, name, state, summary, next, .. }, others @ ..] = &group[..] else {
            continue;
        };
        let _ = writeln!(
            list,
            "<li class=\"{}\"><span class=\"state\">{} {}</span> <b>{}</b> \
             <span class=\"dim\">{}</span><p>{}</p>{}{}</li>",
            class(*state),
            symbol(*state),
            word(*state),
            escaped(name),
            escaped(subject),
            escaped(summary),
            next_step(next.as_deref()),
            other_names(others)
        );
    }
    list + "</ul>\n"
}

fn other_names(others: &[&Finding]) -> String {
    if others.is_empty() {
        return String::new();
    }
    let names = others.iter().take(NAMES).map(|other| escaped(&other.name)).collect::<Vec<_>>();
    let end = if others.len() > NAMES { ", …" } else { "" };
    let count = others.len();
    format!("<p class=\"dim\">and {count} more like this: {}{end}</p>", names.join(", "))
}

/// The findings in their order, by subject.
fn by_subject(findings: &[Finding]) -> Vec<(&'static str, Vec<&Finding>)> {
    let mut subjects: Vec<(&str, Vec<&Finding>)> = Vec::new();
    for finding in findings {
        match subjects.iter_mut().find(|(subject, _)| *subject == finding.subject) {
            Some((_, of_subject)) => of_subject.push(finding),
            None => subjects.push((finding.subject, vec![finding])),
        }
    }
    subjects
}

/// A box for each name; its worst state counts, and the worst boxes come first. `more`: what is
/// left out.
fn picture(subject: &str, findings: &[&Finding], more: usize) -> String {
    let mut names: Vec<&Finding> = Vec::new();
    for finding in findings {
        match names.iter_mut().find(|known| known.name == finding.name) {
            Some(known) if known.state < finding.state => *known = finding,
            Some(_) => {}
            None => names.push(finding),
        }
    }
    names.sort_by_key(|finding| std::cmp::Reverse(finding.state));
    let mut boxes = format!("<h3>{}</h3>\n<ul class=\"picture\">\n", escaped(subject));
    for Finding { name, state, summary, .. } in names {
        let bad = if *state > State::Skipped { " bad" } else { "" };
        let tunnel = if name.starts_with("tunnel") { " tunnel" } else { "" };
        let _ = writeln!(
            boxes,
            "<li class=\"{}{bad}{tunnel}\" title=\"{name}: {}\">{} {name}</li>",
            class(*state),
            escaped(summary),
            symbol(*state),
            name = escaped(name),
        );
    }
    if more > 0 {
        let _ = writeln!(boxes, "<li class=\"more\">and {more} more</li>");
    }
    boxes + "</ul>\n"
}

fn row(finding: &Finding) -> String {
    let Finding { name, state, summary, next, .. } = finding;
    format!(
        "<tr><td class=\"state {}\">{}</td><td>{}</td><td>{}{}</td></tr>\n",
        class(*state),
        word(*state),
        escaped(name),
        escaped(summary),
        next_step(next.as_deref())
    )
}

fn next_step(next: Option<&str>) -> String {
    next.map_or_else(String::new, |next| {
        format!("<p class=\"dim\">next: <code>{}</code></p>", escaped(next))
    })
}

fn class(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Skipped => "skipped",
        State::Warning => "warning",
        State::Unknown => "unknown",
        State::Failed => "failed",
    }
}

/// The state without colours.
fn symbol(state: State) -> &'static str {
    match state {
        State::Ok => "✓",
        State::Skipped => "–",
        State::Warning => "!",
        State::Unknown => "?",
        State::Failed => "✗",
    }
}

fn word(state: State) -> &'static str {
    match state {
        State::Failed => "failed",
        state => state.word(),
    }
}

/// The text as HTML: no tag, and no attribute, begins or ends in it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
