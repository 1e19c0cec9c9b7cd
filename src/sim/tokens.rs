//! Text to token ids and back: a toy tokenizer that is consistent everywhere.
//!
//! A piece of text is a run of letters with the blank before it, three digits, or one other
//! character. The words that answers are made of have ids of their own, so that an answer that
//! comes back in a conversation has the ids with which it was cached.

use std::fmt::Write;

use super::chance::mix;

/// Beginning of a message, as the chat template writes it.
const IM_START: u32 = 3;
/// End of a message, which ends an answer too.
pub(super) const IM_END: u32 = 4;
/// Ids below this one are special.
const FIRST_WORD: u32 = 5;
const CONSONANTS: &[u8; 16] = b"bdfghjklmnprstvz";
const VOWELS: &[u8; 5] = b"aeiou";
const SYLLABLES: u32 = 80;
/// Words that answers are made of: all pairs of syllables.
const WORDS: u32 = SYLLABLES * SYLLABLES;
/// Ids of everything else begin here.
const FIRST_OTHER: u32 = FIRST_WORD + WORDS;
/// Size of the vocabulary.
const VOCABULARY: u32 = 32_768;
/// Letters that one token holds at most.
const LETTERS: usize = 12;

/// The id of the `index`th word of an answer to the request that `key` stands for.
pub(super) fn answer_token(key: u64, index: u64) -> u32 {
    FIRST_WORD + (mix(key, 0xa5, index) % u64::from(WORDS)) as u32
}

/// Token ids of `text`.
pub(super) fn encode(text: &str) -> Vec<u32> {
    let mut ids = Vec::with_capacity(text.len() / 4 + 1);
    pieces(text, |piece| ids.push(id_of(piece)));
    ids
}

/// Token ids of a conversation as the chat template renders it, with the opening of the answer.
pub(super) fn encode_chat<'a>(messages: impl Iterator<Item = (&'a str, &'a str)>, open: bool) -> Vec<u32> {
    let newline = id_of("\n");
    let mut ids = Vec::new();
    for (role, content) in messages {
        ids.extend([IM_START, id_of(role), newline]);
        pieces(content, |piece| ids.push(id_of(piece)));
        ids.extend([IM_END, newline]);
    }
    if open {
        ids.extend([IM_START, id_of("ass"), id_of("ist"), id_of("ant"), newline]);
    }
    ids
}

/// Text of one token; ids that are not words of an answer have no text that could be known again.
pub(super) fn decode(id: u32) -> String {
    let mut text = String::with_capacity(5);
    decode_into(&mut text, id);
    text
}

/// Appends the text of one token, which has nothing in it that JSON would escape.
pub(super) fn decode_into(text: &mut String, id: u32) {
    if (FIRST_WORD..FIRST_OTHER).contains(&id) {
        let (a, b) = ((id - FIRST_WORD) / SYLLABLES, (id - FIRST_WORD) % SYLLABLES);
        text.push(' ');
        for s in [a, b] {
            text.push(char::from(CONSONANTS[(s / 5) as usize]));
            text.push(char::from(VOWELS[(s % 5) as usize]));
        }
        return;
    }
    text.push_str(match id {
        0 => "<|pad|>",
        1 => "<|bos|>",
        2 => "<|eos|>",
        IM_START => "<|im_start|>",
        IM_END => "<|im_end|>",
        _ => {
            let _ = write!(text, " t{id}");
            return;
        }
    });
}

fn id_of(piece: &str) -> u32 {
    if let Some(index) = word_index(piece.as_bytes()) {
        return FIRST_WORD + index;
    }
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in piece.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    FIRST_OTHER + ((hash ^ (hash >> 29)) % u64::from(VOCABULARY - FIRST_OTHER)) as u32
}

fn word_index(piece: &[u8]) -> Option<u32> {
    let [b' ', c1, v1, c2, v2] = piece else { return None };
    let at = |set: &[u8], byte: &u8| set.iter().position(|b| b == byte).map(|i| i as u32);
    let syllable = |c, v| Some(at(CONSONANTS, c)? * 5 + at(VOWELS, v)?);
    Some(syllable(c1, v1)? * SYLLABLES + syllable(c2, v2)?)
}

fn pieces(text: &str, mut each: impl FnMut(&str)) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        if bytes[at] == b' ' && bytes.get(at + 1).is_some_and(u8::is_ascii_alphabetic) {
            at += 1;
        }
        let limit = |class: fn(&u8) -> bool, from: usize, most: usize| {
            bytes[from..].iter().take(most).take_while(|b| class(b)).count()
        };
        at += match bytes[at] {
            b if b.is_ascii_alphabetic() => limit(u8::is_ascii_alphabetic, at, LETTERS),
            b if b.is_ascii_digit() => limit(u8::is_ascii_digit, at, 3),
            b' ' => limit(|b| *b == b' ', at, 16),
            b if b.is_ascii() => 1,
            _ => text[at..].chars().next().map_or(1, char::len_utf8),
        };
        each(&text[start..at]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_pieces() {
        for (text, want) in [
            ("", 0),
            ("import os and count the files", 6),
            ("one  two", 3),
            ("a-b", 3),
            ("1234567", 3),
            ("extraordinarily", 2),
            ("grün", 3),
            ("x\ny", 3),
        ] {
            assert_eq!(encode(text).len(), want, "{text:?}");
        }
    }

    #[test]
    fn the_template_costs_ten_tokens() {
        let count = |messages: &[(&str, &str)]| encode_chat(messages.iter().copied(), true).len();
        assert_eq!(count(&[("user", "import os and count the files")]), 16);
        assert_eq!(count(&[("system", "be brief"), ("user", "hi")]), 18);
    }

    #[test]
    fn no_token_has_a_text_that_json_would_escape() {
        for id in 0..VOCABULARY {
            assert!(decode(id).bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'"' && b != b'\\'), "{id}");
        }
    }

    #[test]
    fn an_answer_comes_back_with_its_ids() {
        let ids: Vec<u32> = (0..500).map(|i| answer_token(9, i)).collect();
        let text: String = ids.iter().map(|id| decode(*id)).collect();
        assert_eq!(encode(&text), ids);
        assert_ne!(answer_token(9, 1), answer_token(10, 1));
    }
}
