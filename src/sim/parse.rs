//! Request bodies: what is asked for, or why it is refused.

use serde_json::{Map, Value};

use super::profile::Profile;
use super::refusal::{Complaint, Refusal};
use super::tokens;

/// Which of the two ways of asking for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Text,
}

/// A request for answers, checked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) kind: Kind,
    /// Token ids of each prompt: one for a chat, one or more for text.
    pub(super) prompts: Vec<Vec<u32>>,
    /// Answers to each prompt.
    pub(super) n: usize,
    pub(super) max_tokens: usize,
    pub(super) min_tokens: usize,
    pub(super) ignore_eos: bool,
    pub(super) greedy: bool,
    pub(super) priority: i64,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) continuous_usage: bool,
    pub(super) include_metrics: bool,
    pub(super) return_token_ids: bool,
    /// The answer follows a grammar.
    pub(super) structured: bool,
    /// Name of the function that must be called; `None` for an answer in words.
    pub(super) function: Option<String>,
}

/// Reads a body.
pub(super) fn body(bytes: &[u8], content_type: Option<&str>) -> Result<Map<String, Value>, Refusal> {
    let json = content_type.is_some_and(|t| {
        let kind = t.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
    });
    if !json {
        return Err(Refusal::invalid(&[Complaint::media_type()]));
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(Refusal::invalid(&[Complaint::wrong_type("", "dictionary", &other)])),
        Err(error) => {
            let before: usize =
                bytes.split_inclusive(|b| *b == b'\n').take(error.line().saturating_sub(1)).map(<[u8]>::len).sum();
            Err(Refusal::invalid(&[Complaint::no_json((before + error.column()).saturating_sub(1))]))
        }
    }
}

/// Checks a request for answers.
pub(super) fn asked(kind: Kind, map: &Map<String, Value>, profile: &Profile) -> Result<Asked, Refusal> {
    let mut fields = Fields { map, complaints: Vec::new() };
    let max_tokens = match kind {
        Kind::Chat => fields.integer("max_completion_tokens").or(fields.integer("max_tokens")),
        Kind::Text => Some(fields.integer("max_tokens").unwrap_or(16)),
    };
    let min_tokens = fields.integer("min_tokens").unwrap_or(0);
    let n = fields.integer("n").unwrap_or(1);
    let priority = fields.integer("priority").unwrap_or(0);
    let temperature = fields.number("temperature").unwrap_or(1.0);
    let ignore_eos = fields.boolean("ignore_eos").unwrap_or(false);
    let stream = fields.boolean("stream").unwrap_or(false);
    let include_metrics = fields.boolean("include_metrics").unwrap_or(false);
    let return_token_ids = fields.boolean("return_token_ids").unwrap_or(false);
    let prompts = match kind {
        Kind::Chat => fields.messages(true).map(|ids| vec![ids]),
        Kind::Text => fields.prompts(),
    };
    if !fields.complaints.is_empty() {
        return Err(Refusal::invalid(&fields.complaints));
    }
    let prompts = prompts.unwrap_or_default();
    if let Some(model) = map.get("model").and_then(Value::as_str)
        && model != profile.api.model
    {
        return Err(Refusal::no_such_model(model));
    }
    let options = map.get("stream_options").filter(|v| !v.is_null());
    if options.is_some() && !stream {
        let message = "Stream options can only be defined when `stream=True`.";
        return Err(Refusal::bad_request(message.into(), Some("stream_options"), None));
    }
    let option = |name: &str| options.and_then(|o| o.get(name)).and_then(Value::as_bool).unwrap_or(false);
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    let max_tokens = limit(max_tokens, min_tokens, longest, profile.engine.max_model_len)?;
    if n < 1 {
        return Err(Refusal::bad_request(format!("n must be at least 1, got {n}."), Some("n"), Some(n)));
    }
    let structured =
        map.get("response_format").is_some_and(|f| f.get("type").and_then(Value::as_str).is_some_and(|t| t != "text"))
            || map.get("structured_outputs").is_some_and(|v| !v.is_null());
    Ok(Asked {
        kind,
        prompts,
        n: n as usize,
        max_tokens,
        min_tokens: min_tokens.max(0) as usize,
        ignore_eos,
        greedy: temperature == 0.0,
        priority,
        stream,
        include_usage: option("include_usage"),
        continuous_usage: option("include_usage") && option("continuous_usage_stats"),
        include_metrics: include_metrics && profile.api.per_request_metrics,
        return_token_ids,
        structured,
        function: function(map),
    })
}

/// The longest answer that is asked for and possible.
fn limit(asked: Option<i64>, least: i64, prompt: usize, most: usize) -> Result<usize, Refusal> {
    if let Some(n) = asked {
        if n < 1 {
            let message = format!("max_tokens must be at least 1, got {n}.");
            return Err(Refusal::bad_request(message, Some("max_tokens"), Some(n)));
        }
        if least > n {
            let message = format!("min_tokens must be less than or equal to max_tokens={n}, got {least}.");
            return Err(Refusal::bad_request(message, None, None));
        }
        if n as usize > most {
            let message = format!(
                "max_tokens={n} cannot be greater than max_model_len={most}. Please request fewer output tokens."
            );
            return Err(Refusal::bad_request(message, Some("max_tokens"), Some(n)));
        }
    }
    let answer = asked.map_or(1, |n| n as usize);
    if prompt + answer > most {
        // The prompt is tokenized only as far as one token beyond what fits, hence "at least".
        let at_least = most - answer + 1;
        let wanted = if asked.is_some() { answer } else { 0 };
        let message = format!(
            "This model's maximum context length is {most} tokens. However, you requested {wanted} output tokens and \
             your prompt contains at least {at_least} input tokens, for a total of at least {} tokens. Please reduce \
             the length of the input prompt or the number of requested output tokens.",
            at_least + wanted
        );
        return Err(Refusal::bad_request(message, Some("input_tokens"), Some(at_least as i64)));
    }
    Ok(asked.map_or(most - prompt, |n| n as usize))
}

/// The function that must be called, if one must.
fn function(map: &Map<String, Value>) -> Option<String> {
    let first = map.get("tools")?.as_array()?.first()?.get("function")?.get("name")?.as_str()?;
    match map.get("tool_choice") {
        Some(Value::String(choice)) if choice == "required" => Some(first.to_owned()),
        Some(Value::Object(choice)) => Some(choice.get("function")?.get("name")?.as_str().unwrap_or(first).to_owned()),
        _ => None,
    }
}

/// Token ids of what `/tokenize` was given.
pub(super) fn to_tokenize(map: &Map<String, Value>) -> Result<Vec<u32>, Refusal> {
    let mut fields = Fields { map, complaints: Vec::new() };
    let ids = if map.contains_key("messages") {
        let open = fields.boolean("add_generation_prompt").unwrap_or(true);
        fields.messages(open)
    } else {
        match map.get("prompt") {
            Some(Value::String(text)) => Some(tokens::encode(text)),
            Some(other) => {
                fields.complaints.push(Complaint::wrong_type("prompt", "string", other));
                None
            }
            None => {
                fields.complaints.push(Complaint::missing("prompt", map.len()));
                None
            }
        }
    };
    ids.ok_or_else(|| Refusal::invalid(&fields.complaints))
}

/// A body with the complaints about it so far.
struct Fields<'a> {
    map: &'a Map<String, Value>,
    complaints: Vec<Complaint>,
}

impl Fields<'_> {
    fn typed<T>(&mut self, name: &str, wanted: &str, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let value = self.map.get(name).filter(|v| !v.is_null())?;
        let read = read(value);
        if read.is_none() {
            self.complaints.push(Complaint::wrong_type(name, wanted, value));
        }
        read
    }

    fn integer(&mut self, name: &str) -> Option<i64> {
        // A whole number in quotes or with a zero fraction passes, as it does in vLLM.
        self.typed(name, "integer", |v| {
            v.as_i64()
                .or_else(|| v.as_f64().filter(|f| f.fract() == 0.0).map(|f| f as i64))
                .or_else(|| v.as_str().and_then(|s| s.trim().parse().ok()))
        })
    }

    fn number(&mut self, name: &str) -> Option<f64> {
        self.typed(name, "number", |v| v.as_f64().or_else(|| v.as_str().and_then(|s| s.trim().parse().ok())))
    }

    fn boolean(&mut self, name: &str) -> Option<bool> {
        self.typed(name, "boolean", Value::as_bool)
    }

    fn messages(&mut self, open: bool) -> Option<Vec<u32>> {
        let Some(value) = self.map.get("messages") else {
            self.complaints.push(Complaint::missing("messages", self.map.len()));
            return None;
        };
        let Some(list) = value.as_array() else {
            self.complaints.push(Complaint::wrong_type("messages", "list", value));
            return None;
        };
        let messages: Vec<(String, String)> = list
            .iter()
            .map(|m| {
                let role = m.get("role").and_then(Value::as_str).unwrap_or("user");
                (role.to_owned(), content(m.get("content")))
            })
            .collect();
        Some(tokens::encode_chat(messages.iter().map(|(r, c)| (r.as_str(), c.as_str())), open))
    }

    fn prompts(&mut self) -> Option<Vec<Vec<u32>>> {
        let ids = |list: &[Value]| -> Option<Vec<u32>> {
            list.iter().map(|v| v.as_u64().and_then(|n| u32::try_from(n).ok())).collect()
        };
        match self.map.get("prompt") {
            None => {
                self.complaints.push(Complaint::missing("prompt", self.map.len()));
                None
            }
            Some(Value::String(text)) => Some(vec![tokens::encode(text)]),
            Some(Value::Array(list)) if list.first().is_some_and(Value::is_u64) => ids(list).map(|p| vec![p]),
            Some(Value::Array(list)) => list
                .iter()
                .map(|v| match v {
                    Value::String(text) => Some(tokens::encode(text)),
                    Value::Array(list) => ids(list),
                    _ => None,
                })
                .collect(),
            Some(other) => {
                self.complaints.push(Complaint::wrong_type("prompt", "string", other));
                None
            }
        }
    }
}

/// Text of a message: a string, or the texts of its parts.
fn content(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|p| p.get("text").and_then(Value::as_str)).collect(),
        _ => String::new(),
    }
}
