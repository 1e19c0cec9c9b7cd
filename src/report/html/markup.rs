//! HTML that is escaped by how it is made: text and attributes go in as text, and only
//! drawings of ours as markup.

use crate::report::text::plain;

/// A page in the making.
#[derive(Debug, Default)]
pub(super) struct Html(String);

/// Attributes of an element: names are ours, values may be anyone's.
pub(super) type Attributes<'a> = &'a [(&'static str, &'a str)];

impl Html {
    /// The page so far.
    pub(super) fn into_string(self) -> String {
        self.0
    }

    /// Markup that is ours to the last character: the head of the page, a drawing.
    pub(super) fn ours(&mut self, markup: &str) {
        self.0 += markup;
    }

    /// Text.
    pub(super) fn text(&mut self, text: &str) {
        self.0 += &escape(text);
    }

    /// An element with what `inner` puts into it.
    pub(super) fn within(&mut self, tag: &'static str, attributes: Attributes<'_>, inner: impl FnOnce(&mut Html)) {
        self.open(tag, attributes);
        inner(self);
        self.0 += &format!("</{tag}>");
        if !INLINE.contains(&tag) {
            self.0.push('\n');
        }
    }

    /// An element that holds text alone.
    pub(super) fn leaf(&mut self, tag: &'static str, attributes: Attributes<'_>, text: &str) {
        self.within(tag, attributes, |h| h.text(text));
    }

    fn open(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.0 += &format!("<{tag}");
        for (name, value) in attributes {
            self.0 += &format!(" {name}=\"{}\"", escape(value));
        }
        self.0.push('>');
    }
}

/// Elements that stand in a line of text, where a line break would be a space.
const INLINE: [&str; 6] = ["a", "code", "span", "strong", "em", "abbr"];

/// Text for an element or a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_cannot_become_markup() {
        let mut h = Html::default();
        h.leaf("p", &[("title", "\"><script>")], "a<b>&'\u{202e}");
        assert_eq!(h.into_string(), "<p title=\"&quot;&gt;&lt;script&gt;\">a&lt;b&gt;&amp;&#39;\\u{202e}</p>\n");
    }
}
