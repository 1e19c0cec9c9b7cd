//! Who may import whom: reads the `crate::` paths of every source file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Each folder (or file) of `src` and what it may import; `*` is all. Themselves always.
const ALLOWED: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("error", &[]),
    ("cli", &["model"]),
    ("workload", &["model"]),
    ("ladder", &["model"]),
    ("record", &["model"]),
    ("series", &["model"]),
    ("scrape", &["model"]),
    ("gpu", &["model", "scrape"]),
    ("load", &["model", "workload"]),
    ("promql", &["model", "series"]),
    ("rules", &["model", "series", "promql"]),
    ("diagnose", &["model", "series", "promql", "rules"]),
    ("compare", &["model"]),
    ("report", &["model"]),
    ("sim", &["model::time", "model::units"]),
    ("scenario", &["model", "workload", "ladder", "load", "scrape", "gpu", "rules", "compare"]),
    (
        "analyze",
        &["model", "scenario", "series", "promql", "rules", "diagnose", "ladder", "gpu", "workload", "compare"],
    ),
    ("app", &["*"]),
    ("main", &["*"]),
    ("lib", &["*"]),
];

#[test]
fn imports_follow_the_picture() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for file in rust_files(&src) {
        let inside = file.strip_prefix(&src).expect("below src");
        let module = inside.components().next().expect("a file").as_os_str().to_string_lossy().replace(".rs", "");
        let Some(may) = allowed.get(module.as_str()) else {
            wrong.push(format!("{}: no layer is named for it in this test", inside.display()));
            continue;
        };
        seen.insert(module.clone());
        let text = std::fs::read_to_string(&file).expect("a readable source file");
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            for (at, _) in code.match_indices("crate::") {
                for path in paths(&code[at + "crate::".len()..]) {
                    let own = path.split("::").next() == Some(module.as_str());
                    let ok = own || may.iter().any(|m| *m == "*" || path == *m || path.starts_with(&format!("{m}::")));
                    if !ok {
                        wrong.push(format!("{}:{}: {module} may not import {path}", inside.display(), number + 1));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (module, _) in ALLOWED {
        assert!(seen.contains(*module), "{module} has a layer here and no source file");
    }
}

/// An engine's metric names belong to the rule files and the stand-in.
#[test]
fn the_engines_metric_names_stay_in_their_place() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    for file in rust_files(&src) {
        let inside = file.strip_prefix(&src).expect("below src");
        if inside.starts_with("sim") {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("a readable source file");
        // Unit tests below the code speak of real pages, and may.
        let code = text.split("#[cfg(test)]").next().unwrap_or("");
        for (number, line) in code.lines().enumerate() {
            if !line.trim_start().starts_with("//") && line.contains("vllm:") {
                wrong.push(format!("{}:{}: {}", inside.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The paths that stand behind `crate::`; `a::{b, c}` is several.
fn paths(rest: &str) -> Vec<String> {
    let head: String = rest.chars().take_while(|c| c.is_alphanumeric() || "_:".contains(*c)).collect();
    match rest[head.len()..].strip_prefix('{') {
        None => vec![head.trim_end_matches(':').to_owned()],
        Some(inner) => {
            inner.split('}').next().unwrap_or("").split(',').map(|p| format!("{head}{}", p.trim())).collect()
        }
    }
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a readable folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            out.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
    out.sort();
    out
}
