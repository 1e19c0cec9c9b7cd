//! Data sets: every row is read or its fault is named.

use std::collections::BTreeMap;

use plimsoll::workload::{Calibration, Workload, dataset};
use serde_json::Value;

use crate::{Case, Door, Faults, KEYS, shape};

/// Checks a data set row by row.
pub fn check(case: &Case, file: &str, faults: &mut Faults) {
    let name = &case.name;
    let rows = dataset::read(file, &case.read(file)).unwrap();
    let numbers = |v: &Value| v.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect::<Vec<u64>>();
    for (key, want) in &case.expect() {
        match shape(key).as_str() {
            "lines" => faults.check(name, key, rows.lines, want.as_u64().unwrap()),
            "prompts" => faults.check(name, key, rows.usable.len() as u64, want.as_u64().unwrap()),
            "distinct_prompts" => faults.check(name, key, rows.distinct() as u64, want.as_u64().unwrap()),
            "usable_lines" => {
                faults.check(name, key, rows.usable.iter().map(|r| r.line).collect(), numbers(want));
            }
            "bad_lines" => {
                let got: BTreeMap<String, String> =
                    rows.bad.iter().map(|(line, fault)| (line.to_string(), fault.to_string())).collect();
                let want: BTreeMap<String, String> = want
                    .as_object()
                    .unwrap()
                    .iter()
                    .map(|(line, fault)| (line.clone(), fault.as_str().unwrap().to_owned()))
                    .collect();
                faults.check(name, key, got, want);
            }
            "blank_lines" => faults.check(name, key, rows.blank.clone(), numbers(want)),
            "duplicate_of_line_#" => {
                let of: u64 = key.rsplit('_').next().unwrap().parse().unwrap();
                let got: Vec<u64> = rows.duplicates.iter().filter(|(_, o)| **o == of).map(|(line, _)| *line).collect();
                faults.check(name, key, got, numbers(want));
            }
            "longer_than_max_model_len" => {
                let most = case.spec["max_model_len"].as_u64().unwrap() as u32;
                faults.check(name, key, rows.longer_than(most), numbers(want));
            }
            other => {
                let elsewhere = KEYS.iter().any(|(k, door)| *k == other && matches!(door, Door::Metrics | Door::Prose));
                faults.check(name, &format!("{other} is checked for a data set"), elsewhere, true);
            }
        }
    }
    // Refused as it is, and usable once broken rows are left out: no row is lost in silence.
    let spec = |more: &str| {
        let path = case.folder.join(file);
        let text = format!("kind = \"dataset\"\npath = {:?}\n{more}", path.display().to_string());
        Workload::new(&toml::from_str(&text).unwrap(), 1, "n", Calibration::one_token_words(10))
    };
    faults.check(name, "refused with broken rows", spec("").is_err(), !rows.bad.is_empty());
    let kept = spec("broken_rows = \"skip\"").unwrap();
    let sent: Vec<_> = (0..rows.usable.len() as u64).map(|i| kept.request(i).messages).collect();
    faults.check(name, "what is sent", sent, rows.usable.iter().map(|r| r.messages.clone()).collect());
}
