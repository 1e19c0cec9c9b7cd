//! One TOML file becomes a [`Scenario`]: what to test, with what load, and how it is judged.
//!
//! Each folder reads its own table; here they are put together and checked against one another.
//! What is resolved (flags included) is written into the recording, and judging reads it from there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::gpu::{GpuSpec, Source};
use crate::ladder::LadderSpec;
use crate::load::{ArrivalSpec, TargetSpec};
use crate::model::units;
use crate::model::verdict::Slo;
use crate::scrape::ScrapeSpec;
use crate::workload::WorkloadSpec;

mod error;
mod gate;
mod slo;

pub use error::{ScenarioError, in_words, key_meant};
pub use gate::{Compare, GateSpec, Latency, Measure, Says, Share, Statistic, Threshold};
pub use slo::SloSpec;

/// A whole scenario, defaults filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Names the result folder; by default the file's name.
    pub name: String,
    /// Seed of lengths and arrivals.
    pub seed: u64,
    /// What makes this run's prompts differ from any other run's; by default drawn at random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// Factor on every `for`, range and interval of the rules. Below 1 for experiments only. Ramp, warm-up,
    /// drain and time-outs are the server's pace and stay as they are.
    pub time_scale: f64,
    /// The server under test.
    pub target: TargetSpec,
    /// The embedded stand-in, tested instead of a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sim: Option<SimSpec>,
    /// How the server is started, with `--launch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerSpec>,
    /// What is sent.
    pub workload: WorkloadSpec,
    /// How many at once.
    pub ladder: LadderSpec,
    /// How the requests of an open loop arrive.
    #[serde(skip_serializing_if = "is_default")]
    pub arrivals: ArrivalSpec,
    /// The targets that the rules are given.
    pub slo: SloSpec,
    /// Which rules judge, and when production evaluates them.
    pub rules: RulesSpec,
    /// How the metrics page is read: where, how often, within which limits.
    pub metrics: ScrapeSpec,
    /// How the GPU is read.
    pub gpu: GpuSpec,
    /// What must hold for exit code 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateSpec>,
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario {
            name: "chat".into(),
            seed: 1,
            nonce: None,
            time_scale: 1.0,
            target: TargetSpec::default(),
            sim: None,
            server: None,
            workload: WorkloadSpec::default(),
            ladder: LadderSpec::default(),
            arrivals: ArrivalSpec::default(),
            slo: SloSpec::default(),
            rules: RulesSpec::default(),
            metrics: ScrapeSpec::default(),
            gpu: GpuSpec::default(),
            gate: None,
        }
    }
}

/// `[sim]`: the embedded stand-in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimSpec {
    /// Name of a profile; `plimsoll sim --profile list` prints them.
    pub profile: String,
    /// Seed of the server's own chance, its jitter; `None`: the scenario's, from which the load comes too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Changes to the profile, in its own shape.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub with: toml::Table,
}

/// `[server]`: how the server is started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerSpec {
    /// The argv; `{name}` stands for a parameter. Never a shell.
    pub command: Vec<String>,
    /// Parameters, which `--set NAME=VALUE` overrides.
    pub params: BTreeMap<String, Param>,
    /// Environment variables beside our own.
    pub env: BTreeMap<String, String>,
    /// Longest wait for the first real completion; 10 minutes unless given.
    #[serde(with = "units::duration")]
    pub ready_timeout: Duration,
}

impl Default for ServerSpec {
    fn default() -> ServerSpec {
        ServerSpec {
            command: Vec::new(),
            params: BTreeMap::new(),
            env: BTreeMap::new(),
            // A large model is loaded, compiled and captured in minutes.
            ready_timeout: Duration::from_secs(600),
        }
    }
}

/// A parameter of the server's command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Param {
    /// A whole number.
    Number(i64),
    /// One word.
    One(String),
    /// Several words, where the parameter is an element of its own.
    Many(Vec<String>),
}

/// `[rules]`: who judges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RulesSpec {
    /// Rule files instead of the shipped ones, relative to the scenario.
    pub files: Vec<PathBuf>,
    /// Whether anything is judged at all.
    pub enabled: bool,
    /// Whether the shipped rules of the client and the GPU judge beside `files`.
    pub shipped: bool,
    /// Engine whose shipped rules are used.
    pub engine: String,
    /// How often production scrapes.
    #[serde(with = "units::duration")]
    pub scrape_interval: Duration,
    /// Which Prometheus production runs: `3.x` or `2.x`.
    pub promql: String,
}

impl Default for RulesSpec {
    fn default() -> RulesSpec {
        RulesSpec {
            files: Vec::new(),
            enabled: true,
            shipped: true,
            engine: "vllm".into(),
            scrape_interval: Duration::from_secs(15),
            promql: "3.x".into(),
        }
    }
}

fn is_default(arrivals: &ArrivalSpec) -> bool {
    *arrivals == ArrivalSpec::default()
}

/// What a name may hold beside letters and digits: it becomes part of a folder's name.
const NAME: &str = "-_.";

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// If the file cannot be read, is no TOML, has an unknown key, or contradicts itself.
    pub fn read(path: &Path) -> Result<Scenario, ScenarioError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ScenarioError::Read { path: path.to_owned(), source })?;
        let mut scenario = Scenario::parse(&text, &path.display().to_string())?;
        if !text.parse::<toml::Table>().is_ok_and(|t| t.contains_key("name")) {
            let stem = path.file_stem().map_or_else(|| "run".into(), |s| s.to_string_lossy().into_owned());
            scenario.name =
                stem.chars().map(|c| if NAME.contains(c) || c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        }
        // Paths are relative to the file that names them.
        let folder = path.parent().unwrap_or(Path::new(""));
        let more = scenario.workload.path_mut().into_iter().chain(&mut scenario.target.ca_file);
        for file in scenario.rules.files.iter_mut().chain(more) {
            if file.is_relative() {
                *file = folder.join(&*file);
            }
        }
        if let Some(against) = scenario.gate.as_mut().and_then(|g| g.against.as_mut())
            && against.is_relative()
        {
            *against = folder.join(&*against);
        }
        Ok(scenario)
    }

    /// Parses a scenario; `origin` names it in errors.
    ///
    /// # Errors
    /// If the text is no TOML, has an unknown key, or contradicts itself.
    pub fn parse(text: &str, origin: &str) -> Result<Scenario, ScenarioError> {
        let scenario: Scenario = toml::from_str(text).map_err(|error| ScenarioError::pointed(origin, text, &error))?;
        scenario.check().map_err(|says| ScenarioError::Contradiction { origin: origin.to_owned(), says })?;
        Ok(scenario)
    }

    /// As TOML, every default spelt out.
    ///
    /// # Panics
    /// Never: every part is plain data.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a scenario is plain data")
    }

    /// The targets as the verdict states them.
    pub fn targets(&self) -> Slo {
        self.slo.targets()
    }

    /// Whether the parts fit together.
    ///
    /// # Errors
    /// Says which do not, and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        if !(self.time_scale > 0.0 && self.time_scale <= 1.0) {
            return Err(format!("time_scale is {}, expected a number above 0 and up to 1", self.time_scale));
        }
        if self.name.is_empty() || !self.name.chars().all(|c| c.is_ascii_alphanumeric() || NAME.contains(c)) {
            return Err(format!("name is `{}`, expected letters, digits, `-`, `_` and `.`", self.name));
        }
        let day = Duration::from_secs(86_400);
        let (ladder, ms, s) = (&self.ladder, Duration::from_millis(1), Duration::from_secs(1));
        for (key, time, least) in [
            ("metrics.interval", Some(self.metrics.interval), 10 * ms),
            ("metrics.timeout", Some(self.metrics.timeout), 10 * ms),
            ("rules.scrape_interval", Some(self.rules.scrape_interval), s),
            ("ladder.hold", ladder.hold, ms),
            ("ladder.max_hold", ladder.max_hold, ms),
            ("ladder.warmup", Some(ladder.warmup), Duration::ZERO),
            ("ladder.ramp", Some(ladder.ramp), Duration::ZERO),
            ("ladder.drain_timeout", Some(ladder.drain_timeout), Duration::ZERO),
        ] {
            if time.is_some_and(|t| t < least || t > day) {
                let met = units::prometheus_duration(time.unwrap_or_default());
                return Err(format!("{key} is {met}, expected {} to 1d", units::prometheus_duration(least)));
            }
        }
        let arrivals = &self.arrivals;
        if arrivals.max_in_flight == 0 {
            return Err("arrivals.max_in_flight is 0, expected 1 or more".into());
        }
        if !(arrivals.burstiness >= 0.001 && arrivals.burstiness.is_finite()) {
            return Err(format!("arrivals.burstiness is {}, expected 0.001 or more", arrivals.burstiness));
        }
        if ladder.repeats == 0 {
            return Err("ladder.repeats is 0, expected 1 or more".into());
        }
        if let Some(gate) = &self.gate {
            gate.check()?;
        }
        if !matches!(self.rules.promql.as_str(), "3.x" | "2.x") {
            return Err(format!("rules.promql is `{}`, expected 3.x or 2.x", self.rules.promql));
        }
        if self.sim.is_some() && self.target.url != TargetSpec::default().url {
            return Err("the scenario has both a [sim] and a target.url, expected one of them".into());
        }
        if self.sim.is_some() && !matches!(self.gpu.source, Source::Auto | Source::Off) {
            return Err(format!(
                "gpu.source (--gpu) is `{}`, but a run against the stand-in reads the stand-in's own GPU, \
                 since another would not follow simulated time: expected auto or off",
                self.gpu.source
            ));
        }
        self.gpu.check()?;
        self.slo.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_survives_the_round_trip() {
        let scenario = Scenario::default();
        assert_eq!(Scenario::parse(&scenario.to_toml(), "resolved").unwrap(), scenario);
    }

    #[test]
    fn a_typo_names_file_line_and_the_nearest_key() {
        let error = Scenario::parse("seed = 3\n\n[ladder]\nconcurency = \"1..8x2\"\n", "a.toml").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("a.toml:4"), "{text}");
        assert!(text.contains("`concurency`"), "{text}");
        assert_eq!(error.hint(), "did you mean `concurrency`?");
        // A table of several kinds too: the reader itself tells only where it begins.
        let text = "seed = 3\n\n[workload]\nkind = \"fixed\"\ninput_token = 9\noutput_tokens = 9\n";
        let error = Scenario::parse(text, "a.toml").unwrap_err();
        assert!(error.to_string().starts_with("a.toml:5:1: unknown field `input_token`"), "{error}");
        assert_eq!(error.hint(), "did you mean `input_tokens`?");
        let text = "[workload]\nkind = \"synthetic\"\ninput_tokens = { distribution = \"lognormal\", medain = 3 }\n";
        let error = Scenario::parse(text, "a.toml").unwrap_err();
        assert!(error.to_string().starts_with("a.toml:3:46: unknown field `medain`"), "{error}");
    }

    #[test]
    fn one_level_needs_no_list() {
        let scenario = Scenario::parse("[ladder]\nconcurrency = 3", "s.toml").unwrap();
        assert_eq!(crate::ladder::Ladder::new(&scenario.ladder).unwrap().levels, [3.0]);
    }

    #[test]
    fn paths_are_relative_to_the_scenario() {
        let folder = std::env::temp_dir().join(format!("plimsoll-scenario-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("mine.toml");
        let text = "[workload]\nkind = \"dataset\"\npath = \"rows.jsonl\"\n[target]\nca_file = \"/etc/ca.pem\"\n\
                    [rules]\nfiles = [\"mine.yml\"]\n";
        std::fs::write(&file, text).unwrap();
        let scenario = Scenario::read(&file).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let WorkloadSpec::Dataset(dataset) = &scenario.workload else { panic!("{:?}", scenario.workload) };
        assert_eq!(dataset.path, folder.join("rows.jsonl"));
        assert_eq!(scenario.rules.files, [folder.join("mine.yml")]);
        assert_eq!(scenario.target.ca_file.as_deref(), Some(Path::new("/etc/ca.pem")));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for (text, part) in [
            ("time_scale = 0.0", "time_scale"),
            ("time_scale = 2.0", "time_scale"),
            ("name = \"../x\"", "name"),
            ("[rules]\npromql = \"4\"", "promql"),
            ("[sim]\nprofile = \"x\"\n[target]\nurl = \"http://127.0.0.1:1\"", "[sim]"),
            ("[slo]\nttft_p99 = \"0s\"", "ttft_p99"),
            ("[ladder]\nhold = 90", "hold"),
            ("[ladder]\nhold = \"9999h\"", "ladder.hold"),
            ("[ladder]\nrepeats = 0", "repeats"),
            ("[arrivals]\nmax_in_flight = 0", "max_in_flight"),
            ("[arrivals]\npattern = \"gamma\"\nburstiness = 0.0", "burstiness"),
            ("[metrics]\ninterval = \"0s\"", "metrics.interval"),
            ("[rules]\nscrape_interval = \"0s\"", "scrape_interval"),
            ("[gate]\nmin_clean_concurrency = nan", "min_clean"),
            ("[ladder]\nhold = \"90\"", "90"),
            ("[gpu]\nsource = \"nvml\"\n[sim]\nprofile = \"x\"", "gpu.source (--gpu) is `nvml`"),
            ("[gpu]\ninterval = \"10ms\"", "gpu.interval"),
            ("[ladder]\nhold = 90", "such as \"90s\""),
            ("[ladder]\nmax_hold = 90", "such as \"90s\""),
            ("[ladder]\nconcurrency = true", "such as [1, 2, 4]"),
            ("[ladder]\nrepeats = -1", "a whole number from 0 on"),
            ("seed = \"a\"", "a whole number from 0 on"),
            ("[slo]\nerror_rate = \"1%\"", "expected a number"),
            ("workload = 3", "expected a table"),
        ] {
            let error = Scenario::parse(text, "s.toml").unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
