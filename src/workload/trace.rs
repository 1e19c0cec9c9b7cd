//! Recorded traffic: timestamps and lengths, with made-up texts.
//!
//! | format | told by | fields |
//! |---|---|---|
//! | Mooncake | JSON lines | `timestamp` (ms), `input_length`, `output_length`, `hash_ids`: one for each 512 tokens, equal where prompts share them |
//! | Azure | CSV | `TIMESTAMP`, `ContextTokens`, `GeneratedTokens` |
//! | BurstGPT | CSV | `Timestamp` (s), `Request tokens`, `Response tokens` |

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::text::{self, Calibration};
use super::{Message, Prompt, Role, WorkloadError, csv};

/// Lengths, and in an open loop arrivals, from a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSpec {
    /// The file: `.jsonl` (Mooncake) or `.csv` (Azure, BurstGPT).
    pub path: PathBuf,
    /// Rows that are longer than this, prompt and answer together, are left out; `None` keeps all. Tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
}

/// Tokens of one of Mooncake's blocks.
const BLOCK_TOKENS: u32 = 512;

/// One request of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceRow {
    /// When, s since the first row.
    pub at_s: f64,
    /// Prompt, tokens.
    pub input: u32,
    /// Answer, tokens.
    pub output: u32,
    /// Names of the blocks that the prompt is made of; empty where the trace tells none.
    pub blocks: Vec<u64>,
}

/// Reads a trace's text; `name` tells its format by its ending. Rows come back in order of time.
///
/// # Errors
/// With the line and the reason, if a row cannot be read.
pub fn read(name: &str, text: &str) -> Result<Vec<TraceRow>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut rows = if name.ends_with(".csv") { read_csv(text)? } else { read_mooncake(text)? };
    rows.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let first = rows.first().map_or(0.0, |r| r.at_s);
    for r in &mut rows {
        r.at_s -= first;
    }
    Ok(rows)
}

fn read_mooncake(text: &str) -> Result<Vec<TraceRow>, String> {
    #[derive(Deserialize)]
    struct Wire {
        timestamp: f64,
        input_length: u32,
        output_length: u32,
        #[serde(default)]
        hash_ids: Vec<u64>,
    }
    let lines = (1..).zip(text.lines()).filter(|(_, l)| !l.trim().is_empty());
    lines
        .map(|(n, l)| {
            let wire: Wire = serde_json::from_str(l).map_err(|e| format!("line {n}: {e}"))?;
            let Wire { timestamp, input_length, output_length, hash_ids } = wire;
            Ok(TraceRow { at_s: timestamp / 1e3, input: input_length, output: output_length, blocks: hash_ids })
        })
        .collect()
}

fn read_csv(text: &str) -> Result<Vec<TraceRow>, String> {
    let mut records = csv::records(text);
    let (_, header) = records.next().ok_or("it is empty")?;
    let column = |names: &[&str]| {
        let found = header.iter().position(|h| names.contains(&h.trim().to_ascii_lowercase().as_str()));
        found.ok_or_else(|| format!("its columns are {}, expected one named {}", header.join(", "), names.join(" or ")))
    };
    let at = column(&["timestamp"])?;
    let input = column(&["contexttokens", "request tokens", "input_length"])?;
    let output = column(&["generatedtokens", "response tokens", "output_length"])?;
    let mut rows = Vec::new();
    for (line, record) in records {
        if record.iter().all(|f| f.trim().is_empty()) {
            continue;
        }
        let field = |i: usize| record.get(i).map(|f| f.trim()).unwrap_or_default();
        let tokens = |i: usize| -> Result<u32, String> {
            field(i).parse().map_err(|_| format!("line {line}: `{}` is no number of tokens", field(i)))
        };
        let at_s = seconds(field(at)).ok_or_else(|| format!("line {line}: `{}` is no time", field(at)))?;
        rows.push(TraceRow { at_s, input: tokens(input)?, output: tokens(output)?, blocks: Vec::new() });
    }
    Ok(rows)
}

/// A number of seconds, or a date with its time.
fn seconds(text: &str) -> Option<f64> {
    if let Ok(s) = text.parse::<f64>() {
        return s.is_finite().then_some(s);
    }
    let zoned = text.parse::<jiff::Timestamp>().ok();
    let civil = || jiff::tz::Offset::UTC.to_timestamp(text.parse().ok()?).ok();
    let at = zoned.or_else(civil)?;
    Some(at.as_microsecond() as f64 / 1e6)
}

#[derive(Clone, Debug)]
pub(super) struct Trace {
    rows: Vec<TraceRow>,
}

impl Trace {
    pub(super) fn open(spec: &TraceSpec, calibration: &Calibration) -> Result<Trace, WorkloadError> {
        let name = spec.path.display().to_string();
        let fault = |what: String| WorkloadError::Dataset { path: name.clone(), what };
        let text = std::fs::read_to_string(&spec.path).map_err(|e| fault(e.to_string()))?;
        let mut rows = read(&name, &text).map_err(&fault)?;
        // Answers of no token happen in recorded traffic, where a request failed or was cut.
        rows.retain(|r| r.output > 0 && spec.max_tokens.is_none_or(|most| r.input.saturating_add(r.output) <= most));
        let least = calibration.shortest_prompt();
        for r in &mut rows {
            r.input = r.input.max(least);
        }
        if rows.is_empty() { Err(fault("no row can be used".into())) } else { Ok(Trace { rows }) }
    }

    pub(super) fn longest(&self) -> (Option<u32>, Option<u32>) {
        let longest = self.rows.iter().max_by_key(|r| r.input.saturating_add(r.output));
        (longest.map(|r| r.input), longest.map(|r| r.output))
    }

    /// Times between the arrivals, in units of their mean; empty where the trace has but one row.
    pub(super) fn gaps(&self) -> Vec<f64> {
        let gaps: Vec<f64> = self.rows.windows(2).map(|w| w[1].at_s - w[0].at_s).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len().max(1) as f64;
        if mean > 0.0 { gaps.iter().map(|g| g / mean).collect() } else { Vec::new() }
    }

    pub(super) fn request(&self, index: u64, text_seed: u64, calibration: &Calibration) -> Prompt {
        let n = self.rows.len() as u64;
        let row = &self.rows[(index % n) as usize];
        let mut content = text::opening(calibration, row.input);
        let mut left = row.input.saturating_sub(calibration.overhead_tokens);
        // A further round through the trace shares nothing with the one before.
        let round = index / n;
        for block in &row.blocks {
            let name = text::mix(*block, round) | 1 << 63;
            let tokens = left.min(BLOCK_TOKENS);
            text::write(&mut content, calibration, tokens, text_seed, name);
            left -= tokens;
        }
        text::write(&mut content, calibration, left, text_seed, index);
        Prompt {
            index,
            messages: vec![Message { role: Role::User, content }],
            asked_prompt_tokens: Some(row.input),
            asked_output_tokens: Some(row.output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_formats() {
        let mooncake = "{\"timestamp\": 3000, \"input_length\": 700, \"output_length\": 9, \"hash_ids\": [0, 5]}\n\
                        {\"timestamp\": 1000, \"input_length\": 600, \"output_length\": 8, \"hash_ids\": [0, 4]}\n";
        let azure =
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,600,8\n2023-11-16 18:15:48.5,700,9\n";
        let burst = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,600,8,608,x\n7,ChatGPT,700,9,709,x\n";
        for (name, text) in [("a.jsonl", mooncake), ("b.csv", azure), ("c.csv", burst)] {
            let rows = read(name, text).unwrap();
            let got: Vec<(f64, u32, u32)> = rows.iter().map(|r| (r.at_s, r.input, r.output)).collect();
            assert_eq!(got, [(0.0, 600, 8), (2.0, 700, 9)], "{name}");
        }
        assert!(read("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,1\n").unwrap_err().contains("line 2"));
    }

    #[test]
    fn blocks_are_shared_where_the_trace_shares_them() {
        let row = |blocks: &[u64]| TraceRow { at_s: 0.0, input: 1_100, output: 5, blocks: blocks.to_vec() };
        let trace = Trace { rows: vec![row(&[1, 2]), row(&[1, 3])] };
        let c = Calibration::one_token_words(10);
        let words =
            |i| -> Vec<String> { trace.request(i, 9, &c).messages[0].content.split(' ').map(str::to_owned).collect() };
        let (a, b, again) = (words(0), words(1), words(2));
        assert_eq!(a.len() - 1 + 10, 1_100);
        assert_eq!(a[..513], b[..513]);
        assert_ne!(a[513..520], b[513..520]);
        assert_ne!(a[1..8], again[1..8]);
    }
}
