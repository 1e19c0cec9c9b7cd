//! What never reaches the disk: keys, authorization headers, credentials in addresses.
//!
//! Two nets, both here: the secrets that the run knows are cut out wherever they stand, and
//! what merely looks like a secret (`Authorization: …`, `api_key = "…"`, `--api-key …`,
//! `user:password@`, `?token=…`) is cut out as well.

use crate::model::recording::{Event, Header};
use crate::model::request::Outcome;

/// What stands in the place of a secret.
pub const REDACTED: &str = "[redacted]";

/// A known secret shorter than this is not searched for: it would cut up ordinary text.
const SHORTEST_SECRET: usize = 4;

/// Words whose value is a secret. Compared without case, `-` and `_` alike.
const SECRET_WORDS: [&str; 14] = [
    "api_key",
    "apikey",
    "access_key",
    "access_token",
    "auth_token",
    "hf_token",
    "token",
    "authorization",
    "proxy_authorization",
    "x_api_key",
    "password",
    "passwd",
    "secret",
    "signature",
];

/// Cuts secrets out of text.
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: Vec<String>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} secrets)", self.secrets.len())
    }
}

impl Redactor {
    /// Knows the secrets of this run: keys and the values of secret headers.
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Redactor {
        let mut secrets: Vec<String> = secrets.into_iter().filter(|s| s.len() >= SHORTEST_SECRET).collect();
        // The longest first, so that one secret inside another leaves no remainder.
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup();
        Redactor { secrets }
    }

    /// The text without secrets.
    pub fn text(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for secret in &self.secrets {
            if out.contains(secret.as_str()) {
                out = out.replace(secret.as_str(), REDACTED);
            }
        }
        let out = credentials(&out);
        let out = bearer(&out);
        named_values(&out)
    }

    /// A command line without secrets: `--api-key X` loses its `X`, `HF_TOKEN=x` its `x`.
    pub fn argv(&self, argv: &[String]) -> Vec<String> {
        let mut out = Vec::with_capacity(argv.len());
        let mut secret_follows = false;
        for word in argv {
            out.push(if secret_follows && !word.starts_with("--") { REDACTED.into() } else { self.text(word) });
            secret_follows =
                word.starts_with('-') && !word.contains('=') && is_secret_word(word.trim_start_matches('-'));
        }
        out
    }

    /// Cuts secrets out of everything in a header that a user or a server wrote.
    pub fn header(&self, header: &mut Header) {
        header.scenario_toml = self.text(&header.scenario_toml);
        header.target.url = self.text(&header.target.url);
        if let Some(url) = &mut header.target.metrics_url {
            *url = self.text(url);
        }
        if let Some(argv) = &mut header.server_command {
            *argv = self.argv(argv);
        }
        for file in &mut header.rule_files {
            file.name = self.text(&file.name);
        }
    }

    /// Cuts secrets out of the words in an event.
    pub fn event(&self, event: &mut Event) {
        let words = match event {
            Event::Note(note) => &mut note.says,
            Event::Scrape(scrape) => match &mut scrape.result {
                Err(failure) => &mut failure.detail,
                Ok(_) => return,
            },
            Event::Request(request) => match &mut request.outcome {
                Outcome::Failed { detail, .. } => detail,
                _ => return,
            },
            _ => return,
        };
        let clean = self.text(words);
        if clean != *words {
            *words = clean;
        }
    }
}

/// The secrets that an address carries: its user info, whole and in parts, and the values of its query. A value that is
/// neither named as a secret nor as long as one stays: it may be a word that stands elsewhere too.
pub fn in_address(url: &str) -> Vec<String> {
    let mut out = Vec::new();
    let Some((_, rest)) = url.split_once("://") else { return out };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.split(['/', '#']).next().unwrap_or("");
    if let Some((user_info, _)) = authority.rsplit_once('@') {
        out.extend([user_info].into_iter().chain(user_info.splitn(2, ':')).map(str::to_owned));
    }
    for pair in query.split('#').next().unwrap_or("").split('&') {
        if let Some((name, value)) = pair.split_once('=')
            && (is_secret_word(name) || SECRET_PARAMETERS.contains(&name) || value.len() >= LONG_PARAMETER)
        {
            out.push(value.to_owned());
        }
    }
    out
}

/// Names of a query's parameters that hold secrets; too common as words of a text to be in [`SECRET_WORDS`].
const SECRET_PARAMETERS: [&str; 6] = ["key", "sig", "auth", "code", "pwd", "credential"];
/// Values of a query as long as this are taken for secrets, whatever they are called.
const LONG_PARAMETER: usize = 12;

/// Whether a name (of a variable, a flag, a header) is one that secrets go by.
pub fn is_secret_name(name: &str) -> bool {
    is_secret_word(name.trim_start_matches('-'))
}

/// `scheme://user:password@host` loses what stands before the `@`.
fn credentials(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(n) = rest.find("://") {
        let (head, tail) = rest.split_at(n + 3);
        out.push_str(head);
        let end = tail.find(|c: char| c.is_whitespace() || "/?#\"'`<>".contains(c)).unwrap_or(tail.len());
        match tail[..end].rfind('@') {
            Some(at) => {
                out.push_str(REDACTED);
                rest = &tail[at..];
            }
            None => rest = tail,
        }
    }
    out.push_str(rest);
    out
}

/// `Bearer abc` and `Basic abc` lose their `abc`.
fn bearer(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        let found = ["bearer ", "basic "]
            .iter()
            .filter_map(|word| find_ignoring_case(rest, word).map(|n| n + word.len()))
            .min();
        let Some(n) = found else { break };
        let (head, tail) = rest.split_at(n);
        out.push_str(head);
        let end = tail.find(|c: char| c.is_whitespace() || "\"'`,;".contains(c)).unwrap_or(tail.len());
        // Shorter than any key: prose such as "basic auth".
        out.push_str(if end >= 8 { REDACTED } else { &tail[..end] });
        rest = &tail[end..];
    }
    out.push_str(rest);
    out
}

/// `api_key = "x"`, `"token": "x"`, `?token=x&`, `--api-key=x`: each loses its `x`.
fn named_values(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(n) = rest.find(['=', ':']) {
        let (head, tail) = rest.split_at(n);
        out.push_str(head);
        out.push_str(&tail[..1]);
        let name = head.trim_end_matches([' ', '"', '\'', '\\']);
        let begin = name
            .rfind(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')))
            .map_or(0, |n| n + name[n..].chars().next().map_or(1, char::len_utf8));
        let value = &tail[1..];
        if is_secret_word(&name[begin..]) {
            let (before, inner, end) = value_extent(value);
            if inner > 0 {
                out.push_str(&value[..before]);
                out.push_str(REDACTED);
            } else {
                out.push_str(&value[..end]);
            }
            rest = &value[end..];
        } else {
            rest = value;
        }
    }
    out.push_str(rest);
    out
}

/// Of a value: where it begins behind blanks and quote, its length, and where it ends before
/// the closing quote.
fn value_extent(value: &str) -> (usize, usize, usize) {
    let before = value.len() - value.trim_start_matches([' ', '\\']).len();
    let (begin, end) = match value[before..].chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let begin = before + 1;
            let end = value[begin..].find([quote, '\n', '\\']).map_or(value.len(), |n| begin + n);
            (begin, end)
        }
        _ => {
            let end = value[before..]
                .find(|c: char| c.is_whitespace() || "&,;\"'`)]}#".contains(c))
                .map_or(value.len(), |n| before + n);
            (before, end)
        }
    };
    // What already is redacted, a number (`token: 5`), or nothing at all stays.
    let inner = &value[begin..end];
    let harmless = inner.is_empty() || inner.starts_with("[redacted") || inner.parse::<f64>().is_ok();
    (begin, if harmless { 0 } else { inner.len() }, end)
}

fn is_secret_word(word: &str) -> bool {
    let word = word.to_ascii_lowercase().replace('-', "_");
    let word = word.trim_matches('_');
    SECRET_WORDS.contains(&word)
        || ["_api_key", "_token", "_secret", "_password", "_access_key"].iter().any(|end| word.ends_with(end))
}

fn find_ignoring_case(text: &str, word: &str) -> Option<usize> {
    text.as_bytes().windows(word.len()).position(|w| w.eq_ignore_ascii_case(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_goes() {
        let none = Redactor::default();
        for (text, clean) in [
            ("http://user:pa@ss@host:1/x", "http://[redacted]@host:1/x"),
            ("https://h/metrics?token=abc&x=1", "https://h/metrics?token=[redacted]&x=1"),
            ("Authorization: Bearer sk-12345678", "Authorization: [redacted] [redacted]"),
            ("'authorization': 'Basic dXNlcjpwYXNz'", "'authorization': '[redacted]'"),
            ("api_key = \"sk-1\"\nmodel = \"m\"", "api_key = \"[redacted]\"\nmodel = \"m\""),
            ("{\"token\": \"abc\", \"n\": 1}", "{\"token\": \"[redacted]\", \"n\": 1}"),
            ("{\\\"token\\\": \\\"abc\\\"}", "{\\\"token\\\": \\\"[redacted]\\\"}"),
            ("--api-key=sk-1 --port=80", "--api-key=[redacted] --port=80"),
            ("HF_TOKEN=hf_x vllm", "HF_TOKEN=[redacted] vllm"),
            ("X-Api-Key: k1", "X-Api-Key: [redacted]"),
            // and what only sounds like one stays
            ("basic auth is off", "basic auth is off"),
            ("tokens = 5, token: 7", "tokens = 5, token: 7"),
            ("api_key_env = \"MY_KEY\"", "api_key_env = \"MY_KEY\""),
            ("max_tokens: 64", "max_tokens: 64"),
            ("http://host:8000/v1", "http://host:8000/v1"),
            ("https://a@", "https://[redacted]@"),
            ("ütoken=ü1", "ütoken=[redacted]"),
        ] {
            assert_eq!(none.text(text), clean, "{text}");
        }
    }

    #[test]
    fn an_address_tells_its_secrets() {
        for (url, secrets) in [
            ("http://u:p@h:1/x?token=abc&match=up", vec!["u:p", "u", "p", "abc"]),
            ("http://h/x?key=k1&format=text#f", vec!["k1"]),
            ("http://h/x?session=0123456789ab", vec!["0123456789ab"]),
            ("http://h:8000", vec![]),
            ("h:8000", vec![]),
        ] {
            assert_eq!(in_address(url), secrets, "{url}");
        }
    }

    #[test]
    fn known_secrets_go_wherever_they_stand() {
        let redactor = Redactor::new(["hush-1".into(), "hush-1-longer".into(), "ab".into()]);
        assert_eq!(redactor.text("a hush-1-longer b hush-1 ab"), "a [redacted] b [redacted] ab");
        assert!(!format!("{redactor:?}").contains("hush"));
    }

    #[test]
    fn command_lines_keep_their_shape() {
        let argv = ["vllm", "serve", "m", "--api-key", "k1", "--port", "80", "--hf-token=x", "--token", "--x"];
        let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
        assert_eq!(
            Redactor::default().argv(&argv),
            ["vllm", "serve", "m", "--api-key", REDACTED, "--port", "80", "--hf-token=[redacted]", "--token", "--x"]
        );
    }

    #[test]
    fn redacting_twice_changes_nothing_more() {
        let none = Redactor::default();
        for text in ["Authorization: Bearer sk-12345678", "a?token=x&b", "http://u:p@h", "password = 'x y'"] {
            let once = none.text(text);
            assert_eq!(none.text(&once), once);
        }
    }
}
