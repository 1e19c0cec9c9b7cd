//! Reads one page again and again, and sends each reading as an event.
//!
//! Readings are due on a grid that begins with the first one: `first + k * interval`, absolute,
//! so that they do not drift. A reading that is still under way when the next one is due
//! delays that to the next point of the grid; only a failed reading leaves a gap.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::ScrapeSpec;
use super::exposition::Parser;
use super::fetch::{Fetcher, Page, PageError};
use crate::model::recording::Event;
use crate::model::sample::{Sample, Scrape, ScrapeFailure};
use crate::model::time::{Clock, Offset};

/// A task that reads one page until it is stopped. Dropped, it ends without a last reading.
#[derive(Debug)]
pub struct Poller {
    stop: oneshot::Sender<()>,
    latest: watch::Receiver<Option<Arc<Scrape>>>,
    first_page: watch::Receiver<Option<Bytes>>,
    task: JoinHandle<Pages>,
}

/// The first and the last page that came with a 2xx status, verbatim; `None` if none did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// For `metrics-first.prom`.
    pub first: Option<Bytes>,
    /// For `metrics-last.prom`.
    pub last: Option<Bytes>,
}

impl Poller {
    /// Begins to read `page` at once. `spec.interval` is taken as it is: scale it before.
    /// Ends by itself when nobody receives its events any more.
    ///
    /// # Errors
    /// If the address or a header of the page cannot be used.
    pub fn start(
        page: Page,
        spec: &ScrapeSpec,
        clock: Clock,
        events: UnboundedSender<Event>,
    ) -> Result<Poller, PageError> {
        let fetcher = Fetcher::new(&page, spec.timeout, spec.max_bytes)?;
        let (stop, stopped) = oneshot::channel();
        let (show, latest) = watch::channel(None);
        let (keep, first_page) = watch::channel(None);
        let reader = Reader { page, fetcher, parser: Parser::new(), clock, pages: Pages::default() };
        let task =
            tokio::spawn(poll(reader, spec.interval.max(Duration::from_micros(1)), events, (show, keep), stopped));
        Ok(Poller { stop, latest, first_page, task })
    }

    /// The first reading, as soon as there is one: await it before the first request, since
    /// counters show only what happened after it.
    pub async fn first(&self) -> Option<Arc<Scrape>> {
        let mut latest = self.latest.clone();
        latest.wait_for(Option::is_some).await.ok().and_then(|scrape| scrape.clone())
    }

    /// The newest reading, good or failed; `None` before the first.
    pub fn latest(&self) -> Option<Arc<Scrape>> {
        self.latest.borrow().clone()
    }

    /// The first page that came with a 2xx status, verbatim; `None` before there is one.
    pub fn first_page(&self) -> Option<Bytes> {
        self.first_page.borrow().clone()
    }

    /// A view of the newest reading that a display can keep.
    pub fn watch(&self) -> watch::Receiver<Option<Arc<Scrape>>> {
        self.latest.clone()
    }

    /// Reads once more, sends that, and ends. Takes up to the time-out if the server hangs.
    pub async fn stop(self) -> Pages {
        let _ = self.stop.send(());
        self.task.await.unwrap_or_default()
    }
}

/// Reads a page once, outside any run: for the probe.
///
/// # Errors
/// [`PageError`] if it cannot be asked for, [`ScrapeFailure`] inside if it gave no samples.
pub async fn once(page: &Page, spec: &ScrapeSpec) -> Result<Result<Vec<Sample>, ScrapeFailure>, PageError> {
    let fetcher = Fetcher::new(page, spec.timeout, spec.max_bytes)?;
    Ok(match fetcher.get().await {
        Ok(body) => Parser::new().parse(&body.bytes, body.format).map(|p| p.samples).map_err(|e| unreadable(&e)),
        Err(failure) => Err(failure),
    })
}

async fn poll(
    mut reader: Reader,
    interval: Duration,
    events: UnboundedSender<Event>,
    (show, keep): (watch::Sender<Option<Arc<Scrape>>>, watch::Sender<Option<Bytes>>),
    mut stopped: oneshot::Receiver<()>,
) -> Pages {
    let clock = reader.clock;
    let first = clock.now();
    let mut due = first;
    loop {
        // A reading under way when the run stops is finished, and is then the last one.
        let scrape = reader.read(due, interval).await;
        let received = scrape.received;
        keep.send_if_modified(|kept| {
            let news = kept.is_none() && reader.pages.first.is_some();
            if news {
                kept.clone_from(&reader.pages.first);
            }
            news
        });
        show.send_replace(Some(Arc::new(scrape.clone())));
        if events.send(Event::Scrape(scrape)).is_err() {
            return reader.pages;
        }
        due = next_tick(first, interval, received.max(due));
        tokio::select! {
            biased;
            told = &mut stopped => {
                if told.is_ok() {
                    let scrape = reader.read(clock.now(), interval).await;
                    show.send_replace(Some(Arc::new(scrape.clone())));
                    let _ = events.send(Event::Scrape(scrape));
                }
                return reader.pages;
            }
            () = events.closed() => return reader.pages,
            () = clock.sleep_until(due) => {}
        }
    }
}

/// The first point of the grid after `now`.
fn next_tick(first: Offset, interval: Duration, now: Offset) -> Offset {
    let step = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
    let passed = now.0.saturating_sub(first.0) / step;
    Offset(first.0.saturating_add((passed + 1).saturating_mul(step)))
}

#[derive(Debug)]
struct Reader {
    page: Page,
    fetcher: Fetcher,
    parser: Parser,
    clock: Clock,
    pages: Pages,
}

impl Reader {
    async fn read(&mut self, due: Offset, interval: Duration) -> Scrape {
        let sent = aligned(self.clock.now(), due, interval);
        let result = match self.fetcher.get().await {
            Ok(body) => {
                self.pages.first.get_or_insert_with(|| body.bytes.clone());
                self.pages.last = Some(body.bytes.clone());
                self.parser.parse(&body.bytes, body.format).map(|p| p.samples).map_err(|e| unreadable(&e))
            }
            Err(failure) => Err(failure),
        };
        Scrape { source: self.page.source, target: self.page.target, sent, received: self.clock.now(), result }
    }
}

/// Moves the time of a reading onto its tick if it is late by no more than 1 % of the interval
/// and 2 ms, as Prometheus does: regular stamps compress better there, and cut the same windows here.
fn aligned(now: Offset, due: Offset, interval: Duration) -> Offset {
    let tolerance = (interval / 100).min(Duration::from_millis(2));
    if now >= due && now.since(due) <= tolerance { due } else { now }
}

fn unreadable(error: &super::exposition::ParseError) -> ScrapeFailure {
    ScrapeFailure { class: "parse".into(), detail: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_stay_on_the_grid() {
        let first = Offset::from_millis(7);
        let second = Duration::from_secs(1);
        for (now, next) in [(7, 1_007), (1_006, 1_007), (1_007, 2_007), (3_500, 4_007)] {
            assert_eq!(next_tick(first, second, Offset::from_millis(now)), Offset::from_millis(next), "{now}");
        }
    }

    #[test]
    fn stamps_close_to_their_tick_move_onto_it() {
        let due = Offset::from_millis(1_000);
        let second = Duration::from_secs(1);
        assert_eq!(aligned(Offset(1_002_000), due, second), due);
        assert_eq!(aligned(Offset(1_002_001), due, second), Offset(1_002_001));
        assert_eq!(aligned(Offset(1_002_000), due, Duration::from_millis(100)), Offset(1_002_000));
    }
}
