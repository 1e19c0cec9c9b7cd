//! A rule file as it stands on disk, apart from what we think with.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use crate::model::recording::RuleFile;

use super::error::RuleError;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileWire {
    #[serde(default, deserialize_with = "or_default")]
    groups: Vec<GroupWire>,
}

#[derive(Deserialize)]
struct KubernetesWire {
    spec: FileWire,
}

#[derive(Deserialize)]
struct KindWire {
    kind: Option<String>,
}

/// A group.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupWire {
    pub(super) name: String,
    pub(super) interval: Option<String>,
    #[serde(default, rename = "query_offset")]
    _query_offset: Option<String>,
    #[serde(default, rename = "limit")]
    _limit: Option<i64>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) labels: BTreeMap<String, Text>,
    // The operator of Kubernetes knows this one; one Prometheus has no use for it.
    #[serde(default, rename = "partial_response_strategy")]
    _partial_response_strategy: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) rules: Vec<RuleWire>,
}

/// A rule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleWire {
    pub(super) alert: Option<String>,
    pub(super) record: Option<String>,
    #[serde(default)]
    pub(super) expr: Text,
    #[serde(rename = "for")]
    pub(super) hold: Option<String>,
    pub(super) keep_firing_for: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) labels: BTreeMap<String, Text>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) annotations: BTreeMap<String, Text>,
}

/// A YAML scalar whose text we want: people write `severity: 1` and `expr: 1`. One that is left out is empty.
#[derive(Default)]
pub(super) struct Text(String);

impl Text {
    pub(super) fn into_string(self) -> String {
        self.0
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        struct Words;
        impl Visitor<'_> for Words {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number, or true or false")
            }

            fn visit_str<E: Error>(self, v: &str) -> Result<Text, E> {
                Ok(Text(v.to_owned()))
            }

            fn visit_i64<E: Error>(self, v: i64) -> Result<Text, E> {
                Ok(Text(v.to_string()))
            }

            fn visit_u64<E: Error>(self, v: u64) -> Result<Text, E> {
                Ok(Text(v.to_string()))
            }

            fn visit_f64<E: Error>(self, v: f64) -> Result<Text, E> {
                Ok(Text(v.to_string()))
            }

            fn visit_bool<E: Error>(self, v: bool) -> Result<Text, E> {
                Ok(Text(v.to_string()))
            }

            fn visit_unit<E: Error>(self) -> Result<Text, E> {
                Ok(Text::default())
            }

            fn visit_none<E: Error>(self) -> Result<Text, E> {
                Ok(Text::default())
            }
        }
        deserializer.deserialize_any(Words)
    }
}

/// `labels:` with nothing behind it is no labels.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The groups of a file, plain or wrapped as a Kubernetes `PrometheusRule`.
pub(super) fn read(file: &RuleFile) -> Result<Vec<GroupWire>, RuleError> {
    let wrong = |says: String| RuleError::Yaml { file: file.name.clone(), says };
    let yaml = |e: serde_saphyr::Error| wrong(one_line(&e));
    let kind: KindWire = serde_saphyr::from_str(&file.text).map_err(yaml)?;
    match kind.kind.as_deref() {
        Some("PrometheusRule") => {
            serde_saphyr::from_str::<KubernetesWire>(&file.text).map(|w| w.spec.groups).map_err(yaml)
        }
        Some(other) => Err(wrong(format!("it is a Kubernetes `{other}`, expected a rule file or a PrometheusRule"))),
        None => serde_saphyr::from_str::<FileWire>(&file.text).map(|w| w.groups).map_err(yaml),
    }
}

/// Labels or annotations as texts.
pub(super) fn texts(map: BTreeMap<String, Text>) -> BTreeMap<String, String> {
    map.into_iter().map(|(k, v)| (k, v.into_string())).collect()
}

/// The parser's words on one line, with the place it names, and without what it says to programmers.
fn one_line(e: &serde_saphyr::Error) -> String {
    let words = e.without_snippet().to_string();
    let line = words.lines().next().unwrap_or_default().trim();
    let place = line.find(" at line ").map_or("", |i| &line[i..]);
    if line.starts_with("multiple YAML documents") {
        return format!(
            "it holds several YAML documents, of which Prometheus reads only the first; expected one{place}"
        );
    }
    if line.starts_with("budget breached") {
        return format!("it is too large: at most 250000 YAML nodes are read, counting what aliases repeat{place}");
    }
    line.replace(", set DuplicateKeyPolicy in Options if acceptable", "")
}
