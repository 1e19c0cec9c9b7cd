//! File and flags become one scenario; secrets stay outside of it.

use crate::cli::RunArgs;
use crate::error::Refusal;
use crate::gpu::Source;
use crate::ladder::Levels;
use crate::scenario::{GateSpec, Param, Scenario, ScenarioError, SimSpec};
use crate::sim::Profile;
use crate::workload::{FixedSpec, Lengths, WorkloadSpec};

use super::simulate;

/// A scenario with its flags applied.
pub struct Resolved {
    /// What is written into the recording.
    pub scenario: Scenario,
    /// A key from the command line; never written anywhere.
    pub api_key: Option<String>,
}

impl From<ScenarioError> for Refusal {
    fn from(error: ScenarioError) -> Refusal {
        Refusal::usage(error.to_string(), error.hint())
    }
}

/// Reads the file, if one is given, and lets the flags override it.
///
/// # Errors
/// Names the file and line, or the flag, with what was met and what is allowed.
pub fn resolve(args: &RunArgs) -> Result<Resolved, Refusal> {
    let mut s = match &args.scenario {
        Some(path) => Scenario::read(path)?,
        None => Scenario::default(),
    };
    let wrong = |flag: &str, says: String| Refusal::usage(format!("{flag}: {says}"), "");

    if let Some(url) = &args.url {
        s.target.url.clone_from(url);
        s.sim = None;
    }
    if let Some(profile) = &args.sim {
        s.sim = Some(SimSpec { profile: profile.clone(), seed: None, with: toml::Table::new() });
        s.target.url = crate::load::TargetSpec::default().url;
    }
    if args.model.is_some() {
        s.target.model.clone_from(&args.model);
    }
    for header in &args.headers {
        let (name, value) =
            header.split_once(':').ok_or_else(|| wrong("--header", "expected `Name: value`, met no colon".into()))?;
        s.target.headers.insert(name.trim().to_owned(), value.trim().to_owned());
    }
    if args.metrics_url.is_some() {
        s.target.metrics_url.clone_from(&args.metrics_url);
    }
    if let Some(text) = &args.extra_body {
        let body = serde_json::from_str(text)
            .map_err(|e| wrong("--extra-body", format!("expected a JSON object, met {e}")))?;
        s.target.extra_body = body;
    }
    for pair in &args.set {
        let server = s
            .server
            .as_mut()
            .ok_or_else(|| wrong("--set", "the scenario has no [server] whose parameters could be set".into()))?;
        let (name, value) =
            pair.split_once('=').ok_or_else(|| wrong("--set", format!("expected NAME=VALUE, met `{pair}`")))?;
        let known: Vec<&str> = server.params.keys().map(String::as_str).collect();
        let param = match server.params.get(name) {
            None => {
                return Err(wrong("--set", format!("`{name}` is no parameter, expected one of {}", known.join(", "))));
            }
            Some(Param::Many(_)) => Param::Many(value.split_whitespace().map(str::to_owned).collect()),
            Some(_) => Param::One(value.to_owned()),
        };
        server.params.insert(name.to_owned(), param);
    }
    if args.ca_file.is_some() {
        s.target.ca_file.clone_from(&args.ca_file);
    }
    s.target.insecure |= args.insecure;
    s.target.new_connection |= args.new_connection;
    if args.launch && s.sim.is_some() {
        let says = "--launch: the scenario has [sim], the stand-in, so no server is started";
        return Err(Refusal::usage(says, "leave out --launch, or remove [sim] from the scenario"));
    }
    if args.launch && s.server.is_none() {
        return Err(Refusal::usage(
            "--launch: the scenario has no [server] to start",
            "use scenarios/small-pool.toml, or add [server] with its command",
        ));
    }

    if let Some(levels) = &args.concurrency {
        s.ladder.concurrency = Some(Levels::Text(levels.clone()));
        s.ladder.request_rate = None;
    }
    if let Some(levels) = &args.request_rate {
        s.ladder.request_rate = Some(Levels::Text(levels.clone()));
        s.ladder.concurrency = None;
    }
    if args.hold.is_some() {
        s.ladder.hold = args.hold;
    }
    if args.max_hold.is_some() {
        s.ladder.max_hold = args.max_hold;
    }
    if let Some(warmup) = args.warmup {
        s.ladder.warmup = warmup;
    }
    if args.max_duration.is_some() {
        s.ladder.max_duration = args.max_duration;
    }
    if let Some(repeats) = args.repeats {
        s.ladder.repeats = repeats;
    }
    fit_to_stand_in(&mut s)?;
    set_lengths(&mut s.workload, args.input_len, args.output_len)?;
    if let Some(seed) = args.seed {
        s.seed = seed;
    }
    if args.nonce.is_some() {
        s.nonce.clone_from(&args.nonce);
    }

    match &args.rules[..] {
        [] => {}
        [off] if off == "off" => s.rules.enabled = false,
        files => s.rules.files = files.iter().map(Into::into).collect(),
    }
    if let Some(text) = &args.slo {
        s.slo.set(text).map_err(|says| wrong("--slo", says))?;
    }
    if let Some(scale) = args.time_scale {
        s.time_scale = scale;
    }
    if let Some(text) = &args.gpu {
        s.gpu.source = text.parse::<Source>().map_err(|says| wrong("--gpu", says.to_string()))?;
    }
    if let Some(streams) = args.gate {
        s.gate.get_or_insert_with(GateSpec::default).min_clean_concurrency = Some(f64::from(streams));
    }
    s.check().map_err(|says| Refusal::usage(says, ""))?;
    Ok(Resolved { scenario: s, api_key: args.api_key.clone() })
}

/// A stand-in whose model is too small for the built-in chat scenario, or which shows something only under
/// other lengths, is sent those that it is made for, as long as nobody chose any.
fn fit_to_stand_in(s: &mut Scenario) -> Result<(), Refusal> {
    let Some(spec) = &s.sim else { return Ok(()) };
    simulate::profile(spec)?;
    if let Some((input_tokens, output_tokens)) = Profile::lengths(&spec.profile)
        && s.workload == WorkloadSpec::default()
    {
        s.workload = WorkloadSpec::Fixed(FixedSpec { input_tokens, output_tokens });
    }
    Ok(())
}

fn set_lengths(workload: &mut WorkloadSpec, input: Option<u32>, output: Option<u32>) -> Result<(), Refusal> {
    match workload {
        WorkloadSpec::Fixed(w) => {
            w.input_tokens = input.unwrap_or(w.input_tokens);
            w.output_tokens = output.unwrap_or(w.output_tokens);
        }
        WorkloadSpec::Synthetic(w) => {
            if let Some(n) = input {
                w.input_tokens = Lengths::Exact(n);
            }
            if let Some(n) = output {
                w.output_tokens = Lengths::Exact(n);
            }
        }
        _ if input.is_some() || output.is_some() => {
            return Err(Refusal::usage(
                "--input-len and --output-len are for the workloads fixed and synthetic; this scenario has another",
                "change the lengths in the scenario's [workload]",
            ));
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_override_the_file() {
        let args = RunArgs {
            url: Some("http://127.0.0.1:9".into()),
            concurrency: Some("1,2".into()),
            input_len: Some(100),
            gate: Some(4),
            headers: vec!["X-Team: a".into()],
            slo: Some("ttft:p99:2s".into()),
            ..RunArgs::default()
        };
        let s = resolve(&args).unwrap().scenario;
        assert_eq!(s.target.url, "http://127.0.0.1:9");
        assert_eq!(s.target.headers["X-Team"], "a");
        assert_eq!(s.slo.ttft_p99.as_secs(), 2);
        assert_eq!(s.gate.unwrap().min_clean_concurrency, Some(4.0));
    }

    #[test]
    fn a_stand_in_is_sent_what_its_model_takes() {
        let lengths = |args: RunArgs| match resolve(&args).unwrap().scenario.workload {
            WorkloadSpec::Fixed(w) => Some((w.input_tokens, w.output_tokens)),
            _ => None,
        };
        let sim = |name: &str| RunArgs { sim: Some(name.into()), ..RunArgs::default() };
        assert_eq!(lengths(sim("small-pool")), Some((409, 64)));
        assert_eq!(lengths(RunArgs { output_len: Some(32), ..sim("small-pool") }), Some((409, 32)));
        assert_eq!(lengths(sim("h100-8b")), None);
        for name in Profile::names() {
            let profile = Profile::named(name).unwrap();
            if let Some((input, output)) = Profile::lengths(name) {
                assert!((input + output) as usize <= profile.engine.max_model_len, "{name}");
            }
        }
    }

    #[test]
    fn a_bad_flag_is_named() {
        for (args, part) in [
            (RunArgs { headers: vec!["nocolon".into()], ..RunArgs::default() }, "--header"),
            (RunArgs { extra_body: Some("[1]".into()), ..RunArgs::default() }, "--extra-body"),
            (RunArgs { set: vec!["a=b".into()], ..RunArgs::default() }, "--set"),
            (RunArgs { launch: true, ..RunArgs::default() }, "--launch"),
            (RunArgs { slo: Some("x".into()), ..RunArgs::default() }, "--slo"),
            (RunArgs { gpu: Some("x".into()), ..RunArgs::default() }, "--gpu"),
            (RunArgs { gpu: Some("nvml".into()), sim: Some("roomy".into()), ..RunArgs::default() }, "--gpu"),
            (RunArgs { sim: Some("romy".into()), ..RunArgs::default() }, "romy"),
            (RunArgs { time_scale: Some(0.0), ..RunArgs::default() }, "time_scale"),
        ] {
            let Err(refusal) = resolve(&args) else { panic!("{part} is taken") };
            assert!(refusal.says.contains(part), "{refusal}");
        }
    }
}
