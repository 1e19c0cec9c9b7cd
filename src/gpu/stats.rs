//! A step's GPU numbers: a pure function of the scrapes that fell into it.

use std::collections::BTreeMap;

use crate::model::sample::{Sample, Scrape, SourceKind};
use crate::model::time::{Offset, Span};
use crate::model::verdict::{EnergyFrom, GpuStats, Spread, ThrottleReason};

use super::field::{Field, REASONS, Weight};

/// Each GPU over `span`, by the number of its index and then by UUID. `output_tokens` are those of the whole
/// server in the same span; without them there is no energy per token.
///
/// A scrape belongs to the span in which it was sent. Of what a page tells of MIG slices only what is true of
/// the whole card is used, and only where the card itself tells nothing.
pub fn stats(scrapes: &[Scrape], span: Span, output_tokens: Option<u64>) -> Vec<GpuStats> {
    let mut devices: BTreeMap<&str, Device<'_>> = BTreeMap::new();
    for scrape in scrapes.iter().filter(|s| s.source == SourceKind::Gpu && span.contains(s.sent)) {
        let Ok(samples) = &scrape.result else { continue };
        for sample in samples {
            let Some(uuid) = sample.labels.get("UUID") else { continue };
            devices.entry(uuid).or_default().take(scrape.sent, sample);
        }
    }
    let mut out: Vec<GpuStats> = devices.into_iter().map(|(uuid, d)| d.stats(uuid, span, output_tokens)).collect();
    out.sort_by_key(|g| g.device.parse::<u32>().unwrap_or(u32::MAX));
    out
}

/// What the scrapes say of one device, by series.
#[derive(Default)]
struct Device<'a> {
    index: &'a str,
    name: Option<&'a str>,
    /// By name and MIG slice; `""` is the card itself.
    series: BTreeMap<(&'a str, &'a str), Vec<(Offset, f64)>>,
}

impl<'a> Device<'a> {
    fn take(&mut self, at: Offset, sample: &'a Sample) {
        if let Some(index) = sample.labels.get("gpu") {
            self.index = index;
        }
        self.name = sample.labels.get("modelName").or(self.name);
        let slice = sample.labels.get("mig").or_else(|| sample.labels.get("GPU_I_ID")).unwrap_or("");
        self.series.entry((sample.labels.name(), slice)).or_default().push((at, sample.value));
    }

    fn of(&self, name: &'static str) -> &[(Offset, f64)] {
        let card = self.series.get(&(name, ""));
        let any_slice = || {
            Field::from_series(name).filter(|f| f.is_of_the_card())?;
            self.series.range((name, "")..).next().filter(|((n, _), _)| *n == name).map(|(_, v)| v)
        };
        card.or_else(any_slice).map_or(&[], Vec::as_slice)
    }

    /// The values of a field that are possible.
    fn values(&self, field: Field) -> Vec<(Offset, f64)> {
        self.of(field.series()).iter().filter_map(|&(at, v)| field.judge(v).ok().map(|v| (at, v))).collect()
    }

    fn spread(&self, field: Field) -> Spread {
        spread(self.values(field).into_iter().map(|(_, v)| v).collect())
    }

    fn stats(&self, uuid: &str, span: Span, output_tokens: Option<u64>) -> GpuStats {
        let energy = self.energy_j(span);
        let per_1k = |j: f64| output_tokens.filter(|&t| t > 0).map(|t| j * 1_000.0 / t as f64);
        let rounds = self.of("plimsoll_gpu_up").len().max(self.values(Field::SmClock).len());
        GpuStats {
            device: self.index.into(),
            uuid: uuid.into(),
            name: self.name.map(Into::into),
            samples: rounds.max(self.values(Field::Temperature).len()) as u64,
            sm_clock_mhz: self.spread(Field::SmClock),
            memory_clock_mhz: self.spread(Field::MemClock),
            temperature_c: self.spread(Field::Temperature),
            memory_temperature_c: self.spread(Field::MemoryTemperature),
            power_w: self.spread(Field::Power),
            utilization_pct: self.spread(Field::GpuUtilization),
            memory_used_mib: self.spread(Field::MemoryUsed),
            energy_j: energy.map(|(j, _)| j),
            energy_from: energy.map(|(_, from)| from),
            energy_j_per_1k_tokens: energy.and_then(|(j, _)| per_1k(j)),
            throttle_reasons: self.reasons(),
            neighbours: self.largest("plimsoll_gpu_neighbours").map(|n| n as u64),
            neighbour_memory_bytes: self.largest("plimsoll_gpu_neighbour_memory_bytes").map(|n| n as u64),
            neighbour_sm_pct: self.largest("plimsoll_gpu_neighbour_sm_percent"),
            ecc_uncorrected: growth(&self.values(Field::EccUncorrected)).map(|n| n as u64),
            xids: self.xids(),
            lost: self.of("plimsoll_gpu_up").iter().any(|&(_, up)| up == 0.0),
        }
    }

    fn largest(&self, name: &'static str) -> Option<f64> {
        self.of(name).iter().map(|&(_, v)| v).max_by(f64::total_cmp)
    }

    /// Joules over the span: the counter's growth, or the integral of the power where there is no counter or it
    /// was reset; either stretched from the first and last sample to the whole span.
    fn energy_j(&self, span: Span) -> Option<(f64, EnergyFrom)> {
        let stretch = |first: Offset, last: Offset| {
            let seen = last.since(first).as_secs_f64();
            (seen > 0.0).then(|| span.len().as_secs_f64() / seen)
        };
        let counter = self.values(Field::Energy);
        if let (Some(first), Some(last)) = (counter.first(), counter.last())
            && let Some(stretch) = stretch(first.0, last.0)
            && counter.windows(2).all(|w| w[1].1 >= w[0].1)
            // A counter that stands still while the card draws power is not one.
            && last.1 > first.1
        {
            return Some(((last.1 - first.1) / 1_000.0 * stretch, EnergyFrom::Counter));
        }
        let power = self.values(Field::Power);
        let stretch = stretch(power.first()?.0, power.last()?.0)?;
        let joules: f64 = power.windows(2).map(|w| (w[0].1 + w[1].1) / 2.0 * w[1].0.since(w[0].0).as_secs_f64()).sum();
        Some((joules * stretch, EnergyFrom::Power))
    }

    /// Reasons in the order of their bits; idleness is none.
    fn reasons(&self) -> Vec<ThrottleReason> {
        let masks: Vec<u64> = self.values(Field::ThrottleReasons).iter().map(|&(_, v)| v as u64).collect();
        let share = |bit: u64| masks.iter().filter(|&m| m & bit != 0).count() as f64 / masks.len() as f64;
        let known = REASONS.iter().filter(|r| r.weight != Weight::Ignored).map(|r| (r.bit, r.name.to_string()));
        let all_known: u64 = REASONS.iter().map(|r| r.bit).sum();
        let unknown =
            (0..63).map(|i| 1 << i).filter(|bit| all_known & bit == 0).map(|bit| (bit, format!("bit_{bit:#x}")));
        known
            .chain(unknown)
            .filter(|(bit, _)| masks.iter().any(|m| m & bit != 0))
            .map(|(bit, reason)| ThrottleReason { reason, share_ratio: share(bit) })
            .collect()
    }

    /// The XID codes that came up in the span: a gauge of the last code, so what it already showed at the
    /// first sample belongs to an earlier time.
    fn xids(&self) -> Vec<u32> {
        let seen = self.values(Field::Xid);
        let before = seen.first().map_or(0.0, |&(_, v)| v);
        let mut codes: Vec<u32> =
            seen.iter().map(|&(_, v)| v).filter(|&v| v != 0.0 && v != before).map(|v| v as u32).collect();
        codes.sort_unstable();
        codes.dedup();
        codes
    }
}

fn growth(values: &[(Offset, f64)]) -> Option<f64> {
    Some((values.last()?.1 - values.first()?.1).max(0.0))
}

/// Least, middle (the mean of two where their number is even) and largest.
fn spread(mut values: Vec<f64>) -> Spread {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    let median = match n {
        0 => None,
        _ if n % 2 == 1 => Some(values[n / 2]),
        _ => Some((values[n / 2 - 1] + values[n / 2]) / 2.0),
    };
    Spread { min: values.first().copied(), median, max: values.last().copied() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::{Labels, NAME};

    fn sample(gpu: &str, name: &str, value: f64) -> Sample {
        let uuid = format!("GPU-{gpu}");
        Sample { labels: Labels::new([(NAME, name), ("gpu", gpu), ("UUID", &uuid), ("modelName", "Mock")]), value }
    }

    fn scrape(at_s: u64, samples: Vec<Sample>) -> Scrape {
        let sent = Offset::from_millis(at_s * 1_000);
        Scrape { source: SourceKind::Gpu, target: 0, sent, received: sent, result: Ok(samples) }
    }

    fn span(from_s: u64, to_s: u64) -> Span {
        Span::new(Offset::from_millis(from_s * 1_000), Offset::from_millis(to_s * 1_000))
    }

    fn one(scrapes: &[Scrape], span: Span, tokens: Option<u64>) -> GpuStats {
        let mut all = stats(scrapes, span, tokens);
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    #[test]
    fn only_what_was_sent_in_the_span_counts() {
        let scrapes: Vec<Scrape> =
            (0..20).map(|t| scrape(t, vec![sample("0", "DCGM_FI_DEV_SM_CLOCK", 1_000.0 + t as f64)])).collect();
        let s = one(&scrapes, span(5, 9), None);
        assert_eq!(s.sm_clock_mhz, Spread { min: Some(1_005.0), median: Some(1_006.5), max: Some(1_008.0) });
        assert_eq!(s.samples, 4);
        assert_eq!(s.temperature_c, Spread::default(), "what was never read is unknown, not 0");
        assert_eq!((s.energy_j, s.ecc_uncorrected, s.neighbours, s.lost), (None, None, None, false));
        assert!(stats(&scrapes, span(30, 40), None).is_empty());
    }

    #[test]
    fn energy_comes_from_the_counter_and_else_from_the_power() {
        let counter: Vec<Scrape> = (0..10)
            .map(|t| scrape(t, vec![sample("0", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e9 + 500_000.0 * t as f64)]))
            .collect();
        // 9 s seen at 500 W, stretched to 10 s: 5,000 J; for 2,000 tokens 2,500 J a thousand.
        let s = one(&counter, span(0, 10), Some(2_000));
        assert_eq!((s.energy_j, s.energy_j_per_1k_tokens), (Some(5_000.0), Some(2_500.0)));
        assert_eq!(s.energy_from, Some(EnergyFrom::Counter));
        assert_eq!(one(&counter, span(0, 10), Some(0)).energy_j_per_1k_tokens, None);

        let power: Vec<Scrape> =
            (0..10).map(|t| scrape(t, vec![sample("0", "DCGM_FI_DEV_POWER_USAGE", 300.0)])).collect();
        let s = one(&power, span(0, 10), Some(1_000));
        assert_eq!((s.energy_j_per_1k_tokens, s.energy_from), (Some(3_000.0), Some(EnergyFrom::Power)));

        let reset: Vec<Scrape> = (0..10)
            .map(|t| {
                let mj = if t < 5 { 9e9 } else { 0.0 } + 1e5 * t as f64;
                scrape(
                    t,
                    vec![
                        sample("0", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", mj),
                        sample("0", "DCGM_FI_DEV_POWER_USAGE", 100.0),
                    ],
                )
            })
            .collect();
        assert_eq!(one(&reset, span(0, 10), None).energy_j, Some(1_000.0), "a reset counter is not believed");
        assert_eq!(one(&power[..1], span(0, 10), None).energy_j, None, "one sample spans no time");
    }

    #[test]
    fn reasons_have_their_share_and_idleness_is_none() {
        let masks = [0x1, 0x4, 0x4 | 0x20, 0x0, 0x28, 0x200];
        let scrapes: Vec<Scrape> = masks
            .iter()
            .enumerate()
            .map(|(t, &m)| scrape(t as u64, vec![sample("0", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", f64::from(m))]))
            .collect();
        let reasons = one(&scrapes, span(0, 6), None).throttle_reasons;
        let found: Vec<(&str, f64)> = reasons.iter().map(|r| (r.reason.as_str(), r.share_ratio * 6.0)).collect();
        assert_eq!(
            found,
            [("sw_power_cap", 2.0), ("hw_slowdown", 1.0), ("sw_thermal_slowdown", 2.0), ("bit_0x200", 1.0)]
        );
    }

    #[test]
    fn devices_come_by_index_and_errors_by_growth() {
        let at = |t: u64, ecc: f64, xid: f64, up: f64| {
            let mut samples = vec![sample("10", "DCGM_FI_DEV_GPU_TEMP", 50.0), sample("9", "plimsoll_gpu_up", up)];
            samples.push(sample("9", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", ecc));
            samples.push(sample("9", "DCGM_FI_DEV_XID_ERRORS", xid));
            scrape(t, samples)
        };
        let all = stats(&[at(0, 7.0, 13.0, 1.0), at(1, 7.0, 13.0, 1.0), at(2, 9.0, 79.0, 0.0)], span(0, 3), None);
        assert_eq!(all.iter().map(|g| g.device.as_str()).collect::<Vec<_>>(), ["9", "10"]);
        assert_eq!(all[0].ecc_uncorrected, Some(2));
        assert_eq!(all[0].xids, [79], "13 was there before the step");
        assert!(all[0].lost && !all[1].lost);
        assert_eq!(all[1].ecc_uncorrected, None);
    }

    #[test]
    fn a_mig_slice_speaks_for_the_card_only_of_what_they_share() {
        let slice = |id: &str, name: &str, value: f64| {
            let s = sample("0", name, value);
            Sample { labels: s.labels.with("GPU_I_ID", id), value }
        };
        let both = vec![slice("7", "DCGM_FI_DEV_FB_USED", 10.0), sample("0", "DCGM_FI_DEV_FB_USED", 90.0)];
        assert_eq!(one(&[scrape(0, both)], span(0, 1), None).memory_used_mib.max, Some(90.0));
        let slices = vec![
            slice("7", "DCGM_FI_DEV_FB_USED", 10.0),
            slice("7", "DCGM_FI_DEV_SM_CLOCK", 1_410.0),
            slice("8", "DCGM_FI_DEV_SM_CLOCK", 1_410.0),
        ];
        let s = one(&[scrape(0, slices)], span(0, 1), None);
        assert_eq!((s.memory_used_mib.max, s.sm_clock_mhz.max, s.samples), (None, Some(1_410.0), 1));
    }
}
