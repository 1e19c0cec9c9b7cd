//! Tables of base URLs: joined once, or refused by name.

use plimsoll::load::BaseUrl;
use serde_json::Value;

use crate::{Case, Faults, shape};

/// Checks every row of a table.
pub fn check(case: &Case, file: &str, faults: &mut Faults) {
    let rows: Vec<Value> = serde_json::from_str(&case.read(file)).unwrap();
    let mut doubled = 0;
    for row in &rows {
        let base = row["base_url"].as_str().unwrap();
        let parsed = BaseUrl::parse(base);
        for (column, path) in [("chat_path", "chat"), ("metrics_path", "metrics")] {
            let want = row[column].as_str().unwrap();
            let got = parsed.as_ref().map(|b| match path {
                "chat" => b.api("chat/completions").path().to_owned(),
                _ => b.beside("metrics").path().to_owned(),
            });
            doubled += u64::from(got.as_ref().is_ok_and(|p| p.contains("/v1/v1") || p.contains("//")));
            match (want, got) {
                ("error", Err(e)) => {
                    let named = e.to_string().contains(base.split('?').next().unwrap());
                    faults.check(&case.name, &format!("`{base}` is named in: {e}"), named, true);
                }
                ("error_or_http", Ok(path)) => {
                    let read = BaseUrl::parse(&format!("http://{base}")).unwrap();
                    faults.check(
                        &case.name,
                        base,
                        path.ends_with(read.beside("metrics").path()) || path.contains("/v1/"),
                        true,
                    );
                }
                ("error_or_http", Err(_)) => {}
                (want, got) => faults.check(&case.name, base, got.ok(), Some(want.to_owned()).filter(|w| w != "error")),
            }
        }
    }
    for (key, want) in &case.expect() {
        match shape(key).as_str() {
            "rows" => faults.check(&case.name, key, rows.len() as u64, want.as_u64().unwrap()),
            "v#_v#_requests" => faults.check(&case.name, key, doubled, want.as_u64().unwrap()),
            other => faults.0.push(format!("{}: {other} is not checked for a table", case.name)),
        }
    }
}
