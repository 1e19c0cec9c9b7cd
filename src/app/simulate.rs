//! `plimsoll sim`: the stand-in vLLM in real time, for other people's tools and tests.

use std::io::Write;

use anyhow::Context;

use crate::cli::SimArgs;
use crate::error::{Exit, Refusal};
use crate::model::time::{Clock, ClockKind};
use crate::scenario::SimSpec;
use crate::sim::{self, Profile};

/// Serves a profile until Ctrl-C.
pub fn simulate(args: &SimArgs) -> anyhow::Result<Exit> {
    if args.profile == "list" {
        let lines: Vec<String> = Profile::names()
            .into_iter()
            .map(|name| format!("{name:<16} {}\n", Profile::summary(name).unwrap_or_default()))
            .collect();
        return super::answer(|out| Ok(out.write_all(lines.concat().as_bytes())?));
    }
    let profile = profile(&SimSpec { profile: args.profile.clone(), with: toml::Table::new() })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async {
        let listener = sim::bind(args.listen).map_err(|error| {
            Refusal::usage(format!("cannot listen on {}: {error}", args.listen), "choose another address with --listen")
        })?;
        let address = listener.local_addr().context("reading our own address")?;
        let _ = writeln!(
            std::io::stderr(),
            "serving profile {} as model {} on http://{address} (Ctrl-C ends it)",
            args.profile,
            profile.api.model
        );
        let stop = async {
            let _ = tokio::signal::ctrl_c().await;
        };
        sim::serve_on(Clock::start(ClockKind::Real), listener, profile, args.seed, stop)
            .await
            .context("serving the stand-in")?;
        Ok(Exit::Done)
    })
}

/// A named profile with the scenario's changes laid over it.
///
/// # Errors
/// If there is no such profile, or a change does not fit it.
pub fn profile(spec: &SimSpec) -> Result<Profile, Refusal> {
    let named = Profile::named(&spec.profile).ok_or_else(|| {
        let names = Profile::names();
        let near = names
            .iter()
            .map(|n| (strsim::jaro_winkler(n, &spec.profile), n))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .filter(|(likeness, _)| *likeness > 0.7);
        Refusal::usage(
            format!("no stand-in profile is called `{}`, expected one of {}", spec.profile, names.join(", ")),
            near.map_or_else(String::new, |(_, n)| format!("did you mean `{n}`?")),
        )
    })?;
    let bad = |says: String| Refusal::usage(format!("[sim.with]: {says}"), "");
    let mut table = toml::Table::try_from(&named).map_err(|e| bad(e.to_string()))?;
    lay_over(&mut table, &spec.with);
    let profile: Profile = table.try_into().map_err(|e: toml::de::Error| bad(e.message().to_owned()))?;
    profile.validate().map_err(bad)?;
    Ok(profile)
}

fn lay_over(below: &mut toml::Table, above: &toml::Table) {
    for (key, value) in above {
        match (below.get_mut(key), value) {
            (Some(toml::Value::Table(b)), toml::Value::Table(a)) => lay_over(b, a),
            _ => {
                below.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_reach_the_profile_and_typos_are_refused() {
        let with = |text: &str| SimSpec { profile: "quickstart".into(), with: text.parse().unwrap() };
        let changed = profile(&with("[engine]\nmax_num_seqs = 3")).unwrap();
        assert_eq!(changed.engine.max_num_seqs, 3);
        assert_eq!(changed.cost, Profile::named("quickstart").unwrap().cost);
        assert!(profile(&with("[engine]\nmax_num_sequences = 3")).unwrap_err().says.contains("max_num_sequences"));
        assert!(profile(&with("[engine]\nmax_num_seqs = 0")).is_err());
        let typo = profile(&SimSpec { profile: "quikstart".into(), with: toml::Table::new() }).unwrap_err();
        assert_eq!(typo.hint, "did you mean `quickstart`?");
    }
}
