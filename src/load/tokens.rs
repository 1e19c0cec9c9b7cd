//! Learning the server's tokenizer: which words are one token, and what the chat template costs.

use futures_util::StreamExt;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use super::probe::ask;
use super::target::Target;
use crate::model::time::Clock;
use crate::workload::{Calibration, FIRST_WORD, Message, Role, candidates};

/// Fewest words of one token that prompts are made of; below that, words of more tokens are used.
const ENOUGH_WORDS: usize = 24;

/// Words that are tried in one go first: all of them are one token in the vocabularies of large models.
const FIRST_TRY: usize = 128;

/// How many counts are asked for at a time.
const AT_ONCE: usize = 8;

/// Calibrates with `/tokenize` where the server has it, else with the prompt tokens that completions report.
pub(super) async fn calibrate(target: &mut Target, clock: &Clock) {
    if let Some(calibration) = by_tokenizer(target).await {
        target.facts.tokenize = true;
        target.calibration = calibration;
    } else if let Some(calibration) = by_usage(target, clock).await {
        target.calibration = calibration;
    }
}

#[derive(Deserialize)]
struct Counted {
    count: u32,
}

/// Length of a chat prompt in tokens, as the server counts it, template included.
async fn count(target: &Target, messages: &[Message]) -> Option<u32> {
    #[derive(Serialize)]
    struct Ask<'a> {
        model: &'a str,
        messages: &'a [Message],
        add_generation_prompt: bool,
    }
    let ask = Ask { model: &target.shape.model, messages, add_generation_prompt: true };
    let response = target.http.post(target.base.beside("tokenize")).json(&ask).send().await.ok()?;
    let body = response.error_for_status().ok()?.bytes().await.ok()?;
    serde_json::from_slice::<Counted>(&body).ok().map(|c| c.count)
}

/// A user message of [`FIRST_WORD`] and these words.
fn message(words: &[&str]) -> Message {
    let mut content = FIRST_WORD.to_owned();
    for w in words {
        content.push(' ');
        content.push_str(w);
    }
    Message { role: Role::User, content }
}

async fn by_tokenizer(target: &Target) -> Option<Calibration> {
    let candidates = candidates();
    let base = count(target, &[message(&[])]).await?;
    let cost = async |words: &[&str]| count(target, &[message(words)]).await.map(|n| n.saturating_sub(base));

    let first: Vec<&str> = candidates.iter().take(FIRST_TRY).map(|w| &**w).collect();
    let all_single = cost(&first).await? as usize == first.len();
    let costs: Vec<u32> = if all_single {
        vec![1; first.len()]
    } else {
        let each: Vec<Option<u32>> = futures_util::stream::iter(candidates.iter().map(|w| {
            let word = message(&[w]);
            async move { count(target, &[word]).await.map(|n| n.saturating_sub(base)) }
        }))
        .buffered(AT_ONCE)
        .collect()
        .await;
        each.into_iter().collect::<Option<_>>()?
    };
    let of_cost = |n: u32| -> Vec<Box<str>> {
        costs.iter().zip(&candidates).filter(|(c, _)| **c == n).map(|(_, w)| w.clone()).collect()
    };
    let (words, word_tokens, filler) = match of_cost(1) {
        single if single.len() >= ENOUGH_WORDS => (single, 1, None),
        single => {
            let most = (2..=8).max_by_key(|n| (of_cost(*n).len(), u32::MAX - n))?;
            let words = of_cost(most);
            let mut filler = single.into_iter().next();
            if filler.is_none() {
                for short in ["a", "x", "0", ".", "-", "#"] {
                    if cost(&[short]).await == Some(1) {
                        filler = Some(short.into());
                        break;
                    }
                }
            }
            (words, most, filler)
        }
    };
    if words.len() < 2 {
        return None;
    }
    let turn = [message(&[]), Message { role: Role::Assistant, content: FIRST_WORD.into() }, message(&[])];
    let turn_tokens = count(target, &turn).await.map_or(base, |n| n.saturating_sub(base));
    let mut calibration = Calibration {
        words,
        word_tokens: f64::from(word_tokens),
        filler,
        overhead_tokens: base,
        turn_tokens,
        exact: true,
    };
    check(target, base, &mut calibration).await?;
    Some(calibration)
}

/// Counts texts of random words. If their costs do not add up, falls back to their mean.
async fn check(target: &Target, base: u32, calibration: &mut Calibration) -> Option<()> {
    let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(0x706c_696d);
    let (mut words, mut tokens) = (0_u32, 0_u32);
    for n in [7_u32, 60, 210] {
        let text: Vec<&str> =
            (0..n).map(|_| &*calibration.words[rng.random_range(0..calibration.words.len())]).collect();
        let got = count(target, &[message(&text)]).await?.saturating_sub(base);
        calibration.exact &= f64::from(got) == f64::from(n) * calibration.word_tokens;
        (words, tokens) = (words + n, tokens + got);
    }
    if !calibration.exact {
        calibration.word_tokens = f64::from(tokens.max(1)) / f64::from(words);
        calibration.filler = None;
    }
    calibration.exact &= calibration.word_tokens == 1.0 || calibration.filler.is_some();
    Some(())
}

/// Without a tokenizer: two prompts of known words, and what usage says of them.
async fn by_usage(target: &Target, clock: &Clock) -> Option<Calibration> {
    let candidates = candidates();
    let words: Vec<&str> = candidates.iter().take(FIRST_TRY).map(|w| &**w).collect();
    let (none, all) = futures_util::future::join(
        ask(target, message(&[]).content, 1, clock),
        ask(target, message(&words).content, 1, clock),
    )
    .await;
    let counted = [none.usage.prompt_tokens?, all.usage.prompt_tokens?];
    let tokens = counted[1].checked_sub(counted[0]).filter(|n| *n > 0)?;
    let word_tokens = f64::from(tokens) / words.len() as f64;
    Some(Calibration {
        words: words.iter().map(|w| (*w).into()).collect(),
        word_tokens,
        filler: None,
        overhead_tokens: counted[0],
        turn_tokens: counted[0],
        exact: tokens as usize == words.len(),
    })
}
