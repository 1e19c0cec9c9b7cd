//! Samples and scrapes: what a poller read from one page at one time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::time::Offset;

/// A label set with its metric name, sorted by label name; equal sets are equal values.
///
/// The metric name is the label `__name__`, as in Prometheus.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Arc<[(Box<str>, Box<str>)]>);

/// The label that holds a metric's name.
pub const NAME: &str = "__name__";

impl Labels {
    /// Sorts the pairs; of a label given twice the last wins; empty values are dropped, since
    /// Prometheus does not tell them from absent ones.
    pub fn new<N: Into<Box<str>>, V: Into<Box<str>>>(pairs: impl IntoIterator<Item = (N, V)>) -> Labels {
        let mut v: Vec<(Box<str>, Box<str>)> = pairs.into_iter().map(|(n, v)| (n.into(), v.into())).collect();
        v.sort_by(|a, b| a.0.cmp(&b.0));
        v.reverse();
        let mut seen: Option<Box<str>> = None;
        v.retain(|(n, _)| {
            let first = seen.as_ref() != Some(n);
            seen = Some(n.clone());
            first
        });
        v.reverse();
        v.retain(|(_, value)| !value.is_empty());
        Labels(v.into())
    }

    /// Value of label `name`, if it is there.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.binary_search_by(|(n, _)| (**n).cmp(name)).ok().map(|i| &*self.0[i].1)
    }

    /// The metric's name, or `""` where there is none.
    pub fn name(&self) -> &str {
        self.get(NAME).unwrap_or("")
    }

    /// Pairs in order of label name, `__name__` included.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> + '_ {
        self.0.iter().map(|(n, v)| (&**n, &**v))
    }

    /// How many labels, `__name__` included.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no label at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same set without the labels that `drop` names.
    #[must_use]
    pub fn without(&self, drop: impl Fn(&str) -> bool) -> Labels {
        Labels(self.0.iter().filter(|(n, _)| !drop(n)).cloned().collect())
    }

    /// The same set with `name` set to `value` (removed if `value` is empty).
    #[must_use]
    pub fn with(&self, name: &str, value: &str) -> Labels {
        Labels::new(self.iter().filter(|(n, _)| *n != name).chain(std::iter::once((name, value))))
    }
}

impl std::fmt::Display for Labels {
    /// As PromQL writes it: `name{a="b"}`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())?;
        let mut rest = self.iter().filter(|(n, _)| *n != NAME).peekable();
        if rest.peek().is_none() {
            return if self.name().is_empty() { f.write_str("{}") } else { Ok(()) };
        }
        f.write_str("{")?;
        for (i, (n, v)) in rest.enumerate() {
            write!(f, "{}{n}={v:?}", if i > 0 { "," } else { "" })?;
        }
        f.write_str("}")
    }
}

/// Where samples came from: becomes the `job` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// The server's metrics page.
    Server,
    /// The GPU, by whichever way it was read.
    Gpu,
    /// Our own client.
    Client,
}

/// One reading of one page.
#[derive(Clone, Debug, PartialEq)]
pub struct Scrape {
    /// Which page.
    pub source: SourceKind,
    /// Index of the target among those of its kind; 0 where there is one.
    pub target: u32,
    /// When the request was sent: the time its samples carry, as in Prometheus.
    pub sent: Offset,
    /// When the body was in, or the failure known.
    pub received: Offset,
    /// What came.
    pub result: Result<Vec<Sample>, ScrapeFailure>,
}

/// One value of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Name and labels.
    pub labels: Labels,
    /// The value as exposed: may be NaN or infinite.
    pub value: f64,
}

/// Why a scrape gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrapeFailure {
    /// A word for counting: `timeout`, `connect`, `status`, `parse`, `too_large`.
    pub class: String,
    /// What happened, in a line.
    pub detail: String,
}
