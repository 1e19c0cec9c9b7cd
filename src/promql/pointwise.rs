//! Functions of each element of a vector by itself, and sorting.

use super::eval::{Eval, Names};
use super::expr::Expr;
use super::func::Func;
use super::{Element, EvalError};

/// Evaluates a function that maps the values of a vector.
pub(super) fn evaluate(eval: &Eval<'_>, func: Func, args: &[Expr]) -> Result<Vec<Element>, EvalError> {
    let numbers = args[1..].iter().map(|a| eval.scalar(a)).collect::<Result<Vec<_>, _>>()?;
    let mut v = eval.vector(&args[0], Names::Drop)?;
    if let (Func::Clamp, [low, high]) = (func, numbers.as_slice())
        && high < low
    {
        return Ok(Vec::new());
    }
    v.iter_mut().for_each(|e| e.value = map(func, e.value, &numbers));
    Ok(v)
}

fn map(func: Func, v: f64, numbers: &[f64]) -> f64 {
    match (func, numbers) {
        (Func::Abs, _) => v.abs(),
        (Func::Acos, _) => v.acos(),
        (Func::Acosh, _) => v.acosh(),
        (Func::Asin, _) => v.asin(),
        (Func::Asinh, _) => v.asinh(),
        (Func::Atan, _) => v.atan(),
        (Func::Atanh, _) => v.atanh(),
        (Func::Ceil, _) => v.ceil(),
        (Func::Clamp, &[low, high]) => larger(low, smaller(high, v)),
        (Func::ClampMax, &[high]) => smaller(high, v),
        (Func::ClampMin, &[low]) => larger(low, v),
        (Func::Cos, _) => v.cos(),
        (Func::Cosh, _) => v.cosh(),
        (Func::Deg, _) => v * 180.0 / std::f64::consts::PI,
        (Func::Exp, _) => v.exp(),
        (Func::Floor, _) => v.floor(),
        (Func::Ln, _) => v.ln(),
        (Func::Log10, _) => v.log10(),
        (Func::Log2, _) => v.log2(),
        (Func::Rad, _) => v * std::f64::consts::PI / 180.0,
        (Func::Round, _) => {
            // Dividing by the inverse keeps 0.1 and its like exact.
            let inverse = 1.0 / numbers.first().copied().unwrap_or(1.0);
            (v * inverse + 0.5).floor() / inverse
        }
        (Func::Sgn, _) if v < 0.0 => -1.0,
        (Func::Sgn, _) if v > 0.0 => 1.0,
        (Func::Sgn, _) => v,
        (Func::Sin, _) => v.sin(),
        (Func::Sinh, _) => v.sinh(),
        (Func::Sqrt, _) => v.sqrt(),
        (Func::Tan, _) => v.tan(),
        (Func::Tanh, _) => v.tanh(),
        _ => unreachable!("every function of a vector is listed"),
    }
}

/// The larger of two; NaN if either is, unless the other is +Inf.
fn larger(a: f64, b: f64) -> f64 {
    if a == f64::INFINITY || b == f64::INFINITY {
        f64::INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.max(b)
    }
}

/// The smaller of two; NaN if either is, unless the other is -Inf.
fn smaller(a: f64, b: f64) -> f64 {
    -larger(-a, -b)
}

/// Sorted by value, NaN last either way.
pub(super) fn sorted(mut v: Vec<Element>, descending: bool) -> Vec<Element> {
    v.sort_by(|a, b| {
        let order = a.value.partial_cmp(&b.value).map(|o| if descending { o.reverse() } else { o });
        a.value.is_nan().cmp(&b.value.is_nan()).then(order.unwrap_or(std::cmp::Ordering::Equal))
    });
    v
}
