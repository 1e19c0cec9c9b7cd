//! The engine's mechanisms, one by one, on step times without jitter.

use super::cost::CostSpec;
use super::engine::Engine;
use super::fault::{Fault, FaultKind, Faults};
use super::profile::{EngineSpec, Policy, Profile, SpeculativeSpec};
use super::request::{Ask, Finish, Happening, StepOutput};
use crate::model::time::Offset;

/// An engine whose steps take 10 ms and 1 ms more for each prompt token.
fn engine(change: impl FnOnce(&mut EngineSpec)) -> Engine {
    let mut spec = EngineSpec {
        max_num_seqs: 8,
        max_num_batched_tokens: 100,
        max_model_len: 160,
        block_size: 10,
        num_gpu_blocks: 17,
        async_scheduling: false,
        ..EngineSpec::default()
    };
    change(&mut spec);
    let cost = CostSpec {
        base_us: 10_000.0,
        prefill_us: 1_000.0,
        decode_us: 0.0,
        draft_us: 0.0,
        drafter_us: 0.0,
        context_us: 0.0,
        attention_us: 0.0,
        jitter: 0.0,
        ..CostSpec::default()
    };
    let profile = Profile { engine: spec, cost, ..Profile::default() };
    profile.validate().unwrap();
    Engine::new(&profile, 1, 0)
}

/// A request whose prompt is `prompt` tokens that only it has.
fn ask(id: u64, prompt: u32, answer: usize) -> Ask {
    Ask {
        id,
        prompt: (0..prompt).map(|i| (id as u32 + 1) * 10_000 + i).collect(),
        max_tokens: answer,
        stops_at: None,
        key: id,
        priority: 0,
        greedy: true,
        grammar_us: None,
    }
}

const fn ms(n: u64) -> Offset {
    Offset::from_millis(n)
}

/// Everything that the engine says by `until`.
fn run(engine: &mut Engine, until: Offset) -> Vec<StepOutput> {
    std::iter::from_fn(|| engine.advance(until, &Faults::default())).collect()
}

/// Where each request's tokens came, as (instant in ms, request, tokens).
fn told(outputs: &[StepOutput]) -> Vec<(u64, u64, usize)> {
    outputs.iter().flat_map(|o| o.items.iter().map(|i| (o.at.as_millis(), i.id, i.tokens.len()))).collect()
}

/// (instant, running, capacity, deferred) after each step.
fn gauges(outputs: &[StepOutput]) -> Vec<(u64, usize, usize, usize)> {
    outputs.iter().map(|o| (o.at.as_millis(), o.stats.running, o.stats.capacity, o.stats.deferred)).collect()
}

#[test]
fn a_prompt_takes_one_step_and_each_token_another() {
    let mut e = engine(|_| {});
    e.submit(ask(1, 20, 3), ms(5));
    let outputs = run(&mut e, ms(1_000));
    assert_eq!(told(&outputs), [(35, 1, 1), (45, 1, 1), (55, 1, 1)]);
    let first = &outputs[0].items[0];
    assert_eq!(first.happenings, [Happening::Queued(ms(5)), Happening::Scheduled(ms(5))]);
    assert_eq!(first.cached, Some(0));
    assert_eq!(outputs[2].items[0].finish, Some(Finish::Length));
    assert_eq!(outputs[0].stats.kv_usage, 2.0 / 16.0, "20 tokens hold two blocks of sixteen");
    assert_eq!(outputs[1].stats.kv_usage, 3.0 / 16.0, "the first token's state needs a third");
    assert_eq!(outputs[2].stats.kv_usage, 0.0);
    assert_eq!(e.next_event(), None);
}

#[test]
fn a_long_prompt_is_cut_to_the_budget_and_shares_steps_with_decodes() {
    let mut e = engine(|s| s.max_num_batched_tokens = 32);
    e.submit(ask(1, 10, 5), ms(0));
    e.submit(ask(2, 70, 2), ms(1));
    // Step 1: 10 tokens. Then 31 of the long prompt beside a decode, 31 more, and the last 8.
    assert_eq!(
        told(&run(&mut e, ms(1_000))),
        [(20, 1, 1), (61, 1, 1), (102, 1, 1), (120, 1, 1), (120, 2, 1), (130, 1, 1), (130, 2, 1)]
    );
}

#[test]
fn a_threshold_caps_a_long_prompt_only_while_others_are_there() {
    for (others, want) in [(false, 90), (true, 70)] {
        let mut e = engine(|s| s.long_prefill_token_threshold = 50);
        if others {
            e.submit(ask(1, 10, 1), ms(0));
        }
        e.submit(ask(2, 80, 1), ms(0));
        let outputs = run(&mut e, ms(1_000));
        assert_eq!(outputs[0].at, ms(want), "first step with others {others}");
    }
}

#[test]
fn without_chunks_a_prompt_that_does_not_fit_stops_the_queue() {
    let mut e = engine(|s| {
        s.max_model_len = 100;
        s.enable_chunked_prefill = false;
    });
    for (id, prompt) in [(1, 60), (2, 60), (3, 10)] {
        e.submit(ask(id, prompt, 1), ms(0));
    }
    assert_eq!(told(&run(&mut e, ms(1_000))), [(70, 1, 1), (150, 2, 1), (150, 3, 1)]);
}

#[test]
fn seats_are_filled_in_order_and_the_rest_waits_for_capacity() {
    let mut e = engine(|s| s.max_num_seqs = 2);
    for id in 1..=3 {
        e.submit(ask(id, 5, 2), ms(0));
    }
    let outputs = run(&mut e, ms(1_000));
    assert_eq!(told(&outputs), [(20, 1, 1), (20, 2, 1), (30, 1, 1), (30, 2, 1), (45, 3, 1), (55, 3, 1)]);
    assert_eq!(gauges(&outputs)[..3], [(20, 2, 1, 0), (30, 0, 1, 0), (45, 1, 0, 0)]);
}

#[test]
fn admission_reserves_the_whole_prompt_not_the_first_chunk() {
    // 16 blocks; a request of 100 tokens holds 10, and the next needs 10 where 6 are left.
    for (reserve, running) in [(true, 1), (false, 2)] {
        let mut e = engine(|s| {
            s.max_num_batched_tokens = 130;
            s.scheduler_reserve_full_isl = reserve;
        });
        e.submit(ask(1, 100, 4), ms(0));
        e.submit(ask(2, 100, 1), ms(0));
        let first = &run(&mut e, ms(1_000))[0];
        assert_eq!(first.stats.running, running, "reserve {reserve}");
        assert!(first.stats.kv_usage < 0.9, "requests wait while the pool reads {}", first.stats.kv_usage);
    }
}

#[test]
fn a_watermark_keeps_blocks_free_once_something_runs() {
    for (watermark, running) in [(0.0, 2), (0.2, 1)] {
        let mut e = engine(|s| {
            s.max_num_batched_tokens = 160;
            s.watermark = watermark;
        });
        e.submit(ask(1, 80, 3), ms(0));
        e.submit(ask(2, 60, 3), ms(0));
        assert_eq!(run(&mut e, ms(1_000))[0].stats.running, running, "watermark {watermark}");
    }
}

#[test]
fn growth_throws_out_the_last_and_recomputes_it() {
    // Two requests of 75 tokens hold 8 blocks each: the pool is full, and breaks at 80 tokens.
    let mut e = engine(|s| s.max_num_batched_tokens = 160);
    e.submit(ask(1, 75, 20), ms(0));
    e.submit(ask(2, 75, 20), ms(0));
    let outputs = run(&mut e, ms(5_000));
    let full = outputs.iter().find(|o| o.stats.kv_usage == 1.0).expect("the pool fills up");
    assert_eq!(full.stats.running, 2);
    let first = outputs.iter().position(|o| o.stats.capacity == 1).expect("the victim waits for capacity");
    assert_eq!(outputs[first].stats.running, 1);
    let told_at = outputs
        .iter()
        .position(|o| o.items.iter().any(|i| i.id == 2 && i.happenings.contains(&Happening::Preempted)))
        .expect("the preemption is told with the victim's next token");
    assert!(told_at > first + 5, "and that comes only after it was admitted again");
    let count: usize = told(&outputs).iter().filter(|(_, id, _)| *id == 2).map(|(_, _, n)| n).sum();
    assert_eq!(count, 20, "it loses no token");
    assert_eq!(outputs.iter().map(|o| o.stats.cache_queries).sum::<u64>(), 150, "a second admission is not counted");
}

#[test]
fn nobody_is_admitted_in_a_step_that_threw_someone_out() {
    let mut e = engine(|s| s.max_num_batched_tokens = 160);
    e.submit(ask(1, 75, 30), ms(0));
    e.submit(ask(2, 75, 30), ms(0));
    e.submit(ask(3, 5, 2), ms(170));
    let outputs = run(&mut e, ms(5_000));
    let thrown = outputs.iter().position(|o| o.stats.running == 1).expect("one was thrown out");
    assert_eq!(outputs[thrown].stats.capacity, 2, "the small request would fit, but waits behind the victim");
}

#[test]
fn a_shared_prefix_is_found_and_the_last_token_never() {
    let mut e = engine(|_| {});
    e.submit(ask(1, 40, 1), ms(0));
    let again = Ask { id: 2, ..ask(1, 40, 1) };
    e.submit(again, ms(200));
    let mut longer = ask(1, 40, 1);
    longer.id = 3;
    longer.prompt.extend(90_000..90_020);
    e.submit(longer, ms(400));
    let outputs = run(&mut e, ms(1_000));
    let hits: Vec<u64> = outputs.iter().map(|o| o.stats.cache_hits).filter(|h| *h > 0).collect();
    assert_eq!(hits, [30, 40], "the whole prompt is known, but its last block is computed for the logits");
    assert_eq!(outputs[1].at, ms(220), "only ten tokens were computed");
}

#[test]
fn priority_decides_who_comes_and_who_goes() {
    let mut e = engine(|s| {
        s.policy = Policy::Priority;
        s.max_num_seqs = 1;
    });
    for (id, priority) in [(1, 0), (2, 5), (3, -1)] {
        e.submit(Ask { priority, ..ask(id, 5, 1) }, ms(0));
    }
    let order: Vec<u64> = told(&run(&mut e, ms(1_000))).iter().map(|(_, id, _)| *id).collect();
    assert_eq!(order, [3, 1, 2]);

    let mut e = engine(|s| {
        s.policy = Policy::Priority;
        s.max_num_batched_tokens = 160;
    });
    e.submit(Ask { priority: 9, ..ask(1, 75, 20) }, ms(0));
    e.submit(Ask { priority: 0, ..ask(2, 75, 20) }, ms(0));
    let outputs = run(&mut e, ms(5_000));
    let ends: Vec<u64> = outputs.iter().flat_map(|o| &o.items).filter(|i| i.finish.is_some()).map(|i| i.id).collect();
    assert_eq!(ends, [2, 1], "the less important one was thrown out, though it came first");
}

#[test]
fn a_grammar_defers_a_request_and_others_pass_it() {
    let mut e = engine(|_| {});
    e.submit(Ask { grammar_us: Some(50_000), ..ask(1, 5, 1) }, ms(0));
    e.submit(ask(2, 5, 2), ms(0));
    let outputs = run(&mut e, ms(1_000));
    assert_eq!(gauges(&outputs)[0], (15, 1, 0, 1));
    assert_eq!(told(&outputs).last(), Some(&(65, 1, 1)), "it starts when its grammar is compiled");
}

#[test]
fn asynchronous_scheduling_admits_one_step_later() {
    // A request arrives while a step runs; the step behind that one was scheduled already.
    for (asynchronous, want) in [(false, 45), (true, 55)] {
        let mut e = engine(|s| s.async_scheduling = asynchronous);
        e.submit(ask(1, 5, 10), ms(0));
        e.submit(ask(2, 10, 1), ms(16));
        let outputs = run(&mut e, ms(1_000));
        let first = told(&outputs).into_iter().find(|(_, id, _)| *id == 2).unwrap();
        assert_eq!(first.0, want, "asynchronous {asynchronous}");
        let own: usize = told(&outputs).iter().filter(|(_, id, _)| *id == 1).map(|(_, _, n)| n).sum();
        assert_eq!(own, 10, "no step too many and none too few");
    }
}

#[test]
fn under_asynchronous_scheduling_a_preemption_is_told_by_the_step_in_flight() {
    let mut e = engine(|s| {
        s.max_num_batched_tokens = 160;
        s.async_scheduling = true;
    });
    e.submit(ask(1, 75, 20), ms(0));
    e.submit(ask(2, 75, 20), ms(0));
    let outputs = run(&mut e, ms(5_000));
    let thrown = outputs.iter().position(|o| o.stats.running == 1).unwrap();
    let told_at =
        outputs.iter().position(|o| o.items.iter().any(|i| i.happenings.contains(&Happening::Preempted))).unwrap();
    assert!(told_at <= thrown + 1, "thrown out at {thrown}, told at {told_at}");
    let tokens: usize = told(&outputs).iter().map(|(_, _, n)| n).sum();
    assert_eq!(tokens, 40);
}

#[test]
fn drafts_put_several_tokens_into_one_message() {
    for asynchronous in [false, true] {
        let mut e = engine(|s| {
            s.async_scheduling = asynchronous;
            s.speculative = Some(SpeculativeSpec {
                num_speculative_tokens: 3,
                acceptance: vec![1.0, 1.0, 0.0],
                draft_rate: 1.0,
                greedy_only: true,
                lookahead: 0,
            });
        });
        e.submit(ask(1, 5, 10), ms(0));
        let outputs = run(&mut e, ms(1_000));
        let sizes: Vec<usize> = told(&outputs).iter().map(|(_, _, n)| *n).collect();
        assert_eq!(sizes, [1, 3, 3, 3], "asynchronous {asynchronous}");
        let sum = |of: fn(&StepOutput) -> u64| outputs.iter().map(of).sum::<u64>();
        assert_eq!(sum(|o| o.stats.drafts), 3);
        assert_eq!(sum(|o| o.stats.draft_tokens), 9);
        assert_eq!(sum(|o| o.stats.accepted.iter().sum()), 6);
    }
}

#[test]
fn a_client_that_leaves_frees_its_seat_and_says_nothing() {
    let mut e = engine(|s| s.max_num_seqs = 1);
    e.submit(ask(1, 5, 100), ms(0));
    e.submit(ask(2, 5, 1), ms(0));
    let before = run(&mut e, ms(50));
    assert!(before.last().unwrap().stats.capacity == 1);
    e.abort(1);
    let after = run(&mut e, ms(1_000));
    assert!(after.iter().flat_map(|o| &o.items).all(|i| i.id == 2));
    assert_eq!(after.last().unwrap().stats.kv_usage, 0.0);
    assert_eq!(gauges(&after).last().unwrap().1, 0, "one more step brings the gauges back to 0");
}

#[test]
fn a_frozen_engine_makes_no_step() {
    let mut e = engine(|_| {});
    let freeze = Fault {
        at: std::time::Duration::from_millis(25),
        lasts: Some(std::time::Duration::from_millis(100)),
        kind: FaultKind::Freeze,
    };
    let faults = Faults(vec![freeze]);
    e.submit(ask(1, 5, 3), ms(0));
    let outputs: Vec<StepOutput> = std::iter::from_fn(|| e.advance(ms(1_000), &faults)).collect();
    assert_eq!(told(&outputs), [(15, 1, 1), (25, 1, 1), (135, 1, 1)]);
}

#[test]
fn an_engine_that_is_frozen_for_good_schedules_nothing_behind_the_step_it_froze_in() {
    for ahead in [false, true] {
        let mut e = engine(|s| s.async_scheduling = ahead);
        let at = std::time::Duration::from_millis(25);
        let faults = Faults(vec![Fault { at, lasts: None, kind: FaultKind::Freeze }]);
        e.submit(ask(1, 5, 9), ms(0));
        let outputs: Vec<StepOutput> = std::iter::from_fn(|| e.advance(ms(10_000), &faults)).collect();
        assert_eq!(outputs.last().unwrap().at, ms(25), "{ahead}");
        e.submit(ask(2, 5, 9), ms(20_000));
        assert!(e.advance(ms(30_000), &faults).is_none(), "{ahead}");
    }
}

#[test]
fn the_cache_is_reset_only_while_nothing_holds_it() {
    let mut e = engine(|_| {});
    e.submit(ask(1, 40, 5), ms(0));
    run(&mut e, ms(60));
    assert!(!e.reset_prefix_cache());
    run(&mut e, ms(1_000));
    assert!(e.reset_prefix_cache());
    e.submit(Ask { id: 2, ..ask(1, 40, 1) }, ms(1_000));
    assert!(run(&mut e, ms(2_000)).iter().all(|o| o.stats.cache_hits == 0));
}
