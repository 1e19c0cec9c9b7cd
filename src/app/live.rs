//! The left half: applies the ladder's load to the target and records what happens.

mod judging;

use std::path::Path;
use std::time::Duration;

use crate::analyze::{self, Gauges, Silence};
use crate::gpu;
use crate::ladder::{Next, Past};
use crate::load::{HealthWatch, Loader};
use crate::model::recording::{Ended, Event, Recording, StopReason};
use crate::model::request::{FailureClass, Outcome};
use crate::model::step::{CutShort, StepPlan};
use crate::model::time::{Clock, Offset};
use crate::model::verdict::StepVerdict;
use crate::rules::Follow;
use crate::scrape::{Pages, Poller};

use super::launch::{self, Server};
use super::prepare::Prepared;
use super::progress::{Now, Progress};
use super::steps::{Rest, StepLengths};
use super::tape::{Tape, Woke};

/// How often the run looks around while a step goes on.
const LOOK: Duration = Duration::from_secs(1);
/// How long before the end of a step the slow readings of the GPU are taken, so that they belong to it.
const BORDER: Duration = Duration::from_secs(1);
/// For how long no request may get through before the target counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(10);
/// Failures of that kind in a row before the target counts as lost.
const LOST_COUNT: usize = 5;

/// A run that is set up: everything is probed and open, and no load was applied yet.
pub struct Live<'a> {
    /// What is to be done.
    pub prepared: &'a Prepared,
    /// The run's clock.
    pub clock: Clock,
    /// Where everything is recorded.
    pub tape: Tape,
    /// Who sends the requests.
    pub loader: Loader,
    /// Who watches how we ourselves fare.
    pub health: HealthWatch,
    /// Who reads the metrics page, if there is one.
    pub poller: Option<Poller>,
    /// Who reads the GPU, if there is one.
    pub gpu: Option<gpu::Poller>,
    /// The server, if we started it.
    pub server: Option<&'a mut Server>,
    /// Who resets the prefix cache, if that is asked for.
    pub reset: Option<PrefixReset>,
    /// Who evaluates the alerts as the scrapes come.
    pub follow: Follow<'a>,
    /// Who tells how it goes.
    pub progress: Progress,
    /// Whether the hardware broke, so that nothing that is measured counts any more.
    pub void: bool,
}

/// For how long nothing may come before that is told while it goes on.
const TELL_SILENCE_AFTER: Duration = Duration::from_secs(10);

/// What a stretch of the run is for, as it is shown.
#[derive(Clone, Copy)]
struct Stretch {
    doing: &'static str,
    /// When it is over, as far as is known.
    over: Offset,
    /// Observations that the step still lacks.
    missing: Option<u64>,
    /// What may come after the step.
    rest: Rest,
}

/// How a wait ended.
enum Waited {
    Through,
    Stop(CutShort),
}

impl Live<'_> {
    /// Climbs the ladder to its end and closes the recording.
    ///
    /// # Errors
    /// If we cannot do our job. What the target does wrong is recorded, not returned.
    pub async fn climb(mut self) -> anyhow::Result<(Recording, Pages)> {
        let mut history: Vec<Past> = Vec::new();
        let mut verdicts: Vec<StepVerdict> = Vec::new();
        self.reset_prefix().await;
        let reason = loop {
            let plan = match self.prepared.ladder.next(&history) {
                Next::Done(reason) => break reason,
                Next::Run(plan) => plan,
            };
            let warmup = self.prepared.lengths.warmup_after(verdicts.last());
            if let Some(most) = self.prepared.scenario.ladder.max_duration
                && self.clock.now().as_duration() + self.prepared.lengths.whole(&plan, warmup) > most
            {
                break StopReason::MaxDuration;
            }
            if plan.drain_first {
                match self.drain().await? {
                    Waited::Through => {}
                    Waited::Stop(cut) => break stop_reason(cut),
                }
            }
            let rest = self.rest(&history, &plan);
            self.progress.begin(&plan, warmup, &self.prepared.lengths, rest);
            let (verdict, cut) = self.step(plan, warmup, rest).await?;
            self.progress.end(&verdict);
            history.push(analyze::past(&verdict));
            verdicts.push(verdict);
            if let Some(cut) = cut {
                break stop_reason(cut);
            }
            if self.void {
                break StopReason::Void;
            }
            if let Some(silence) = self.hangs() {
                self.lose(&format!("the server hangs: {}", silence.says()));
                break StopReason::TargetLost;
            }
        };
        self.finish(reason).await
    }

    /// What may come after `plan`, within `max_duration`.
    fn rest(&self, history: &[Past], plan: &StepPlan) -> Rest {
        let lengths = &self.prepared.lengths;
        let rest = lengths.rest(&self.prepared.ladder, history, plan.load.level());
        match self.prepared.scenario.ladder.max_duration {
            None => rest,
            Some(most) => {
                let left =
                    most.saturating_sub(self.clock.now().as_duration() + lengths.ramp + lengths.warmup + lengths.hold);
                Rest { least: rest.least.min(left), most: rest.most.min(left) }
            }
        }
    }

    /// The silence of the server, if requests are out.
    fn silence(&self) -> Option<Silence> {
        let out = self.loader.in_flight();
        // Those that ended last are enough to know when anything came last.
        let ended = self.tape.recording.requests.iter().rev().take(64 + 4 * out.len());
        Silence::at(ended.chain(&out), self.clock.now())
    }

    /// The same, if it lasts so long that the server counts as hanging.
    fn hangs(&self) -> Option<Silence> {
        self.silence().filter(|s| s.is_a_hang(self.prepared.scenario.time_scale))
    }

    /// Records and tells that the target is lost.
    fn lose(&mut self, says: &str) {
        self.tape.note("target_lost", says);
        self.progress.say(&format!("the target is lost: {says}"));
    }

    /// Runs one step and judges it.
    async fn step(
        &mut self,
        plan: StepPlan,
        warmup: Duration,
        rest: Rest,
    ) -> anyhow::Result<(StepVerdict, Option<CutShort>)> {
        let lengths = self.prepared.lengths;
        let start = self.clock.now();
        self.tape.put(Event::StepStarted { at: start, plan }).await?;
        self.step_border();
        self.loader.raise_to(plan.step, plan.load, lengths.ramp);

        let ramped = start + lengths.ramp;
        let stretch = |doing, over, missing| Stretch { doing, over, missing, rest };
        let mut cut = self.wait(stretch("ramp", ramped, None), ramped).await?;
        if let Waited::Through = cut {
            cut = self.wait(stretch("warm-up", ramped + warmup, None), ramped + warmup).await?;
        }
        let begun = self.clock.now();
        self.tape.put(Event::MeasureStarted { at: begun, step: plan.step }).await?;
        self.step_border();
        let mut until = begun + lengths.hold;
        let mut shown = stretch("measure", until, None);
        let mut latest = begun + lengths.max_hold;
        if let Some(most) = self.prepared.scenario.ladder.max_duration {
            latest = latest.min(Offset::from_duration(most));
        }
        while let Waited::Through = cut {
            let border = until - BORDER.min(until.since(begun) / 4);
            cut = self.wait(shown, border).await?;
            if let Waited::Through = cut {
                self.step_border();
                cut = self.wait(shown, until).await?;
            }
            if let Waited::Stop(_) = cut {
                break;
            }
            // Rules that lack observations get more time, up to the longest hold.
            let missing = self.missing(plan.step)?;
            if until >= latest || missing == 0 || self.void {
                break;
            }
            if self.hangs().is_some() {
                break;
            }
            let (elapsed, longest) = (until.since(begun), latest.since(begun));
            let Some(enough) = StepLengths::enough_at(elapsed, missing, longest) else {
                let says = format!(
                    "step {} is not prolonged: it lacks {missing} observations after {} s, and {} s would not bring them",
                    plan.step,
                    elapsed.as_secs(),
                    longest.as_secs()
                );
                self.progress.say(&format!("        {says}"));
                self.tape.note("not_prolonged", says);
                break;
            };
            until = (until + lengths.hold / 4).min(latest);
            shown = stretch("prolong", (begun + enough).max(until), Some(missing));
        }
        let cut_short = match cut {
            Waited::Through => None,
            Waited::Stop(cut) => Some(cut),
        };
        let end = self.clock.now();
        self.tape.put(Event::StepEnded { at: end, step: plan.step, cut_short }).await?;
        // All that was sent before is in by now.
        let fired = self.follow.settle(&self.tape.recording, self.loader.in_flight(), end);
        self.tell(fired);
        Ok((self.judge(plan.step)?, cut_short))
    }

    /// Waits until `until` while the load goes on; comes back early when the run must stop.
    async fn wait(&mut self, stretch: Stretch, until: Offset) -> anyhow::Result<Waited> {
        loop {
            let now = self.clock.now();
            if now >= until {
                return Ok(Waited::Through);
            }
            if self.tape.until((now + LOOK).min(until)).await? == Woke::Interrupted {
                return Ok(Waited::Stop(CutShort::Interrupted));
            }
            if let Some(says) = self.lost() {
                self.lose(&says);
                return Ok(Waited::Stop(CutShort::TargetLost));
            }
            self.follow();
            let now = self.clock.now();
            if self.progress.wants() {
                let shown = self.look(stretch, now);
                self.progress.scraped(&self.tape.recording.scrapes);
                self.progress.tick(now, &shown);
            }
        }
    }

    /// Stops sending and waits until client and server are at rest.
    async fn drain(&mut self) -> anyhow::Result<Waited> {
        let begun = self.clock.now();
        let until = begun + self.prepared.lengths.drain;
        let stretch = Stretch { doing: "drain", over: until, missing: None, rest: Rest::default() };
        {
            let Live { loader, tape, clock, prepared, poller, progress, .. } = self;
            let mut drained = std::pin::pin!(loader.drain(prepared.lengths.drain));
            loop {
                let look = clock.now() + LOOK;
                tokio::select! {
                    biased;
                    _ = &mut drained => break,
                    woke = tape.until(look) => if woke? == Woke::Interrupted {
                        return Ok(Waited::Stop(CutShort::Interrupted));
                    },
                }
                let now = clock.now();
                if progress.wants() {
                    let gauges = gauges(poller.as_ref(), prepared);
                    progress.tick(now, &Now { doing: stretch.doing, left: until.since(now), gauges, ..Now::default() });
                }
            }
        }
        while !self.server_at_rest(begun) {
            let now = self.clock.now();
            if now >= until {
                self.tape.note("drain_timeout", "the server did not come to rest before the step");
                self.progress.say("the server did not come to rest; the next step starts all the same");
                break;
            }
            match self.wait(stretch, (now + LOOK).min(until)).await? {
                Waited::Through => {}
                stop @ Waited::Stop(_) => return Ok(stop),
            }
        }
        self.reset_prefix().await;
        Ok(Waited::Through)
    }

    /// Whether the newest page, read after `since`, shows nothing running and nothing waiting.
    /// Without a page there is nothing to wait for.
    fn server_at_rest(&self, since: Offset) -> bool {
        let Some(poller) = &self.poller else { return true };
        let Some(scrape) = poller.latest().filter(|s| s.sent > since && s.result.is_ok()) else { return false };
        let gauges = Gauges::of(&self.prepared.rules, &scrape);
        gauges.waiting.unwrap_or(0.0) == 0.0 && gauges.running.unwrap_or(0.0) == 0.0
    }

    /// Why the target counts as lost, if it does.
    fn lost(&mut self) -> Option<String> {
        if let Some(server) = &mut self.server
            && let Some(status) = server.ended()
        {
            return Some(format!("the server died: {}; {}", launch::say(status), server.last_words()));
        }
        let now = self.clock.now();
        let mut failures = 0;
        for r in self.tape.recording.requests.iter().rev() {
            match &r.outcome {
                Outcome::Failed { class: FailureClass::Connect | FailureClass::ConnectionReset, detail, .. } => {
                    failures += 1;
                    if failures >= LOST_COUNT && now.since(r.finished) >= LOST_AFTER {
                        return Some(format!("nothing has got through for {} s: {detail}", LOST_AFTER.as_secs()));
                    }
                }
                _ => break,
            }
        }
        None
    }

    fn look(&self, stretch: Stretch, now: Offset) -> Now {
        let live = self.loader.live();
        Now {
            doing: stretch.doing,
            left: stretch.over.since(now),
            missing: stretch.missing,
            rest: stretch.rest,
            in_flight: live.in_flight,
            ended: [live.ended, live.failed],
            ttft_s: live.ttft_p50.map(|d| d.as_secs_f64()),
            ttft_p99_s: live.ttft_p99.map(|d| d.as_secs_f64()),
            gap_s: live.gap_p50.map(|d| d.as_secs_f64()),
            gap_p99_s: live.gap_p99.map(|d| d.as_secs_f64()),
            chunks_per_s: live.chunks_per_s,
            gauges: gauges(self.poller.as_ref(), self.prepared),
            alerts: self.follow.standing(&self.tape.recording, now),
            silence: self.silence().filter(|s| s.lasts >= TELL_SILENCE_AFTER).map(|s| s.says()),
        }
    }

    async fn reset_prefix(&mut self) {
        if let Some(reset) = &self.reset {
            let (code, says) = reset.post().await;
            self.tape.note(code, says);
        }
    }

    fn step_border(&self) {
        if let Some(gpu) = &self.gpu {
            gpu.step_border();
        }
    }

    /// Ends all that is still on its way and closes the recording.
    async fn finish(self, reason: StopReason) -> anyhow::Result<(Recording, Pages)> {
        let Live { clock, mut tape, mut loader, health, poller, gpu, mut progress, .. } = self;
        progress.ending();
        drop(health);
        loader.stop().await;
        drop(loader);
        let pages = match poller {
            Some(poller) => poller.stop().await,
            None => Pages::default(),
        };
        if let Some(gpu) = gpu {
            gpu.stop().await;
        }
        tape.put(Event::Ended(Ended { at: clock.now(), reason })).await?;
        Ok((tape.finish().await?, pages))
    }
}

/// What the newest page says of the server.
fn gauges(poller: Option<&Poller>, prepared: &Prepared) -> Gauges {
    poller.and_then(Poller::latest).map(|s| Gauges::of(&prepared.rules, &s)).unwrap_or_default()
}

fn stop_reason(cut: CutShort) -> StopReason {
    match cut {
        CutShort::Interrupted => StopReason::Interrupted,
        CutShort::TargetLost => StopReason::TargetLost,
    }
}

/// Posts `/reset_prefix_cache` and checks the answer.
pub struct PrefixReset {
    /// The HTTP client to use.
    pub http: reqwest::Client,
    /// Where to post.
    pub url: reqwest::Url,
}

impl PrefixReset {
    /// A note's code and words: what the server answered.
    async fn post(&self) -> (&'static str, String) {
        match self.http.post(self.url.clone()).send().await {
            Ok(answer) if answer.status().is_success() => ("prefix_reset", "the prefix cache was reset".into()),
            Ok(answer) => ("prefix_reset_refused", format!("/reset_prefix_cache answered {}", answer.status())),
            Err(error) => ("prefix_reset_refused", format!("/reset_prefix_cache: {error}")),
        }
    }
}

/// Writes the pages that came first and last, verbatim.
///
/// # Errors
/// If a file cannot be written.
pub fn keep_pages(folder: &Path, pages: &Pages) -> anyhow::Result<()> {
    for (name, page) in [("metrics-first.prom", &pages.first), ("metrics-last.prom", &pages.last)] {
        if let Some(page) = page {
            crate::record::write_file(folder, name, page)?;
        }
    }
    Ok(())
}
