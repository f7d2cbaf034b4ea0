//! The page of `ovnkube status -o html` in a real browser: `make test-page`. Its screenshots are
//! left in `target/page`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Lab, Node,
    central::{NORTHBOUND, SOUTHBOUND},
    executable,
};
use serde_json::{Value, json};

use crate::support::api::Api;

/// Nodes of the API server, most of which nobody sees at one glance.
const NODES: usize = 300;
/// A name without a place to break it, and a message that would be a program.
const LONG: usize = 60;
const HARMFUL: &str = "<script>document.title='run'</script><img src=x onerror=alert(1)>\u{202e}";

/// How the page is looked at.
struct Look {
    name: &'static str,
    width: u32,
    arguments: &'static [&'static str],
}

const LOOKS: [Look; 3] = [
    Look { name: "wide", width: 1280, arguments: &[] },
    // The least width of a window in Chromium, which is that of a telephone in landscape.
    Look { name: "narrow", width: 500, arguments: &[] },
    Look { name: "dark", width: 1280, arguments: &["--blink-settings=preferredColorScheme=0"] },
];

/// Measures the page, and replaces it with what it has found. Contrast is that of "WCAG 2.2", 1.4.3.
const MEASURE: &str = r#"<script>
const shown = [...document.querySelectorAll('body *')].filter(e => e.tagName !== 'SCRIPT');
const text = e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
const rgb = s => s.match(/[\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const back = e => { for (; e; e = e.parentElement) {
    const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c; }
    return [255, 255, 255]; };
const contrast = e => { const [a, b] = [rgb(getComputedStyle(e).color), back(e)].map(light);
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); };
const wrong = document.querySelector('.wrong li');
const found = {
    title: document.title,
    width: innerWidth,
    pageWidth: document.documentElement.scrollWidth,
    outside: shown.filter(e => e.getBoundingClientRect().right > innerWidth + 1).length,
    cut: shown.filter(e => !e.closest('.picture') && getComputedStyle(e).display !== 'inline'
        && e.scrollWidth > e.clientWidth + 1).length,
    contrast: Math.min(...shown.filter(text).map(contrast)),
    background: back(document.body).slice(0, 3),
    scripts: document.querySelectorAll('script').length,
    images: document.querySelectorAll('img').length,
    firstWrong: wrong.className,
    firstWrongAt: wrong.getBoundingClientRect().top,
    pictured: document.querySelectorAll('.picture li').length,
    rows: document.querySelectorAll('td').length,
};
document.documentElement.innerHTML = '<pre>' + JSON.stringify(found) + '</pre>';
</script>"#;

/// Objects that make a long page: nodes that do not report, with names and messages of any length.
fn fill(api: &Api) {
    for number in 0..NODES {
        let name = format!("{}{number}", "n".repeat(LONG));
        let message = format!("{HARMFUL}{}", "m".repeat(1000));
        let ready = json!({"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": message});
        api.put(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name},
            "status": {"conditions": [ready]},
        }));
    }
}

fn page(node: &Node, api: &Api) -> Result<String> {
    let mut command = node.command(executable::under_test(executable::SERVER)?);
    let places = [
        format!("--nb-address={NORTHBOUND}"),
        format!("--sb-address={SOUTHBOUND}"),
        format!("--k8s-apiserver={}", api.url()),
    ];
    let output = command.args(["status", "-o", "html"]).args(places).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{}: {errors}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// Headless, and without a sandbox: it runs as root.
fn chromium(look: &Look, arguments: &[String]) -> Result<String> {
    let profile = std::env::temp_dir().join("chromium");
    let output = Command::new("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--hide-scrollbars", "--no-first-run"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(look.arguments)
        .args(arguments)
        .env("HOME", &profile)
        .output()
        .context("start chromium")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "chromium: {}: {errors}", output.status);
    // What the page's policy has kept from being loaded or run, it would tell.
    ensure!(!errors.contains("Content Security Policy"), "{}: {errors}", look.name);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What the browser has measured.
fn measured(look: &Look, directory: &Path, page: &str) -> Result<Value> {
    let copy = directory.join("measured.html");
    let open = page.replace("default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'");
    ensure!(open != page, "the page has no policy: {page:.400}");
    fs::write(&copy, open.replace("</body>", &format!("{MEASURE}</body>")))?;
    let size = format!("--window-size={},1000", look.width);
    let place = format!("file://{}", copy.display());
    let dom = chromium(look, &[size, "--dump-dom".to_owned(), place])?;
    let json = dom.split_once("<pre>").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (json, _) = json.with_context(|| format!("nothing was measured: {dom:.400}"))?;
    Ok(serde_json::from_str(&json.replace("&lt;", "<").replace("&gt;", ">"))?)
}

fn screenshot(look: &Look, directory: &Path, page: &str) -> Result<PathBuf> {
    let copy = directory.join("page.html");
    fs::write(&copy, page)?;
    let shot = directory.join(format!("{}.png", look.name));
    let size = format!("--window-size={},1600", look.width);
    let place = format!("file://{}", copy.display());
    chromium(look, &[size, format!("--screenshot={}", shot.display()), place])?;
    ensure!(fs::metadata(&shot)?.len() > 10_000, "{} is empty", shot.display());
    Ok(shot)
}

#[test]
fn what_is_wrong_is_on_top_and_everything_fits_and_can_be_read_in_a_browser() {
    Lab::of_nodes(2).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        lab.attached_pod(node)?;
        node.ovn_controller.stop()?;
        let api = Api::start()?;
        fill(&api);
        let page = page(node, &api)?;
        let directory = executable::target_dir()?.join("page");
        fs::create_dir_all(&directory)?;
        for look in &LOOKS {
            let found = measured(look, &directory, &page)?;
            let number = |field: &str| found[field].as_f64().unwrap_or(f64::NAN);
            let is_right = found["title"] == "Status: failed"
                && number("width") == f64::from(look.width)
                && number("pageWidth") <= number("width")
                && number("outside") == 0.0
                && number("cut") == 0.0
                && number("contrast") >= 4.5
                && number("scripts") == 1.0
                && number("images") == 0.0
                && found["firstWrong"] == "failed"
                && number("firstWrongAt") < 300.0
                && number("pictured") > 100.0
                && number("rows") > 100.0;
            ensure!(is_right, "{}: {found:#}", look.name);
            let is_dark = found["background"]
                .as_array()
                .into_iter()
                .flatten()
                .all(|it| it.as_f64().is_some_and(|it| it < 64.0));
            ensure!(is_dark == (look.name == "dark"), "{}: {found:#}", look.name);
            println!("{}: {found}, {}", look.name, screenshot(look, &directory, &page)?.display());
        }
        Ok(())
    });
}
