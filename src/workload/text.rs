//! Words whose cost in tokens is known, and texts made of them.
//!
//! Tokenizers cut a text into words before they look for tokens, so that the costs of words which
//! follow a space add up. A prompt is [`FIRST_WORD`], whose cost is counted with the chat
//! template, and then words of known cost until the length is met.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Every message begins with this word: its cost without a space before it is then part of
/// the template's.
pub const FIRST_WORD: &str = "The";

/// Words to calibrate with: short, common in prose and in code, so that most tokenizers have
/// most of them as one token.
pub const CANDIDATES: &str = "the of and to in is that for it as was with be by on not at are this have from or an which one you \
all if return self import class def name value type file data line list key string number time first last next new get set \
add end start use used using no more other than only when then else can will may must should does do has been into out up \
so its any each same such case test result results object error call function method module code path read write open \
close size length index item items group order change check default empty false true none print raise exception \
argument arguments option options output input text word message base current given also but about after before \
between while until over under again most some two both these those there where what how way work part copy top \
left right level point state local global system process user server client version support version pass break \
continue match search find replace split join format count make create remove delete update append parse";

/// What was learnt of a server's tokenizer and chat template.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// Words that each cost [`Calibration::word_tokens`] after a space; at least two.
    pub words: Vec<Box<str>>,
    /// Tokens of one such word; not whole where it is only a mean.
    pub word_tokens: f64,
    /// A word that costs exactly one token after a space, where `words` cost more.
    pub filler: Option<Box<str>>,
    /// Tokens of the chat template around one user message, with [`FIRST_WORD`] as its text.
    pub overhead_tokens: u32,
    /// Tokens that one more answer and one more question add, each with [`FIRST_WORD`] as its text.
    pub turn_tokens: u32,
    /// Whether prompts come out at exactly the length that is asked for.
    pub exact: bool,
}

impl Calibration {
    /// The assumption where nothing could be learnt: every candidate is one token, and the
    /// template takes `overhead_tokens`.
    pub fn one_token_words(overhead_tokens: u32) -> Calibration {
        Calibration {
            words: candidates(),
            word_tokens: 1.0,
            filler: None,
            overhead_tokens,
            turn_tokens: overhead_tokens,
            exact: false,
        }
    }

    /// Shortest prompt that has room for the words which tell it from all others, tokens.
    pub fn shortest_prompt(&self) -> u32 {
        self.overhead_tokens + (self.word_tokens * f64::from(DISTINCT_WORDS)).ceil() as u32
    }

    /// How many words, and how many fillers after them, make up `tokens`.
    fn split(&self, tokens: u32) -> (u64, u64) {
        let tokens = f64::from(tokens);
        match &self.filler {
            Some(_) => {
                let words = (tokens / self.word_tokens).floor();
                (words as u64, (tokens - words * self.word_tokens).round() as u64)
            }
            None => ((tokens / self.word_tokens).round() as u64, 0),
        }
    }
}

/// [`CANDIDATES`] as a list without repeats.
pub fn candidates() -> Vec<Box<str>> {
    let mut words: Vec<Box<str>> = Vec::new();
    for w in CANDIDATES.split_whitespace() {
        if !words.iter().any(|seen| **seen == *w) {
            words.push(w.into());
        }
    }
    words
}

/// Words at the head of a text that spell its index: no two texts of a run can share all of them.
const DISTINCT_WORDS: u32 = 4;

/// The first word, with room for a text of `tokens`.
pub(super) fn opening(calibration: &Calibration, tokens: u32) -> String {
    let words = f64::from(tokens) / calibration.word_tokens;
    let mut text = String::with_capacity((words * 7.0) as usize + 16);
    text.push_str(FIRST_WORD);
    text
}

/// Appends words of `tokens` tokens to `text`, each after a space: first those that spell `index`, then
/// random ones.
pub(super) fn write(text: &mut String, calibration: &Calibration, tokens: u32, text_seed: u64, index: u64) {
    let n = calibration.words.len() as u64;
    let mut rng = Pcg64Mcg::seed_from_u64(mix(text_seed, index));
    let mut push = |w: &str| {
        text.push(' ');
        text.push_str(w);
    };
    let (words, fillers) = calibration.split(tokens);
    let mut left = spelled(index, text_seed, n);
    for i in 0..words {
        let pick = if i < u64::from(DISTINCT_WORDS) {
            let digit = left % n;
            left /= n;
            digit
        } else {
            rng.random_range(0..n)
        };
        push(&calibration.words[pick as usize]);
    }
    for _ in 0..fillers {
        push(calibration.filler.as_deref().unwrap_or_default());
    }
}

/// Maps indices one to one onto the numbers below n^4 (n words), in an order that the seed fixes.
fn spelled(index: u64, text_seed: u64, n: u64) -> u64 {
    let all = u128::from(n).pow(DISTINCT_WORDS);
    // A factor that leaves the remainder 1 modulo n shares no divisor with n^4, so nothing collides.
    let factor = u128::from(mix(text_seed, 1) % 0xffff) * u128::from(n) + 1;
    let shift = u128::from(mix(text_seed, 2));
    let x = (u128::from(index) % all * (factor % all) + shift) % all;
    u64::try_from(x).unwrap_or(u64::MAX)
}

/// Two numbers to one, well stirred (the finalizer of splitmix64).
pub(super) fn mix(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Where `i` of 0..n stands in an order that the key fixes: one to one.
pub(super) fn shuffled(i: u64, n: u64, key: u64) -> u64 {
    fn shares_a_divisor(mut a: u64, mut b: u64) -> bool {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a > 1
    }
    let mut factor = (mix(key, 3) % n.max(1)) | 1;
    while shares_a_divisor(factor, n) {
        factor += 2;
    }
    let x = (u128::from(i) * u128::from(factor) + u128::from(mix(key, 4))) % u128::from(n.max(1));
    u64::try_from(x).unwrap_or(0)
}

/// The seed of texts: of the run's seed and its nonce.
pub(super) fn hash(seed: u64, nonce: &str) -> u64 {
    nonce.bytes().fold(mix(seed, 0x6e6f_6e63), |h, b| mix(h, u64::from(b) + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_is_one_to_one() {
        for n in [2_u64, 3, 10, 64, 150] {
            let all = n.pow(4).min(20_000);
            let seen: std::collections::BTreeSet<u64> = (0..all).map(|i| spelled(i, 99, n)).collect();
            assert_eq!(seen.len() as u64, all, "{n} words");
        }
    }

    #[test]
    fn shuffling_is_one_to_one() {
        for n in [1, 2, 12, 97, 100] {
            let seen: std::collections::BTreeSet<u64> = (0..n).map(|i| shuffled(i, n, 5)).collect();
            assert_eq!(seen, (0..n).collect(), "{n} rows");
        }
    }

    #[test]
    fn words_of_several_tokens_are_filled_up_to_the_token() {
        let c = Calibration {
            words: vec!["abc".into(), "def".into()],
            word_tokens: 3.0,
            filler: Some("x".into()),
            ..Calibration::one_token_words(5)
        };
        let mut text = opening(&c, 100);
        write(&mut text, &c, 29, 1, 1);
        let cost: usize = text.split(' ').skip(1).map(|w| if w == "x" { 1 } else { 3 }).sum();
        assert_eq!(cost, 29);
    }
}
