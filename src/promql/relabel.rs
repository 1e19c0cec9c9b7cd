//! `label_replace` and `label_join`.

use super::eval::text;
use super::expr::Expr;
use super::parse::anchored;
use super::vector::unique;
use super::{Element, EvalError};

/// `label_replace(v, dst, replacement, src, regex)`
pub(super) fn replace(mut v: Vec<Element>, args: &[Expr]) -> Result<Vec<Element>, EvalError> {
    let [_, dst, replacement, src, pattern] = args else { unreachable!("the parser checked the arguments") };
    let (dst, replacement, src, pattern) = (text(dst), text(replacement), text(src), text(pattern));
    let regex = anchored(pattern).map_err(|_| EvalError::Parameter {
        place: "label_replace",
        value: pattern.into(),
        expected: "a regular expression",
    })?;
    named("label_replace", dst)?;
    for e in &mut v {
        let value = e.labels.get(src).unwrap_or("");
        if let Some(found) = regex.captures(value) {
            let mut new = String::new();
            found.expand(replacement, &mut new);
            e.labels = e.labels.with(dst, &new);
        }
    }
    unique(&v, "label_replace")?;
    Ok(v)
}

/// `label_join(v, dst, separator, src, …)`
pub(super) fn join(mut v: Vec<Element>, args: &[Expr]) -> Result<Vec<Element>, EvalError> {
    let [_, dst, separator, sources @ ..] = args else { unreachable!("the parser checked the arguments") };
    let (dst, separator) = (text(dst), text(separator));
    named("label_join", dst)?;
    for e in &mut v {
        let parts: Vec<&str> = sources.iter().map(|s| e.labels.get(text(s)).unwrap_or("")).collect();
        e.labels = e.labels.with(dst, &parts.join(separator));
    }
    unique(&v, "label_join")?;
    Ok(v)
}

/// Refuses a target label that has no name.
fn named(place: &'static str, dst: &str) -> Result<(), EvalError> {
    if dst.is_empty() {
        return Err(EvalError::Parameter { place, value: dst.into(), expected: "the name of a label" });
    }
    Ok(())
}
