//! `plimsoll rules`: the rules as they judge, ready for Prometheus.

use std::collections::BTreeMap;

use crate::cli::RulesArgs;
use crate::error::{Exit, Refusal};
use crate::rules::{builtin, print};
use crate::scenario::Scenario;

use super::prepare;

/// Prints the rules with the scenario's limits filled in.
pub fn rules(args: &RulesArgs) -> anyhow::Result<Exit> {
    let mut scenario = match &args.scenario {
        Some(path) => Scenario::read(path).map_err(Refusal::from)?,
        None => Scenario::default(),
    };
    if let Some(text) = &args.slo {
        scenario.slo.set(text).map_err(|says| Refusal::usage(format!("--slo: {says}"), ""))?;
    }
    let own = format!("builtin:{}.yml", args.engine);
    if builtin::file(&own).is_none() {
        let known: Vec<&str> =
            builtin::names().filter_map(|n| n.strip_prefix("builtin:")?.strip_suffix(".yml")).collect();
        let says =
            format!("--engine: no rules are shipped for `{}`, expected one of {}", args.engine, known.join(", "));
        return Err(Refusal::usage(says, "").into());
    }
    let set = prepare::load(&builtin::files(&args.engine, true), &scenario)?;
    super::answer(|out| Ok(out.write_all(print::yaml(&set, &BTreeMap::new()).as_bytes())?))
}
