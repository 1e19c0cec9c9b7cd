//! One `chat.completion.chunk`, read for the fields that matter and nothing else.
//!
//! Texts are left as raw JSON: whether a delta carries output is seen without decoding it, so
//! that the usual chunk costs no allocation. Fields of an unexpected type are taken for absent:
//! servers add and change fields, and one odd field must not cost a request.

use std::borrow::Cow;

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::value::RawValue;

use crate::model::request::{ServerTimings, Usage};

/// What one event's data says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Chunk<'a> {
    /// The answer's choices, folded into one.
    #[serde(borrow)]
    pub choices: Choices<'a>,
    /// Running or final token counts.
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    /// The server's own timings of this request.
    #[serde(borrow)]
    metrics: Option<&'a RawValue>,
    /// Any of these, without choices, is somebody's dialect of an error.
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    detail: Option<&'a RawValue>,
    #[serde(borrow)]
    error_code: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    x_groq: Option<&'a RawValue>,
}

/// The `choices` array.
#[derive(Debug, Default)]
pub struct Choices<'a> {
    /// Whether the key is there and holds an array.
    pub present: bool,
    /// The first choice.
    pub first: Choice<'a>,
    /// Whether any choice carries output: content, reasoning, a refusal, or a tool call's name or arguments.
    pub output: bool,
    /// Whether any choice carries visible answer text.
    pub answer: bool,
    /// `finish_reason` of the first choice that has one.
    pub finish_reason: Option<Cow<'a, str>>,
    /// Raw error of a choice.
    error: Option<&'a RawValue>,
    /// Raw usage that sits in a choice.
    usage: Option<&'a RawValue>,
}

/// One choice.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Choice<'a> {
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    finish_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    /// The delta, once read.
    #[serde(skip)]
    pub parts: Delta<'a>,
}

/// What a delta carries, as raw JSON.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Delta<'a> {
    /// Visible text.
    #[serde(borrow)]
    pub content: Option<&'a RawValue>,
    /// Thinking, under the older name.
    #[serde(borrow)]
    pub reasoning_content: Option<&'a RawValue>,
    /// Thinking, under the newer name.
    #[serde(borrow)]
    pub reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
    #[serde(borrow)]
    function_call: Option<&'a RawValue>,
}

impl<'a> Chunk<'a> {
    /// Reads one event's data.
    ///
    /// # Errors
    /// If it is no JSON object.
    pub fn parse(data: &'a [u8]) -> serde_json::Result<Chunk<'a>> {
        serde_json::from_slice(data)
    }

    /// Whether nothing but its choices says anything: no usage, timings or error anywhere.
    pub fn only_choices(&self) -> bool {
        [self.usage, self.metrics, self.error, self.x_groq, self.choices.error, self.choices.usage]
            .into_iter()
            .flatten()
            .all(|raw| !says_something(raw))
    }

    /// The error that it carries in place of output, in a line.
    pub fn error(&self) -> Option<String> {
        if let Some(e) = self.error.or(self.choices.error).filter(|e| says_something(e)) {
            return Some(sentence(e));
        }
        if self.choices.present {
            return None;
        }
        let is = |raw: Option<&RawValue>| raw.is_some_and(says_something);
        let error_object = self.object.is_some_and(|o| o.get() == "\"error\"");
        let code = self.error_code.filter(|c| says_something(c) && c.get() != "0");
        let words = [self.message, self.detail, code.and(self.text)].into_iter().flatten().find(|w| says_something(w));
        match (words, error_object || code.is_some()) {
            (Some(w), _) => Some(sentence(w)),
            (None, true) => Some("an error object without a message".into()),
            (None, false) => is(self.error).then(String::new),
        }
    }

    /// Token counts, wherever they stand.
    pub fn usage(&self) -> Option<Usage> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Nested<'n> {
            #[serde(borrow)]
            usage: Option<&'n RawValue>,
        }
        let nested = self.x_groq.and_then(|x| serde_json::from_str::<Nested<'_>>(x.get()).ok()).and_then(|x| x.usage);
        let raw = self.usage.filter(|u| says_something(u)).or(self.choices.usage).or(nested)?;
        if !raw.get().starts_with('{') {
            return None;
        }
        let wire: UsageWire = serde_json::from_str(raw.get()).ok()?;
        Some(Usage {
            prompt_tokens: wire.prompt_tokens.0,
            completion_tokens: wire.completion_tokens.0,
            cached_tokens: wire.prompt_tokens_details.and_then(|d| d.cached_tokens.0),
        })
    }

    /// The server's own timings.
    pub fn timings(&self) -> Option<ServerTimings> {
        let wire: TimingsWire = serde_json::from_str(self.metrics?.get()).ok()?;
        let seconds = |ms: Option<f64>| ms.filter(|ms| ms.is_finite()).map(|ms| ms / 1e3);
        let timings = ServerTimings {
            queue_s: seconds(wire.queue_time_ms),
            ttft_s: seconds(wire.time_to_first_token_ms),
            mean_itl_s: seconds(wire.mean_itl_ms),
        };
        (timings != ServerTimings::default()).then_some(timings)
    }

    /// Whether this is a whole answer and no piece of one.
    pub fn is_whole(&self) -> bool {
        self.choices.first.message.is_some_and(says_something)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Choices<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Choices<'a>, D::Error> {
        struct Fold<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Fold<'a> {
            type Value = Choices<'a>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an array of choices")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Choices<'a>, A::Error> {
                let mut all = Choices { present: true, ..Choices::default() };
                let mut first = true;
                while let Some(mut choice) = seq.next_element::<Choice<'a>>()? {
                    let delta = choice.delta.filter(|d| says_something(d));
                    choice.parts = delta.and_then(|d| serde_json::from_str(d.get()).ok()).unwrap_or_default();
                    choice.parts.content = choice.parts.content.or(choice.text);
                    all.answer |= carries(choice.parts.content);
                    all.output |= choice.parts.is_output();
                    all.error = all.error.or(choice.error);
                    all.usage = all.usage.or(choice.usage.filter(|u| says_something(u)));
                    if all.finish_reason.is_none() {
                        all.finish_reason = choice.finish_reason.and_then(text);
                    }
                    if std::mem::take(&mut first) {
                        all.first = choice;
                    }
                }
                Ok(all)
            }
            // Null, or something that no dialect means as choices.
            fn visit_unit<E: de::Error>(self) -> Result<Choices<'a>, E> {
                Ok(Choices::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Choices<'a>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Choices::default())
            }
            fn visit_str<E: de::Error>(self, _: &str) -> Result<Choices<'a>, E> {
                Ok(Choices::default())
            }
        }
        d.deserialize_any(Fold(std::marker::PhantomData))
    }
}

impl Delta<'_> {
    fn is_output(&self) -> bool {
        carries(self.content)
            || carries(self.reasoning_content)
            || carries(self.reasoning)
            || carries(self.refusal)
            || self.tool_calls.is_some_and(|t| calls(t.get()))
            || self.function_call.is_some_and(|f| calls(&format!("[{{\"function\":{}}}]", f.get())))
    }
}

/// Whether a raw text holds any.
fn carries(raw: Option<&RawValue>) -> bool {
    raw.is_some_and(|r| !matches!(r.get(), "\"\"" | "null" | "[]" | "{}" | "false"))
}

/// Whether a list of tool calls has a name or arguments in it.
fn calls(list: &str) -> bool {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Call<'n> {
        #[serde(borrow)]
        function: Option<Function<'n>>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Function<'n> {
        #[serde(borrow)]
        name: Option<&'n RawValue>,
        #[serde(borrow)]
        arguments: Option<&'n RawValue>,
    }
    serde_json::from_str::<Vec<Call<'_>>>(list)
        .is_ok_and(|l| l.iter().filter_map(|c| c.function.as_ref()).any(|f| carries(f.name) || carries(f.arguments)))
}

/// Whether a raw value is more than nothing.
fn says_something(raw: &RawValue) -> bool {
    !matches!(raw.get(), "null" | "{}" | "[]" | "\"\"" | "false")
}

/// A raw text, decoded; `None` if it is empty or no text.
pub fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inner.is_empty() {
        return None;
    }
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(raw.get()).ok().map(Cow::Owned)
}

/// The words of an error, however it is nested: its message if it has one, else its JSON.
pub fn sentence(raw: &RawValue) -> String {
    fn words(v: &serde_json::Value) -> Option<String> {
        match v {
            serde_json::Value::String(s) => Some(s.clone()),
            serde_json::Value::Object(o) => {
                ["message", "error", "detail", "msg", "text"].into_iter().find_map(|k| o.get(k).and_then(words))
            }
            serde_json::Value::Array(a) => a.iter().find_map(words),
            _ => None,
        }
    }
    let value = serde_json::from_str(raw.get()).unwrap_or(serde_json::Value::Null);
    line(&words(&value).unwrap_or_else(|| raw.get().to_owned()))
}

/// Longest text of a failure that is kept, characters.
const LINE_CHARS: usize = 300;

/// The text in one line, cut to a length that a report can show.
pub fn line(text: &str) -> String {
    let mut out: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((cut, _)) = out.char_indices().nth(LINE_CHARS) {
        out.truncate(cut);
        out.push('…');
    }
    out
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UsageWire {
    prompt_tokens: Count,
    completion_tokens: Count,
    prompt_tokens_details: Option<Details>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    cached_tokens: Count,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TimingsWire {
    queue_time_ms: Option<f64>,
    time_to_first_token_ms: Option<f64>,
    mean_itl_ms: Option<f64>,
}

/// A count of tokens; anything that is none is unknown.
#[derive(Clone, Copy, Default)]
struct Count(Option<u32>);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Count, D::Error> {
        struct AnyCount;
        impl<'de> Visitor<'de> for AnyCount {
            type Value = Count;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a count")
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Count, E> {
                Ok(Count(u32::try_from(n).ok()))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Count, E> {
                Ok(Count(u32::try_from(n).ok()))
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<Count, E> {
                Ok(Count((n >= 0.0 && n <= f64::from(u32::MAX) && n.fract() == 0.0).then_some(n as u32)))
            }
            fn visit_unit<E: de::Error>(self) -> Result<Count, E> {
                Ok(Count(None))
            }
            fn visit_str<E: de::Error>(self, _: &str) -> Result<Count, E> {
                Ok(Count(None))
            }
            fn visit_bool<E: de::Error>(self, _: bool) -> Result<Count, E> {
                Ok(Count(None))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Count, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Count(None))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Count, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Count(None))
            }
        }
        d.deserialize_any(AnyCount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(data: &str) -> Chunk<'_> {
        Chunk::parse(data.as_bytes()).unwrap()
    }

    #[test]
    fn output_is_content_reasoning_or_a_tool_call_and_nothing_else() {
        for (delta, output, answer) in [
            (r#"{"role":"assistant","content":""}"#, false, false),
            (r#"{"content":"x"}"#, true, true),
            (r#"{"content":null,"reasoning_content":"x"}"#, true, false),
            (r#"{"reasoning":"x"}"#, true, false),
            (r#"{"refusal":"no"}"#, true, false),
            (r#"{"content":null,"tool_calls":[]}"#, false, false),
            (r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}"#, true, false),
            (r#"{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}"#, true, false),
            (r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":null,"arguments":""}}]}"#, false, false),
            (r#"{"function_call":{"name":"f"}}"#, true, false),
            ("null", false, false),
            (r#"{"content":{}}"#, false, false),
        ] {
            let data = format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#);
            let c = chunk(&data);
            assert_eq!((c.choices.output, c.choices.answer), (output, answer), "{delta}");
        }
        assert!(chunk(r#"{"choices":[{"text":"x"}]}"#).choices.output, "completions");
        assert!(chunk(r#"{"choices":[{"delta":{}},{"delta":{"content":"x"}}]}"#).choices.output, "second choice");
    }

    #[test]
    fn usage_is_found_in_odd_places_and_odd_shapes_are_unknown() {
        for (data, want) in [
            (r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#, Some(Some(2))),
            (r#"{"choices":[{"usage":{"completion_tokens":4}}]}"#, Some(Some(4))),
            (r#"{"x_groq":{"usage":{"completion_tokens":5}}}"#, Some(Some(5))),
            (r#"{"usage":null}"#, None),
            (r#"{"usage":{"completion_tokens":"many"}}"#, Some(None)),
            (r#"{"usage":{"completion_tokens":7.0}}"#, Some(Some(7))),
        ] {
            assert_eq!(chunk(data).usage().map(|u| u.completion_tokens), want, "{data}");
        }
    }

    #[test]
    fn errors_of_every_dialect() {
        for (data, want) in [
            (r#"{"error":{"message":"engine stopped","code":500}}"#, Some("engine stopped")),
            (r#"{"error":"Unauthorized"}"#, Some("Unauthorized")),
            (r#"{"object":"error","message":"too long","type":"BadRequestError"}"#, Some("too long")),
            (r#"{"detail":"Not Found"}"#, Some("Not Found")),
            (r#"{"detail":[{"loc":["body"],"msg":"bad"}]}"#, Some("bad")),
            (r#"{"message":"oops","code":13}"#, Some("oops")),
            (r#"{"text":"overloaded","error_code":50002}"#, Some("overloaded")),
            (r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Some("Overloaded")),
            (
                r#"{"error_type":"generation","error":"Request failed during generation"}"#,
                Some("Request failed during generation"),
            ),
            (r#"{"choices":[{"error":{"code":502,"message":"upstream"},"finish_reason":"error"}]}"#, Some("upstream")),
            (r#"{"choices":[{"delta":{"content":"a"}}],"error":null}"#, None),
            (r#"{"choices":[{"delta":{"content":"a"}}],"message":"hi"}"#, None),
            (r#"{"choices":[]}"#, None),
            (r#"{"id":"x","usage":{"completion_tokens":1}}"#, None),
        ] {
            assert_eq!(chunk(data).error().as_deref(), want, "{data}");
        }
    }

    #[test]
    fn odd_fields_do_not_cost_the_chunk() {
        for data in [
            r#"{"choices":null}"#,
            r#"{"choices":"none"}"#,
            r#"{"choices":[{"delta":"x","finish_reason":7}]}"#,
            r#"{"usage":[1],"metrics":"off"}"#,
            "{}",
        ] {
            let c = chunk(data);
            assert!(!c.choices.output && c.usage().is_none() && c.timings().is_none(), "{data}");
        }
        assert!(Chunk::parse(b"nonsense").is_err());
    }
}
