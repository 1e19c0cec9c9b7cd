//! The rule files in the box.

use crate::model::recording::RuleFile;

/// Name and text of every shipped file.
const FILES: [(&str, &str); 4] = [
    ("builtin:vllm.yml", include_str!("../../scenarios/rules/vllm.yml")),
    ("builtin:vllm.facts.toml", include_str!("../../scenarios/rules/vllm.facts.toml")),
    ("builtin:client.yml", include_str!("../../scenarios/rules/client.yml")),
    ("builtin:gpu.yml", include_str!("../../scenarios/rules/gpu.yml")),
];

/// The shipped file called `name`, such as `builtin:vllm.yml`.
pub fn file(name: &str) -> Option<RuleFile> {
    let (name, text) = FILES.iter().find(|(n, _)| *n == name)?;
    Some(RuleFile { name: (*name).into(), text: (*text).into() })
}

/// The shipped files for an engine: its rules and facts, the client's, and the GPU's if one is read.
/// An engine without files of its own gets the client's and the GPU's alone.
pub fn files(engine: &str, gpu: bool) -> Vec<RuleFile> {
    let names = [format!("builtin:{engine}.yml"), format!("builtin:{engine}.facts.toml"), "builtin:client.yml".into()];
    let gpu = gpu.then(|| "builtin:gpu.yml".to_owned());
    names.into_iter().chain(gpu).filter_map(|n| file(&n)).collect()
}

/// The names of all shipped files.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(n, _)| *n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Limits, RuleSet};

    #[test]
    fn the_shipped_files_load_at_any_scale() {
        for scale in [1.0, 0.1] {
            let set = RuleSet::load(&files("vllm", true), &Limits::default(), scale).unwrap();
            assert!(set.alerts().count() >= 8);
            assert!(set.pairs().count() >= 15);
            for pair in set.pairs() {
                for name in pair.explains.iter().flatten() {
                    assert!(set.find(name).is_some(), "{} explains {name}, which is no alert", pair.name);
                }
            }
        }
    }

    #[test]
    fn an_unknown_engine_gets_the_clients_rules() {
        let names: Vec<String> = files("other", false).into_iter().map(|f| f.name).collect();
        assert_eq!(names, ["builtin:client.yml"]);
    }
}
