//! The JUnit file against the schema that CI systems share: which element may stand where, which attributes it
//! must and may have, what they may hold, and that the counts are those of what they count.
//!
//! The schema is that of Jenkins' xUnit plugin and of "JUnit XML format" at testmo.com, as far as the two agree.

use std::collections::BTreeMap;

use plimsoll::model::verdict::{Check, CheckState, Gate, Verdict};
use plimsoll::report::{json, junit};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

#[derive(Debug)]
struct Element {
    name: String,
    attributes: BTreeMap<String, String>,
    children: Vec<Element>,
}

fn element(start: &BytesStart<'_>) -> Element {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let attributes = start.attributes().map(|a| a.unwrap());
    Element {
        name: text(start.name().as_ref()),
        attributes: attributes.map(|a| (text(a.key.as_ref()), text(&a.value))).collect(),
        children: Vec::new(),
    }
}

/// The root of a well-formed document.
fn parse(xml: &str) -> Element {
    let mut reader = Reader::from_str(xml);
    let mut open = vec![Element { name: String::new(), attributes: BTreeMap::new(), children: Vec::new() }];
    loop {
        match reader.read_event().unwrap() {
            Event::Start(start) => open.push(element(&start)),
            Event::Empty(start) => open.last_mut().unwrap().children.push(element(&start)),
            Event::End(_) => {
                let done = open.pop().unwrap();
                open.last_mut().unwrap().children.push(done);
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(open.len(), 1, "an element is not closed");
    let mut document = open.remove(0);
    assert_eq!(document.children.len(), 1, "one root");
    document.children.remove(0)
}

/// Of an element: its required and optional attributes, and its children in their order with how many there may be.
type Rule = (&'static [&'static str], &'static [&'static str], &'static [(&'static str, usize)]);

const MANY: usize = usize::MAX;

fn rule(name: &str) -> Rule {
    match name {
        "testsuites" => {
            (&[], &["name", "time", "tests", "failures", "errors", "skipped", "disabled"], &[("testsuite", MANY)])
        }
        "testsuite" => (
            &["name", "tests"],
            &["failures", "errors", "skipped", "disabled", "time", "timestamp", "hostname", "id", "package"],
            &[("properties", 1), ("testcase", MANY), ("system-out", 1), ("system-err", 1)],
        ),
        "testcase" => (
            &["name"],
            &["classname", "time", "status", "assertions"],
            &[("skipped", 1), ("error", MANY), ("failure", MANY), ("system-out", MANY), ("system-err", MANY)],
        ),
        "skipped" | "error" | "failure" => (&[], &["message", "type"], &[]),
        "system-out" | "system-err" => (&[], &[], &[]),
        other => panic!("<{other}> is not in the schema"),
    }
}

fn conforms(e: &Element) {
    let (required, optional, order) = rule(&e.name);
    for name in required {
        assert!(e.attributes.contains_key(*name), "<{}> lacks {name}", e.name);
    }
    for (name, value) in &e.attributes {
        assert!(required.contains(&name.as_str()) || optional.contains(&name.as_str()), "<{} {name}>", e.name);
        match name.as_str() {
            "tests" | "failures" | "errors" | "skipped" | "disabled" => {
                assert!(value.parse::<u64>().is_ok(), "{value}")
            }
            "time" => assert!(value.parse::<f64>().is_ok_and(|t| t >= 0.0), "{value}"),
            _ => {}
        }
    }
    let mut at = 0;
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for child in &e.children {
        let place = order.iter().position(|(name, _)| *name == child.name);
        let place = place.unwrap_or_else(|| panic!("<{}> may not stand in <{}>", child.name, e.name));
        assert!(place >= at, "<{}> stands too late in <{}>", child.name, e.name);
        at = place;
        let count = seen.entry(order[place].0).or_default();
        *count += 1;
        assert!(*count <= order[place].1, "too many <{}> in <{}>", child.name, e.name);
        conforms(child);
    }
    // Counts are those of the cases below.
    if matches!(e.name.as_str(), "testsuites" | "testsuite") {
        let mut cases = Vec::new();
        collect(e, &mut cases);
        let with = |kind: &str| cases.iter().filter(|c| c.children.iter().any(|x| x.name == kind)).count();
        for (attribute, count) in [
            ("tests", cases.len()),
            ("failures", with("failure")),
            ("errors", with("error")),
            ("skipped", with("skipped")),
        ] {
            if let Some(written) = e.attributes.get(attribute) {
                assert_eq!(written, &count.to_string(), "{attribute} of <{}>", e.name);
            }
        }
    }
}

fn collect<'e>(e: &'e Element, cases: &mut Vec<&'e Element>) {
    for child in &e.children {
        if child.name == "testcase" {
            cases.push(child);
        }
        collect(child, cases);
    }
}

fn written(v: &Verdict) -> String {
    let mut bytes = Vec::new();
    junit::write(v, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn every_report_conforms_to_the_common_schema() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verdicts");
    for name in ["alert", "clean", "inconclusive", "hostile", "empty"] {
        let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
        let mut verdict = json::read(&text).unwrap();
        conforms(&parse(&written(&verdict)));
        let checks = [CheckState::Passed, CheckState::Failed, CheckState::Unresolved].map(|state| Check {
            check: format!("<{state:?}> & \"quoted\""),
            state,
            measured: None,
            says: "]]> \u{1}".into(),
        });
        verdict.gate = Some(Gate { passed: false, checks: checks.into() });
        let root = parse(&written(&verdict));
        conforms(&root);
        let mut cases = Vec::new();
        collect(&root, &mut cases);
        let failed = cases.iter().filter(|c| c.children.iter().any(|x| x.name == "failure")).count();
        // What failed, and what nobody could decide.
        assert_eq!(failed, 2, "{name}");
    }
}

#[test]
#[should_panic(expected = "lacks name")]
fn a_file_without_names_would_be_noticed() {
    conforms(&parse("<testsuites><testsuite tests=\"0\"/></testsuites>"));
}

#[test]
#[should_panic(expected = "tests of <testsuite>")]
fn a_wrong_count_would_be_noticed() {
    conforms(&parse("<testsuites><testsuite name=\"a\" tests=\"2\"><testcase name=\"b\"/></testsuite></testsuites>"));
}
