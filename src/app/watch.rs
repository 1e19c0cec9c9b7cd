//! `plimsoll watch`: no load; a live server judged by the rules that judge a load step.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch as signal;

use crate::analyze;
use crate::cli::{RunArgs, WatchArgs};
use crate::diagnose;
use crate::error::{Exit, Refusal};
use crate::gpu;
use crate::load::BaseUrl;
use crate::model::recording::{Event, Header, TargetFacts};
use crate::model::sample::{Scrape, SourceKind};
use crate::model::time::{Clock, ClockKind, Offset};
use crate::model::units::prometheus_duration;
use crate::model::verdict::{AlertState, Explanation};
use crate::rules::live::{Live, Standing};
use crate::rules::{Judge, RuleSet, Timing};
use crate::scenario::Scenario;
use crate::scrape::{Page, Poller, poller};

use super::prepare::Prepared;
use super::{probe, run};

mod report;
mod show;

pub use report::{Outcome, SCHEMA, Watched};

/// How often the alerts are evaluated: as often as a person looks.
const EVALUATE: Duration = Duration::from_secs(5);
/// How far back an explanation looks.
const EXPLAINED: Duration = Duration::from_secs(60);
/// For how long the page may fail before the server counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(10);

/// What is watched, and by what.
pub struct Watch {
    /// The page.
    page: Page,
    /// Its address without what may be secret.
    url: String,
    scenario: Scenario,
    rules: RuleSet,
    /// How long one look takes, if it is the only one.
    window: Duration,
}

/// Watches until the answer is known (`--once`), or until Ctrl-C.
pub fn watch(args: &WatchArgs) -> anyhow::Result<Exit> {
    let watch = Watch::new(args)?;
    let runtime = run::runtime(ClockKind::Real)?;
    runtime.block_on(async {
        let clock = Clock::start(ClockKind::Real);
        let interrupt = run::interrupts();
        if !args.once {
            return watch.follow(clock, interrupt, args).await;
        }
        let Some(watched) = watch.once(clock, interrupt).await? else { return Ok(Exit::Interrupted) };
        super::answer(|out| if args.json { report::json(&watched, out) } else { report::text(&watched, out) })?;
        Ok(watched.exit())
    })
}

impl Watch {
    /// From the command line.
    ///
    /// # Errors
    /// If address, rules, targets or a header cannot be used.
    pub fn new(args: &WatchArgs) -> Result<Watch, Refusal> {
        let base = args.url.trim_end_matches('/');
        let base = base.strip_suffix("/metrics").unwrap_or(base);
        let parsed = BaseUrl::parse(base).map_err(|e| Refusal::usage(e.to_string(), ""))?;
        let page = parsed.beside("metrics");
        let run = RunArgs {
            url: Some(base.to_owned()),
            headers: args.headers.clone(),
            rules: args.rules.clone(),
            slo: args.slo.clone(),
            gpu: Some(args.gpu.clone()),
            ..RunArgs::default()
        };
        let Prepared { scenario, mut rules, .. } = Prepared::new(&run)?;
        // There is no client here whose latencies could be judged.
        rules.groups.retain(|g| g.file != "builtin:client.yml");
        let timing = analyze::timing(&scenario);
        let needed = rules.step_length(timing).map_or(EXPLAINED, |(length, _)| length);
        let headers = scenario.target.headers.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        Ok(Watch {
            page: Page { bearer: args.api_key.clone(), headers, ..Page::server(page.as_str()) },
            url: page.to_string(),
            window: args.window.unwrap_or(needed),
            scenario,
            rules,
        })
    }

    fn timing(&self) -> Timing {
        analyze::timing(&self.scenario)
    }

    fn header(&self, clock: Clock) -> Header {
        let target = TargetFacts { metrics_url: Some(self.url.clone()), ..TargetFacts::default() };
        Header { scenario: "watch".into(), target, ..Header::blank(clock.kind(), clock.epoch_unix_ms()) }
    }

    /// Begins to read page and GPU.
    async fn open(&self, clock: Clock) -> anyhow::Result<Open> {
        let (sender, events) = unbounded_channel();
        let spec = &self.scenario.metrics;
        // A page that cannot be used is found before anything is promised.
        let once = poller::once(&self.page, spec).await.map_err(|e| Refusal::usage(e.to_string(), ""))?;
        once.map_err(|failure| {
            Refusal::target(
                format!("the metrics page {} cannot be used: {}", self.url, failure.detail),
                "give the address of the server, or that of its metrics page",
            )
        })?;
        let poller = Poller::start(self.page.clone(), spec, clock, sender.clone()).context("reading the page")?;
        let gpu = gpu::start(&self.scenario.gpu, clock, sender).await.map_err(probe::gpu)?;
        let live = Live::new(self.rules.clone(), self.header(clock), self.timing(), analyze::reading(&self.scenario));
        Ok(Open { live, events, clock, _poller: poller, _gpu: gpu })
    }

    /// Watches for as long as the rules need, and judges that as a step; `None` if the user ended it.
    ///
    /// # Errors
    /// If the page cannot be read at the start, or not any more at the end.
    pub async fn once(&self, clock: Clock, interrupt: signal::Receiver<u32>) -> anyhow::Result<Option<Watched>> {
        let mut open = self.open(clock).await?;
        let until = clock.now() + self.window + self.scenario.metrics.interval;
        if !open.read_until(until, interrupt).await {
            return Ok(None);
        }
        let at = clock.now();
        let read = |s: &&Scrape| s.source == SourceKind::Server && s.result.is_ok();
        let newest = open.live.scrapes().iter().rfind(read).map(|s| s.sent);
        if newest.is_none_or(|newest| at.since(newest) > LOST_AFTER.min(self.window)) {
            let says = format!("the metrics page {} cannot be read any more", self.url);
            return Err(Refusal::target(says, "is the server still up?").into());
        }
        let watched = open.live.judged(self.window, at, |judge, span| {
            let alerts = judge.step(span);
            let firing = alerts.iter().filter(|a| a.state == AlertState::Firing);
            let explanations: BTreeMap<String, Explanation> =
                firing.map(|a| (a.alert.clone(), diagnose::explain(judge, span, a))).collect();
            Watched {
                schema: SCHEMA.into(),
                url: self.url.clone(),
                at_unix_ms: clock.epoch_unix_ms() + i64::try_from(at.as_millis()).unwrap_or(i64::MAX),
                window_s: span.measured.len().as_secs_f64(),
                outcome: Outcome::of(&alerts),
                alerts,
                explanations,
                server: judge.server_stats(span),
                gpu: gpu::stats(open.live.scrapes(), span.measured, None),
            }
        });
        Ok(Some(watched))
    }

    /// Watches until Ctrl-C.
    async fn follow(&self, clock: Clock, interrupt: signal::Receiver<u32>, args: &WatchArgs) -> anyhow::Result<Exit> {
        let mut open = self.open(clock).await?;
        let mut show = show::Show::new(&self.url, self.rules.alerts().count(), args);
        loop {
            let next = clock.now() + EVALUATE;
            if !open.read_until(next, interrupt.clone()).await {
                return Ok(Exit::Interrupted);
            }
            let at = clock.now();
            let standing = open.live.look(at);
            let why = open.explain(&standing, at);
            show.look(&self.rules, open.live.scrapes(), &standing, &why, clock, at);
        }
    }
}

/// A watch that reads.
struct Open {
    live: Live,
    events: UnboundedReceiver<Event>,
    clock: Clock,
    _poller: Poller,
    _gpu: Option<gpu::Poller>,
}

impl Open {
    /// Takes in what comes until `until`; false if the user ended it.
    async fn read_until(&mut self, until: Offset, mut interrupt: signal::Receiver<u32>) -> bool {
        let mut can_end = true;
        loop {
            if *interrupt.borrow_and_update() > 0 {
                return false;
            }
            tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    Some(Event::Scrape(scrape)) => self.live.take(&scrape),
                    Some(_) => {}
                    None => return true,
                },
                () = self.clock.sleep_until(until) => return true,
                // Once nobody can interrupt any more there is nothing to wait for.
                changed = interrupt.changed(), if can_end => can_end = changed.is_ok(),
            }
        }
    }

    /// Why the alerts that fire do so, by name.
    fn explain(&self, standing: &[Standing], at: Offset) -> BTreeMap<String, Explanation> {
        let firing: Vec<&Standing> = standing.iter().filter(|s| s.state == AlertState::Firing).collect();
        // Some numbers come when a request ends, others with its first token: at first they do not fit together.
        let early = self.live.scrapes().first().is_none_or(|first| at.since(first.sent) < EXPLAINED);
        if firing.is_empty() || early {
            return BTreeMap::new();
        }
        self.live.judged(EXPLAINED, at, |judge: &Judge<'_>, span| {
            firing.iter().map(|s| (s.alert.clone(), diagnose::explain(judge, span, &s.verdict(at)))).collect()
        })
    }
}

/// `1m16s`, for a person.
fn length(d: Duration) -> String {
    prometheus_duration(Duration::from_secs(d.as_secs_f64().round() as u64))
}
