//! Seeded draws. Each is a function of (seed, what, index), so that no draw depends on how
//! many others came before it, nor on the order in which requests arrive.

/// Mixes three words into one; every bit of the result depends on every bit of the input.
pub fn mix(a: u64, b: u64, c: u64) -> u64 {
    let mut x = a ^ b.rotate_left(25).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ c.wrapping_mul(0xd1b5_4a32_d192_ed03);
    for _ in 0..2 {
        x ^= x >> 30;
        x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^= x >> 27;
        x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
    }
    x
}

/// A number in [0, 1).
pub fn unit(a: u64, b: u64, c: u64) -> f64 {
    (mix(a, b, c) >> 11) as f64 / (1_u64 << 53) as f64
}

/// A number of about the standard normal distribution: the sum of twelve uniform draws, less six.
/// Its tails end at 6, which is what a step time wants.
pub fn normal(a: u64, b: u64, c: u64) -> f64 {
    let start = mix(a, b, c);
    (0..12).map(|i| unit(start, i, 0)).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_spread_and_repeatable() {
        let draws: Vec<f64> = (0..10_000).map(|i| unit(7, 1, i)).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        assert_eq!(draws[5], unit(7, 1, 5));
        let sd = ((0..10_000).map(|i| normal(7, 2, i).powi(2)).sum::<f64>() / 10_000.0).sqrt();
        assert!((sd - 1.0).abs() < 0.05, "{sd}");
    }
}
