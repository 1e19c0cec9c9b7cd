//! A recording: never a panic, whatever stands behind its header.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

const HEADER: &str = concat!(
    r#"{"header":{"format":"plimsoll.run/1","tool_version":"0","scenario":"x","scenario_toml":"","rule_files":[],"#,
    r#""clock":"simulated","epoch_unix_ms":0,"nonce":"","seed":0,"time_scale":1.0,"target":{"url":"","#,
    r#""metrics_url":null,"model":"","engine":null,"version":null,"max_model_len":null,"tokenize":false,"#,
    r#""continuous_usage":false,"exact_output":false,"per_request_metrics":false},"server_command":null}}"#,
    "\n"
);

fuzz_target!(|body: &[u8]| {
    let path = Path::new("run.jsonl");
    let _ = plimsoll::record::reader::read_bytes(body, path);
    let text = [HEADER.as_bytes(), body].concat();
    let _ = plimsoll::record::reader::read_bytes(&text, path).map_err(|e| e.to_string());
});
