//! Chunks that differ from the one before in their text alone.
//!
//! Nearly every chunk of an answer is one of these: the same JSON around another word. Once one such chunk
//! was parsed, the next is known by comparing bytes: what is equal means the same, and the text between is a JSON string that
//! needs no decoding. Anything else is parsed.

use super::chunk::Chunk;

/// Remembers what stood around the text of a chunk.
#[derive(Debug, Default)]
pub struct Twin {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Twin {
    /// Remembers a chunk, if it does nothing but carry text.
    pub fn learn(&mut self, data: &[u8], chunk: &Chunk<'_>) {
        let choices = &chunk.choices;
        let plain = choices.answer && choices.finish_reason.is_none() && chunk.only_choices();
        let Some(text) = choices.first.parts.content.filter(|_| plain).map(|c| c.get().as_bytes()) else { return };
        // The text lies within the data, quotes included: a chunk is parsed without copying.
        let Some(at) = (text.as_ptr() as usize).checked_sub(data.as_ptr() as usize) else { return };
        let end = at + text.len();
        if text.len() < 2 || text[0] != b'"' || data.get(at..end) != Some(text) {
            return;
        }
        let (head, tail) = (&data[..=at], &data[end - 1..]);
        if self.head != head || self.tail != tail {
            self.head.clear();
            self.head.extend_from_slice(head);
            self.tail.clear();
            self.tail.extend_from_slice(tail);
        }
    }

    /// The text of a chunk that is otherwise the one that was learnt; `None` if it must be parsed.
    pub fn text<'a>(&self, data: &'a [u8]) -> Option<&'a str> {
        if self.head.is_empty() {
            return None;
        }
        let text = data.strip_prefix(self.head.as_slice())?.strip_suffix(self.tail.as_slice())?;
        // What JSON would have to decode, or would not allow, is left to the parser; so is an empty text, which is no output.
        let plain = !text.is_empty() && text.iter().all(|b| *b >= 0x20 && !matches!(b, b'"' | b'\\'));
        std::str::from_utf8(text).ok().filter(|_| plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learnt(data: &str) -> Twin {
        let mut twin = Twin::default();
        twin.learn(data.as_bytes(), &Chunk::parse(data.as_bytes()).unwrap());
        twin
    }

    const A: &str = r#"{"id":"x","choices":[{"index":0,"delta":{"content":" a"},"finish_reason":null}]}"#;

    #[test]
    fn only_the_text_may_differ() {
        let twin = learnt(A);
        for (data, want) in [
            (A.to_owned(), Some(" a")),
            (A.replace(" a", "世界"), Some("世界")),
            (A.replace(" a", ""), None),
            (A.replace(" a", r"\n"), None),
            (A.replace(" a", "\u{1}"), None),
            (A.replace(" a", r#"b","role":""#), None),
            (A.replace("null", r#""stop""#), None),
            (A.replace("\"x\"", "\"y\""), None),
            (A.replace("}]}", "}],\"usage\":null}"), None),
        ] {
            assert_eq!(twin.text(data.as_bytes()), want, "{data}");
        }
        assert_eq!(twin.text(b"{}"), None);
        // A byte that is no UTF-8.
        let mut broken = A.as_bytes().to_vec();
        let at = A.find(" a").unwrap();
        broken[at] = 0xff;
        assert_eq!(twin.text(&broken), None);
    }

    #[test]
    fn what_does_more_than_carry_text_is_not_learnt() {
        for data in [
            A.replace("null", r#""stop""#),
            A.replace("}]}", r#"}],"usage":{"completion_tokens":1}}"#),
            A.replace("}]}", r#"}],"metrics":{"queue_time_ms":1}}"#),
            A.replace("}]}", r#"}],"error":"x"}"#),
            A.replace(r#""content":" a""#, r#""reasoning":" a""#),
            A.replace(r#"" a""#, r#"["a"]"#),
            A.replace(r#"" a""#, r#""""#),
        ] {
            assert_eq!(learnt(&data).text(data.as_bytes()), None, "{data}");
        }
        // A chunk with escapes is parsed itself, and teaches what stands around.
        assert_eq!(learnt(&A.replace(" a", r"\n")).text(A.as_bytes()), Some(" a"));
    }
}
