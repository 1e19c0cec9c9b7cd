//! Arrays of numbers, written and read by hand: they are nearly all of a recording.
//!
//! An hour of 64 streams holds some eleven million gaps. A scanner that knows that only small
//! whole numbers come reads them several times faster than a general one; where it meets
//! anything else it gives up, and the caller reads the line the general way.

/// Appends `n` in decimal.
pub(super) fn push_int(out: &mut Vec<u8>, n: i64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = n.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if n < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a value so that reading gives the same bits: the shortest decimal that does, and
/// `"NaN"`, `"+Inf"`, `"-Inf"` in quotes, since JSON has no such numbers.
pub(super) fn push_float(out: &mut Vec<u8>, v: f64) {
    use std::io::Write as _;
    let whole = v as i64;
    if v.is_nan() {
        out.extend_from_slice(b"\"NaN\"");
    } else if v.is_infinite() {
        out.extend_from_slice(if v > 0.0 { b"\"+Inf\"" } else { b"\"-Inf\"" });
    } else if whole.unsigned_abs() < 1 << 53 && (whole as f64).to_bits() == v.to_bits() {
        push_int(out, whole);
    } else if (1e-5..1e17).contains(&v.abs()) {
        write!(out, "{v}").expect("writing to memory does not fail");
    } else if v == 0.0 {
        // The only zero that is not whole above: the negative one.
        out.extend_from_slice(b"-0.0");
    } else {
        write!(out, "{v:e}").expect("writing to memory does not fail");
    }
}

/// Reads `[1,-2,3]` at the head of `text`, giving each number to `each`; gives what follows
/// the bracket. `None` if it is anything but whole numbers below 10^18 without blanks.
pub(super) fn scan_ints(text: &[u8], mut each: impl FnMut(i64)) -> Option<&[u8]> {
    let text = text.strip_prefix(b"[")?;
    if let Some(rest) = text.strip_prefix(b"]") {
        return Some(rest);
    }
    let mut at = 0;
    loop {
        let (n, next) = scan_int(text, at)?;
        each(n);
        at = next + 1;
        match text.get(next)? {
            b',' => {}
            b']' => return Some(&text[at..]),
            _ => return None,
        }
    }
}

/// Reads `[0,4,17,"NaN"]` at the head of `text`: positions and values in turn.
pub(super) fn scan_changes(text: &[u8], mut each: impl FnMut(usize, f64)) -> Option<&[u8]> {
    let text = text.strip_prefix(b"[")?;
    if let Some(rest) = text.strip_prefix(b"]") {
        return Some(rest);
    }
    let mut at = 0;
    loop {
        let (position, next) = scan_int(text, at)?;
        if text.get(next) != Some(&b',') {
            return None;
        }
        let (value, next) = scan_float(text, next + 1)?;
        each(usize::try_from(position).ok()?, value);
        at = next + 1;
        match text.get(next)? {
            b',' => {}
            b']' => return Some(&text[at..]),
            _ => return None,
        }
    }
}

/// A whole number at `at`, and where it ends.
#[inline]
fn scan_int(text: &[u8], at: usize) -> Option<(i64, usize)> {
    let negative = text.get(at) == Some(&b'-');
    let start = at + usize::from(negative);
    let mut at = start;
    let mut n = 0_i64;
    while let Some(digit) = text.get(at).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
        n = n.wrapping_mul(10).wrapping_add(i64::from(digit));
        at += 1;
    }
    // Up to 18 digits nothing can have overflowed.
    (at > start && at - start <= 18).then_some((if negative { -n } else { n }, at))
}

/// A value at `at`, and where it ends.
fn scan_float(text: &[u8], at: usize) -> Option<(f64, usize)> {
    if let Some((n, end)) = scan_int(text, at)
        && matches!(text.get(end), Some(b',' | b']'))
        && n.unsigned_abs() < 1 << 53
        && (n != 0 || text[at] != b'-')
    {
        return Some((n as f64, end));
    }
    let end = at + text[at..].iter().position(|b| matches!(b, b',' | b']'))?;
    let value = match &text[at..end] {
        b"\"NaN\"" => f64::NAN,
        b"\"+Inf\"" => f64::INFINITY,
        b"\"-Inf\"" => f64::NEG_INFINITY,
        token => std::str::from_utf8(token).ok()?.parse().ok().filter(|v: &f64| v.is_finite())?,
    };
    Some((value, end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ints_read_back(ints in prop::collection::vec(-999_999_999_999_999_999_i64..=999_999_999_999_999_999, 0..20)) {
            let mut text = b"[".to_vec();
            for (i, n) in ints.iter().enumerate() {
                if i > 0 { text.push(b','); }
                push_int(&mut text, *n);
            }
            text.extend_from_slice(b"],rest");
            let mut read = Vec::new();
            prop_assert_eq!(scan_ints(&text, |n| read.push(n)), Some(&b",rest"[..]));
            prop_assert_eq!(read, ints);
        }

        #[test]
        fn floats_read_back_to_the_bit(bits in any::<u64>(), whole in any::<i64>()) {
            for v in [f64::from_bits(bits), whole as f64, (whole % 1_000_000) as f64 / 1_000.0] {
                let mut text = b"[3,".to_vec();
                push_float(&mut text, v);
                let json = String::from_utf8(text[3..].to_vec()).unwrap();
                prop_assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{} is no JSON", json);
                text.push(b']');
                let mut read = Vec::new();
                prop_assert_eq!(scan_changes(&text, |p, v| read.push((p, v))), Some(&b""[..]));
                prop_assert_eq!(read[0].0, 3);
                prop_assert!(read[0].1.to_bits() == v.to_bits() || (v.is_nan() && read[0].1.is_nan()));
            }
        }
    }

    #[test]
    fn special_floats_read_back() {
        for v in [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1e300, 5e-324, f64::MAX, 9_007_199_254_740_993.0, -1.5] {
            let mut text = b"[0,".to_vec();
            push_float(&mut text, v);
            text.push(b']');
            let mut read = f64::NAN;
            scan_changes(&text, |_, v| read = v).unwrap();
            assert_eq!(read.to_bits(), v.to_bits(), "{}", String::from_utf8_lossy(&text));
        }
    }

    #[test]
    fn anything_else_is_left_to_the_general_reader() {
        for text in ["", "[", "[1", "[1,", "[,]", "[1 ,2]", "[1.5]", "[-]", "[1234567890123456789]", "[null]"] {
            assert!(scan_ints(text.as_bytes(), |_| ()).is_none(), "{text}");
        }
        for text in ["[1]", "[1,]", "[1,\"x\"]", "[-1,2]", "[1,inf]", "[1,2,3]"] {
            assert!(scan_changes(text.as_bytes(), |_, _| ()).is_none(), "{text}");
        }
    }
}
