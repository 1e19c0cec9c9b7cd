//! The name that was meant: one measure of likeness for every "did you mean".

/// Of `known` the name that `met` is most likely a slip of; `None` if none is near enough to say so.
///
/// Near is a slip of the hand (letters swapped, missing or one too many: a quarter of the longer name at most),
/// or a part of the name. Case does not count.
pub fn nearest<'a>(met: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let met = met.to_lowercase();
    known
        .into_iter()
        .filter_map(|name| {
            let lower = name.to_lowercase();
            let slips = strsim::damerau_levenshtein(&met, &lower);
            let (short, long) =
                (met.chars().count().min(lower.chars().count()), met.chars().count().max(lower.chars().count()));
            let part = short >= 3 && (lower.contains(&met) || met.contains(&lower));
            // Of names equally near, one that was only not finished.
            (part || slips <= (long + 1) / 4).then_some((slips, !lower.starts_with(&met), name))
        })
        .min()
        .map(|(_, _, name)| name)
}

/// The hint for a name that is not known; empty if none is near.
pub fn did_you_mean<'a>(met: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(met, known).map_or_else(String::new, |name| format!("did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_found_and_a_stranger_is_none() {
        let keys = ["concurrency", "request_rate", "hold", "max_hold", "rate", "irate", "rad", "bool"];
        for (met, meant) in [
            ("concurency", Some("concurrency")),
            ("Concurrency", Some("concurrency")),
            ("hodl", Some("hold")),
            ("rat", Some("rate")),
            ("request", Some("request_rate")),
            ("foo", None),
            ("x", None),
            ("", None),
            ("temperature", None),
        ] {
            assert_eq!(nearest(met, keys), meant, "{met}");
        }
        assert_eq!(nearest("llama-3.1-8b", ["meta/Llama-3.1-8B-Instruct"]), Some("meta/Llama-3.1-8B-Instruct"));
        assert_eq!(did_you_mean("quikstart", ["quickstart"]), "did you mean `quickstart`?");
        assert_eq!(did_you_mean("zzz", ["quickstart"]), "");
    }
}
