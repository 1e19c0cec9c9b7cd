//! Prompts of the user's own: ShareGPT JSON, OpenAI `messages` as JSON lines, or CSV.
//!
//! Every row is looked at before the start. A broken row refuses the file, with its line and the reason, unless
//! the scenario says that broken rows are to be skipped; then they are counted and named.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::text::{self, Calibration, mix};
use super::{Lengths, Message, Prompt, Role, WorkloadError, csv};

/// Prompts from a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetSpec {
    /// The file: `.jsonl` (one `{"messages": […]}` or `{"prompt": "…"}` a line), `.json` (ShareGPT, or an array of such
    /// rows), or `.csv` with a column `prompt`.
    pub path: PathBuf,
    /// What is done with rows that cannot be used.
    #[serde(default)]
    pub broken_rows: BrokenRows,
    /// Length of answers where the row gives none, tokens; `None` leaves it to the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<Lengths>,
    /// Whether rows are taken in an order that the seed draws, or in that of the file.
    #[serde(default)]
    pub order: Order,
    /// Whether a line of the run's own is put before each prompt, so that no earlier run has it cached.
    #[serde(default)]
    pub unique: bool,
}

/// What is done with rows that cannot be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BrokenRows {
    /// The file is refused.
    #[default]
    Refuse,
    /// They are left out, counted and named.
    Skip,
}

/// In which order rows are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// As the file has them, again and again.
    #[default]
    File,
    /// Each round anew as the seed shuffles them.
    Shuffled,
}

/// A row that can be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its line in the file, or its number in the array, from 1.
    pub line: u64,
    /// What is sent.
    pub messages: Vec<Message>,
    /// `max_tokens` of the row.
    pub output_tokens: Option<u32>,
}

/// Why a row cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum RowFault {
    /// No JSON.
    #[error("json")]
    Json,
    /// JSON of an unknown shape.
    #[error("shape")]
    Shape,
    /// Nobody asks anything.
    #[error("no user message")]
    NoUserMessage,
    /// The question has no text.
    #[error("empty prompt")]
    EmptyPrompt,
}

/// A file of prompts, as read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Lines of the file, or rows of the array.
    pub lines: u64,
    /// What can be sent, in order.
    pub usable: Vec<Row>,
    /// What cannot, by line.
    pub bad: BTreeMap<u64, RowFault>,
    /// Lines without anything.
    pub blank: Vec<u64>,
    /// Lines that say the same as an earlier one, each with that line.
    pub duplicates: BTreeMap<u64, u64>,
}

/// Reads a file's text; `name` tells its format by its ending.
///
/// # Errors
/// If the file as a whole is none of the formats.
pub fn read(name: &str, text: &str) -> Result<Rows, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut rows = Rows::default();
    if name.ends_with(".csv") {
        read_csv(text, &mut rows)?;
    } else if name.ends_with(".json")
        || text.trim_start().starts_with('[') && text.trim_end().ends_with(']') && !name.ends_with(".jsonl")
    {
        let array: Vec<Value> = serde_json::from_str(text).map_err(|e| format!("no array of JSON objects ({e})"))?;
        for (i, value) in (1..).zip(array) {
            rows.take(i, row(&value));
        }
    } else {
        for (i, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() {
                rows.lines += 1;
                rows.blank.push(i);
                continue;
            }
            rows.take(i, serde_json::from_str(line).map_err(|_| RowFault::Json).and_then(|v| row(&v)));
        }
    }
    let mut first_of: BTreeMap<String, u64> = BTreeMap::new();
    for r in &rows.usable {
        let text = serde_json::to_string(&r.messages).unwrap_or_default();
        let first = *first_of.entry(text).or_insert(r.line);
        if first != r.line {
            rows.duplicates.insert(r.line, first);
        }
    }
    Ok(rows)
}

impl Rows {
    fn take(&mut self, line: u64, row: Result<(Vec<Message>, Option<u32>), RowFault>) {
        self.lines += 1;
        match row {
            Ok((messages, output_tokens)) => self.usable.push(Row { line, messages, output_tokens }),
            Err(fault) => {
                self.bad.insert(line, fault);
            }
        }
    }

    /// How many different prompts there are.
    pub fn distinct(&self) -> usize {
        self.usable.len() - self.duplicates.len()
    }

    /// Rows whose prompt and answer together are surely longer than the model takes, by line. A token is counted as a word
    /// here, which no tokenizer undercuts by much for prose.
    pub fn longer_than(&self, max_model_len: u32) -> Vec<u64> {
        self.usable.iter().filter(|r| r.least_tokens() > u64::from(max_model_len)).map(|r| r.line).collect()
    }

    /// The broken rows in words, at most five of them.
    fn faults(&self) -> String {
        let mut named: Vec<String> =
            self.bad.iter().take(5).map(|(line, fault)| format!("line {line}: {fault}")).collect();
        if self.bad.len() > named.len() {
            named.push(format!("{} more", self.bad.len() - named.len()));
        }
        named.join(", ")
    }
}

impl Row {
    /// A lower bound of the row's tokens: its words, and the answer it asks for.
    pub fn least_tokens(&self) -> u64 {
        let words: usize = self.messages.iter().map(|m| m.content.split_whitespace().count()).sum();
        words as u64 + u64::from(self.output_tokens.unwrap_or(1))
    }
}

/// One row of any of the JSON shapes.
fn row(value: &Value) -> Result<(Vec<Message>, Option<u32>), RowFault> {
    let object = value.as_object().ok_or(RowFault::Shape)?;
    let asked =
        ["max_tokens", "max_completion_tokens", "output_tokens"].into_iter().find_map(|k| object.get(k)?.as_u64());
    let asked = asked.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
    if let Some(prompt) = ["prompt", "text", "question"].into_iter().find_map(|k| object.get(k)) {
        let content = prompt.as_str().ok_or(RowFault::Shape)?;
        return question(vec![Message { role: Role::User, content: content.to_owned() }]).map(|m| (m, asked));
    }
    let (list, role_key, text_key) =
        match (object.get("messages"), object.get("conversations").or_else(|| object.get("conversation"))) {
            (Some(list), _) => (list, "role", "content"),
            (None, Some(list)) => (list, "from", "value"),
            (None, None) => return Err(RowFault::Shape),
        };
    let mut messages = Vec::new();
    for m in list.as_array().ok_or(RowFault::Shape)? {
        let role = match m.get(role_key).and_then(Value::as_str) {
            Some("user" | "human") => Role::User,
            Some("assistant" | "gpt" | "chatgpt" | "bard" | "bing") => Role::Assistant,
            Some("system" | "developer") => Role::System,
            _ => return Err(RowFault::Shape),
        };
        let content = match m.get(text_key) {
            Some(Value::String(s)) => s.clone(),
            Some(Value::Array(parts)) => parts.iter().filter_map(|p| p.get("text").and_then(Value::as_str)).collect(),
            _ => return Err(RowFault::Shape),
        };
        messages.push(Message { role, content });
    }
    question(messages).map(|m| (m, asked))
}

/// The conversation up to its last question: what comes after that is the answer that the row was recorded with. Of a ShareGPT
/// conversation only the first question is sent, as other tools do.
fn question(mut messages: Vec<Message>) -> Result<Vec<Message>, RowFault> {
    let first = messages.iter().position(|m| m.role == Role::User).ok_or(RowFault::NoUserMessage)?;
    let last = messages.iter().rposition(|m| m.role == Role::User).unwrap_or(first);
    messages.truncate(last + 1);
    if messages[last].content.trim().is_empty() {
        return Err(RowFault::EmptyPrompt);
    }
    Ok(messages)
}

fn read_csv(text: &str, rows: &mut Rows) -> Result<(), String> {
    let mut records = csv::records(text);
    let (_, header) = records.next().ok_or("it is empty")?;
    let column = |names: &[&str]| header.iter().position(|h| names.contains(&h.trim().to_ascii_lowercase().as_str()));
    let prompt = column(&["prompt", "text", "question"])
        .ok_or_else(|| format!("its columns are {}, expected one named prompt", header.join(", ")))?;
    let output = column(&["max_tokens", "output_tokens"]);
    for (line, record) in records {
        if record.iter().all(|f| f.trim().is_empty()) {
            rows.lines += 1;
            rows.blank.push(line);
            continue;
        }
        let row = match record.get(prompt) {
            Some(text) if record.len() == header.len() => {
                let asked = output.and_then(|c| record.get(c)).and_then(|n| n.trim().parse().ok());
                question(vec![Message { role: Role::User, content: text.clone() }]).map(|m| (m, asked))
            }
            _ => Err(RowFault::Shape),
        };
        rows.take(line, row);
    }
    Ok(())
}

/// A data set, ready to be sent.
#[derive(Clone, Debug)]
pub(super) struct Dataset {
    rows: Vec<Row>,
    output: Option<Lengths>,
    order: Order,
    unique: bool,
}

impl Dataset {
    pub(super) fn open(spec: &DatasetSpec) -> Result<Dataset, WorkloadError> {
        let name = spec.path.display().to_string();
        let fault = |what: String| WorkloadError::Dataset { path: name.clone(), what };
        let bytes = std::fs::read(&spec.path).map_err(|e| fault(e.to_string()))?;
        let text = String::from_utf8(bytes)
            .map_err(|e| fault(format!("not UTF-8 at byte {}", e.utf8_error().valid_up_to())))?;
        let rows = read(&name, &text).map_err(&fault)?;
        if spec.broken_rows == BrokenRows::Refuse && !rows.bad.is_empty() {
            return Err(fault(format!("{} of {} rows cannot be used: {}", rows.bad.len(), rows.lines, rows.faults())));
        }
        if let Some(wrong) = spec.output_tokens.as_ref().and_then(Lengths::fault) {
            return Err(WorkloadError::Setting(wrong));
        }
        if rows.usable.is_empty() {
            return Err(fault("no row can be used".into()));
        }
        Ok(Dataset { rows: rows.usable, output: spec.output_tokens.clone(), order: spec.order, unique: spec.unique })
    }

    pub(super) fn lines_longer_than(&self, max_model_len: u32) -> Vec<u64> {
        self.rows.iter().filter(|r| r.least_tokens() > u64::from(max_model_len)).map(|r| r.line).collect()
    }

    pub(super) fn request(&self, index: u64, seed: u64, text_seed: u64, calibration: &Calibration) -> Prompt {
        let n = self.rows.len() as u64;
        let row = match self.order {
            Order::File => index % n,
            Order::Shuffled => text::shuffled(index % n, n, mix(seed, index / n)),
        };
        let row = &self.rows[row as usize];
        let mut messages = row.messages.clone();
        if self.unique
            && let Some(first) = messages.first_mut()
        {
            let mut head = text::opening(calibration, 8);
            text::write(&mut head, calibration, 8, text_seed, index);
            first.content = format!("{head}\n{}", first.content);
        }
        let drawn = || self.output.as_ref().map(|l| l.draw(&mut Pcg64Mcg::seed_from_u64(mix(seed, index))));
        let asked_output_tokens = row.output_tokens.or_else(drawn);
        Prompt { index, messages, asked_prompt_tokens: None, asked_output_tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_gives_the_same_questions() {
        let ask =
            |rows: &Rows| rows.usable.iter().map(|r| r.messages.last().unwrap().content.clone()).collect::<Vec<_>>();
        let jsonl = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n{\"prompt\":\"b, c\",\"max_tokens\":5}";
        let sharegpt = r#"[{"id":"1","conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"x"}]},
            {"conversations":[{"from":"human","value":"b, c"},{"from":"gpt","value":"y"}]}]"#;
        let csv = "id,prompt,max_tokens\n1,a,\n2,\"b, c\",5\n";
        for (name, text) in [("x.jsonl", jsonl), ("x.json", sharegpt), ("x.csv", csv)] {
            let rows = read(name, text).unwrap();
            assert_eq!(ask(&rows), ["a", "b, c"], "{name}");
            assert!(rows.bad.is_empty() && rows.usable.iter().all(|r| r.messages.len() == 1), "{name}");
            assert_eq!(rows.usable[1].output_tokens, (name != "x.json").then_some(5), "{name}");
        }
        assert!(read("x.csv", "a,b\n1,2\n").unwrap_err().contains("expected one named prompt"));
    }
}
