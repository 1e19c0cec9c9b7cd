//! Numbers that hide in labels: PromQL cannot turn a label's text into a value.
//!
//! A facts file is TOML beside the rules, so that no engine's name enters the code:
//!
//! ```toml
//! [[fact]]
//! series = "vllm:cache_config_info"
//! label = "num_gpu_blocks"
//! becomes = "plimsoll:kv_blocks"
//! add = -1.0            # block 0 is reserved
//! keep = ["engine"]     # labels that survive, beside job and instance
//! ```

use serde::Deserialize;

use super::error::RuleError;

/// One label whose text is a number, and the series that it becomes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelFact {
    /// Name of the metric that carries the label.
    pub series: String,
    /// The label.
    pub label: String,
    /// Name of the series that the number becomes.
    pub becomes: String,
    /// Added to the number.
    #[serde(default)]
    pub add: f64,
    /// Labels that survive, beside `job` and `instance`.
    #[serde(default)]
    pub keep: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default)]
    fact: Vec<LabelFact>,
}

/// Reads a facts file.
///
/// # Errors
/// With the parser's words, on one line.
pub fn parse(file: &str, text: &str) -> Result<Vec<LabelFact>, RuleError> {
    toml::from_str::<Wire>(text)
        .map(|w| w.fact)
        .map_err(|e| RuleError::Facts { file: file.to_owned(), says: e.message().replace('\n', " ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_file_reads() {
        let facts = parse("vllm.facts.toml", include_str!("../../scenarios/rules/vllm.facts.toml")).unwrap();
        assert!(facts.iter().any(|f| f.becomes == "plimsoll:kv_blocks" && f.add == -1.0));
        assert!(parse("x", "[[fact]]\nsereis = 'a'").is_err());
    }
}
