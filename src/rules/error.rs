//! What can be wrong with a rule file.

/// A rule file that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RuleError {
    /// Not YAML, or not the shape of a rule file.
    #[error("rule file {file} cannot be read: {says}")]
    Yaml {
        /// The file.
        file: String,
        /// The parser's words.
        says: String,
    },
    /// No rule in it, so that nothing could ever fire.
    #[error("rule file {file} holds no rule, expected groups with rules")]
    Empty {
        /// The file.
        file: String,
    },
    /// A rule whose expression does not parse, or uses what is not supported.
    #[error("rule file {file}{}, group {group}, rule {rule}: {says}, in `{expr}`", at_line(*line))]
    Expr {
        /// The file.
        file: Box<str>,
        /// Line on which the expression begins, from 1; `None` if it could not be told.
        line: Option<usize>,
        /// The group.
        group: Box<str>,
        /// The rule.
        rule: Box<str>,
        /// The expression.
        expr: Box<str>,
        /// The parser's words.
        says: Box<str>,
    },
    /// A rule that is wrong in another way.
    #[error("rule file {file}, group {group}, rule `{rule}` {says}")]
    Rule {
        /// The file.
        file: String,
        /// The group.
        group: String,
        /// The rule.
        rule: String,
        /// What is wrong.
        says: String,
    },
    /// Two groups of one name in one file: Prometheus refuses that too.
    #[error("rule file {file} has the group {group} twice, expected names to differ")]
    TwiceGroup {
        /// The file.
        file: String,
        /// The group.
        group: String,
    },
    /// A facts file that cannot be read.
    #[error("facts file {file} cannot be read: {says}")]
    Facts {
        /// The file.
        file: String,
        /// The parser's words.
        says: String,
    },
    /// A time scale outside (0, 1].
    #[error("time_scale is {met}, expected more than 0 and at most 1")]
    Scale {
        /// What was asked for.
        met: f64,
    },
    /// A window that holds too few scrapes.
    #[error(
        "rule {rule} reads a window of {window_s} s at a scrape every {every_s} s, expected at least 4 scrapes a window"
    )]
    Window {
        /// The rule.
        rule: String,
        /// Its shortest window, s.
        window_s: f64,
        /// The spacing of the samples, s.
        every_s: f64,
    },
}

impl RuleError {
    /// What to do about it, if there is something to say beyond the error itself.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            RuleError::Window { .. } => Some("raise time_scale, or shorten the scrape interval"),
            RuleError::Empty { .. } => Some("to judge nothing, say --rules off"),
            RuleError::Expr { .. } => Some("`promtool check rules FILE` shows whether Prometheus takes it"),
            _ => None,
        }
    }
}

fn at_line(line: Option<usize>) -> String {
    line.map_or_else(String::new, |l| format!(":{l}"))
}
