//! The page: byte for byte, self-contained, and proof against hostile names.

use std::path::Path;

use plimsoll::model::plot::{GapBin, GapHistogram, GpuTraces, PlotData, TtftDot};
use plimsoll::model::verdict::Verdict;
use plimsoll::report::{html, json};

fn file(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verdicts").join(name)
}

fn verdict(name: &str) -> Verdict {
    let text = std::fs::read_to_string(file(&format!("{name}.json"))).expect("the verdict is there");
    json::read(&text).expect("it is a verdict")
}

fn page(v: &Verdict, data: Option<&PlotData>) -> String {
    let mut bytes = Vec::new();
    html::write(v, data, &mut bytes).expect("a Vec takes everything");
    String::from_utf8(bytes).expect("the page is UTF-8")
}

/// Signals that go with a verdict: made up from its steps, with a ripple that is the same on every machine.
fn signals(v: &Verdict) -> PlotData {
    let mut data = PlotData::default();
    let mut gpu = GpuTraces { device: "0".into(), ..GpuTraces::default() };
    let ripple = |n: u32| f64::from(n.wrapping_mul(2_654_435_761) >> 16) / 65_536.0;
    let mut n = 0;
    for s in &v.steps {
        let (server, client) = (s.server.clone().unwrap_or_default(), &s.client);
        let mut t = s.warmup_s[0];
        while t < s.measured_s[1] {
            n += 1;
            let spread = |low: Option<f64>, high: Option<f64>| Some(low? + (high? - low?) * ripple(n));
            let at = |x: Option<f64>| (t, x.map(f64::round));
            data.waiting.push(at(spread(server.waiting.min, server.waiting.max)));
            data.running.push(at(spread(server.running.min, server.running.max)));
            data.kv_cache_usage.push((t, spread(server.kv_cache_usage.min, server.kv_cache_usage.max)));
            let ttft = spread(client.ttft_s.p50.map(|x| x * 0.9), client.ttft_s.p90);
            data.ttft.push(TtftDot { at_s: t, ttft_s: ttft, failed: n % 311 == 0 });
            if let (Some(p50), Some(p99)) = (client.gap_s.p50, client.gap_s.p99) {
                data.gaps.push(GapBin { at_s: t, p50_s: p50, p99_s: p99 * (0.9 + 0.2 * ripple(n)) });
            }
            let heat = (t / v.duration_s).min(1.0);
            gpu.sm_clock_mhz.push((t, Some(1980.0 - 160.0 * heat * heat - 12.0 * ripple(n))));
            gpu.temperature_c.push((t, Some(48.0 + 31.0 * heat + ripple(n))));
            gpu.power_w.push((t, Some(420.0 + 30.0 * s.concurrency + 20.0 * ripple(n))));
            t += 2.0;
        }
        let edges_s: Vec<f64> = (0..36).map(|i| 0.004 * 1.15_f64.powi(i)).collect();
        let p50 = client.gap_s.p50.unwrap_or(0.02);
        let counts = edges_s.iter().map(|e| {
            let off = (e / p50).ln() / 0.14;
            let tail = if *e > p50 { 30.0 * (p50 / e).powi(2) } else { 0.0 };
            (4_000.0 * (-off * off / 2.0).exp() + tail) as u64
        });
        data.gap_histograms.push(GapHistogram { step: s.step, counts: counts.collect(), edges_s });
    }
    gpu.throttled_s = vec![[v.duration_s * 0.72, v.duration_s * 0.8]];
    data.gpus = vec![gpu];
    data
}

fn check(name: &str, text: &str) {
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(file(name), text).expect("the folder can be written to");
    }
    let expected = std::fs::read_to_string(file(name)).unwrap_or_default();
    assert!(expected == text, "{name} differs from what is written now");
}

#[test]
fn the_page_with_all_its_plots_and_with_none_of_the_recording() {
    let v = verdict("alert");
    check("alert.html", &page(&v, Some(&signals(&v))));
    for name in ["clean", "inconclusive", "hostile", "empty"] {
        check(&format!("{name}.html"), &page(&verdict(name), None));
    }
}

#[test]
fn the_page_fetches_nothing_and_runs_nothing() {
    for name in ["alert", "clean", "inconclusive", "hostile", "empty"] {
        let v = verdict(name);
        let text = page(&v, Some(&signals(&v)));
        for (tag, attributes) in tags(&text) {
            assert!(TAGS.contains(&tag.as_str()), "{name}: <{tag}>");
            for attribute in attributes {
                assert!(ATTRIBUTES.contains(&attribute.as_str()), "{name}: <{tag} {attribute}>");
            }
        }
        for bad in ["@import", "url("] {
            let style = text.split("</style>").next().expect("there is a head");
            assert!(!style.contains(bad), "{name}: the style sheet has {bad}");
        }
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{name}: a control character");
        assert!(!text.contains('\u{202e}'), "{name}: text that runs backwards");
    }
}

/// All that the page is made of; none of it can run or fetch anything.
const TAGS: [&str; 46] = [
    "!doctype",
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "main",
    "header",
    "section",
    "figure",
    "figcaption",
    "h1",
    "h2",
    "p",
    "a",
    "span",
    "strong",
    "em",
    "code",
    "div",
    "ul",
    "ol",
    "li",
    "dl",
    "dt",
    "dd",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "svg",
    "text",
    "line",
    "polyline",
    "polygon",
    "rect",
    "circle",
    "path",
    "g",
    "defs",
    "desc",
    "abbr",
    "caption",
];
const ATTRIBUTES: [&str; 47] = [
    "html",
    "lang",
    "charset",
    "name",
    "content",
    "http-equiv",
    "class",
    "id",
    "href",
    "title",
    "tabindex",
    "role",
    "aria-label",
    "aria-labelledby",
    "aria-hidden",
    "scope",
    "rowspan",
    "colspan",
    "viewbox",
    "width",
    "height",
    "x",
    "y",
    "x1",
    "y1",
    "x2",
    "y2",
    "cx",
    "cy",
    "r",
    "d",
    "points",
    "dy",
    "text-anchor",
    "font-family",
    "font-size",
    "fill",
    "stroke",
    "stroke-width",
    "opacity",
    "transform",
    "font-weight",
    "font-style",
    "aria-describedby",
    "lang",
    "dir",
    "rel",
];

/// Every start tag with the names of its attributes, as a browser finds them.
fn tags(text: &str) -> Vec<(String, Vec<String>)> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(i) = rest.find('<') {
        rest = &rest[i + 1..];
        if rest.starts_with('/') {
            continue;
        }
        let end = rest.find([' ', '>', '/']).expect("a tag ends");
        let tag = rest[..end].to_lowercase();
        rest = &rest[end..];
        let mut attributes = Vec::new();
        loop {
            rest = rest.trim_start_matches([' ', '/', '\n']);
            if rest.starts_with('>') {
                break;
            }
            let end = rest.find(['=', ' ', '>']).expect("an attribute ends");
            attributes.push(rest[..end].to_lowercase());
            rest = &rest[end..];
            if let Some(value) = rest.strip_prefix("=\"") {
                rest = &value[value.find('"').expect("a value ends") + 1..];
            }
        }
        // What a style sheet holds is no markup.
        if tag == "style" {
            rest = &rest[rest.find("</style>").expect("it ends")..];
        }
        out.push((tag, attributes));
    }
    out
}
