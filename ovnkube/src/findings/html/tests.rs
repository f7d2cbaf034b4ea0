use super::*;

const TIME: &str = "2026-11-29T06:20:11.5Z";

fn page_of(findings: Vec<Finding>) -> String {
    page(&Report::new("Status", findings), TIME.parse().unwrap())
}

/// The tags of a page, in their order, each with its attributes; `/NAME` where one ends.
fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).map(|rest| rest.split_once('>').unwrap().0).collect()
}

/// The page has no tag and no attribute but those that are written here, each ends where it has to,
/// and nothing in it leads to another file.
fn check(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in tags(page) {
        let name = tag.split(' ').next().unwrap();
        match name.strip_prefix('/') {
            Some(ended) => assert_eq!(open.pop(), Some(ended), "{page}"),
            None if ["!DOCTYPE", "meta"].contains(&name) => {}
            None => open.push(name),
        }
        let known = [
            "!DOCTYPE", "b", "body", "code", "h1", "h2", "h3", "head", "html", "li", "meta", "p",
            "span", "style", "table", "tbody", "td", "title", "tr", "ul",
        ];
        assert!(known.contains(&name.trim_start_matches('/')), "{tag}");
        // `NAME="VALUE"`: no value ends before its tag does.
        let (mut rest, attributes) = (
            tag.split_once(' ').map_or("", |(_, rest)| rest),
            ["charset", "class", "content", "http-equiv", "lang", "name", "title"],
        );
        while name != "!DOCTYPE" && !rest.is_empty() {
            let (attribute, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{tag}"));
            assert!(attributes.contains(&attribute), "{tag}");
            rest = value.split_once('"').unwrap_or_else(|| panic!("{tag}")).1.trim_start();
        }
    }
    assert_eq!(open, [""; 0], "{page}");
    // No attribute above loads anything; nor does the style.
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
}

#[test]
fn names_and_texts_of_users_are_no_tags_and_nothing_comes_from_elsewhere() {
    let hostile = [
        "<script>alert('x')</script>",
        "\"><img src=x onerror=alert(1)>",
        "' onmouseover='alert(1)",
        "</style><link rel=stylesheet href=//evil.example/a.css>",
        "&lt;b&gt; &#60;b&#62; <!-- <a href=\"http://evil.example\">",
        "]]></title><svg/onload=alert(1)>",
    ];
    let mut findings = Vec::new();
    for text in hostile {
        for state in [State::Ok, State::Skipped, State::Warning, State::Unknown, State::Failed] {
            findings.push(Finding::new("nodes", text, state, text).next(text));
            findings.push(Finding::new("services, policies, pods", text, state, text));
        }
    }
    let page = page_of(findings);
    check(&page);
    assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"), "{page}");
    // What a browser undoes is the text again.
    assert!(page.contains("&amp;lt;b&amp;gt; &amp;#60;b"), "{page}");
    // If all of this failed, the browser would still load and run nothing.
    assert!(page.contains("content=\"default-src 'none'; style-src 'unsafe-inline'\""), "{page}");
}

#[test]
fn the_worst_comes_first_with_its_command_and_a_healthy_page_has_no_such_list() {
    let findings = vec![
        Finding::new("databases", "northbound", State::Ok, "standalone"),
        Finding::new("nodes", "n1", State::Warning, "its clock is ahead").next("chronyc tracking"),
        Finding::new("nodes", "n1", State::Failed, "not ready").next("kubectl describe node n1"),
        Finding::new("nodes", "n2", State::Ok, "ready"),
        Finding::new("this machine", "tunnel to 192.0.2.2", State::Unknown, "silent"),
    ];
    let page = page_of(findings.clone());
    check(&page);
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
    assert!(at("<p>not ready</p>") < at("<p>silent</p>"), "{page}");
    assert!(at("<p>silent</p>") < at("<p>its clock is ahead</p>"), "{page}");
    assert!(at("kubectl describe node n1") < at("<h2>Picture</h2>"), "{page}");
    // One box for both findings about a node, with the worse one.
    assert_eq!(
        page.matches("<li class=\"failed bad\" title=\"n1: not ready\">✗ n1</li>").count(),
        1
    );
    assert!(!page.contains("title=\"n1: its clock"), "{page}");
    assert!(page.contains("<li class=\"unknown bad tunnel\" title=\"tunnel to"), "{page}");
    assert!(page.contains("2026-11-29 06:20:11 UTC, ovnkube "), "{page}");
    // What is said of many stands once.
    let mut many: Vec<Finding> = (0..40)
        .map(|node| Finding::new("nodes", &format!("n{node}"), State::Failed, "not ready"))
        .collect();
    many.push(Finding::new("databases", "southbound", State::Failed, "no member leads"));
    let page = page_of(many);
    check(&page);
    let (wrong, _) = page.split_once("<h2>Picture</h2>").unwrap();
    assert_eq!(wrong.matches("not ready").count(), 1, "{wrong}");
    assert!(wrong.contains("and 39 more like this: n1, n2, ") && wrong.contains(", n10, …</p>"));
    assert!(wrong.contains("no member leads"), "{wrong}");
    let ok = findings.into_iter().filter(|finding| finding.state == State::Ok).collect();
    assert!(!page_of(ok).contains("What is wrong"));
}

#[test]
fn what_is_left_out_of_five_hundred_nodes_is_counted() {
    let mut findings: Vec<Finding> = (0..500)
        .map(|node| Finding::new("nodes", &format!("worker-{node}"), State::Ok, "ready"))
        .collect();
    findings.push(Finding::new("nodes", "worker-500", State::Failed, "not ready"));
    let page = page_of(findings);
    check(&page);
    assert!(page.contains("<li class=\"more\">and 400 more</li>"), "{page}");
    assert!(page.contains("400 more like these are left out</p>"), "{page}");
    assert!(page.contains("100 ok</span> · 400 more are left out"), "{page}");
    assert!(page.len() < 100_000, "{}", page.len());
}
