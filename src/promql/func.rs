//! The functions that can be evaluated, by name and type.

use super::expr::Type;

macro_rules! functions {
    ($($variant:ident $name:literal ($($arg:ident),*) -> $ret:ident,)*) => {
        /// A function of PromQL that can be evaluated.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is the PromQL function of that name")]
        pub enum Func { $($variant,)* }

        impl Func {
            /// Every one, in order of name.
            pub const ALL: &'static [Func] = &[$(Func::$variant,)*];

            /// Its name in PromQL.
            pub const fn name(self) -> &'static str {
                match self { $(Func::$variant => $name,)* }
            }

            /// What its arguments are; the optional ones included.
            pub const fn takes(self) -> &'static [Type] {
                match self { $(Func::$variant => &[$(Type::$arg),*],)* }
            }

            /// What it returns.
            pub const fn returns(self) -> Type {
                match self { $(Func::$variant => Type::$ret,)* }
            }
        }
    };
}

functions! {
    Abs "abs" (Vector) -> Vector,
    Absent "absent" (Vector) -> Vector,
    AbsentOverTime "absent_over_time" (Matrix) -> Vector,
    Acos "acos" (Vector) -> Vector,
    Acosh "acosh" (Vector) -> Vector,
    Asin "asin" (Vector) -> Vector,
    Asinh "asinh" (Vector) -> Vector,
    Atan "atan" (Vector) -> Vector,
    Atanh "atanh" (Vector) -> Vector,
    AvgOverTime "avg_over_time" (Matrix) -> Vector,
    Ceil "ceil" (Vector) -> Vector,
    Changes "changes" (Matrix) -> Vector,
    Clamp "clamp" (Vector, Scalar, Scalar) -> Vector,
    ClampMax "clamp_max" (Vector, Scalar) -> Vector,
    ClampMin "clamp_min" (Vector, Scalar) -> Vector,
    Cos "cos" (Vector) -> Vector,
    Cosh "cosh" (Vector) -> Vector,
    CountOverTime "count_over_time" (Matrix) -> Vector,
    DayOfMonth "day_of_month" (Vector) -> Vector,
    DayOfWeek "day_of_week" (Vector) -> Vector,
    DayOfYear "day_of_year" (Vector) -> Vector,
    DaysInMonth "days_in_month" (Vector) -> Vector,
    Deg "deg" (Vector) -> Vector,
    Delta "delta" (Matrix) -> Vector,
    Deriv "deriv" (Matrix) -> Vector,
    Exp "exp" (Vector) -> Vector,
    Floor "floor" (Vector) -> Vector,
    HistogramQuantile "histogram_quantile" (Scalar, Vector) -> Vector,
    Hour "hour" (Vector) -> Vector,
    Idelta "idelta" (Matrix) -> Vector,
    Increase "increase" (Matrix) -> Vector,
    Irate "irate" (Matrix) -> Vector,
    LabelJoin "label_join" (Vector, Text, Text, Text) -> Vector,
    LabelReplace "label_replace" (Vector, Text, Text, Text, Text) -> Vector,
    LastOverTime "last_over_time" (Matrix) -> Vector,
    Ln "ln" (Vector) -> Vector,
    Log10 "log10" (Vector) -> Vector,
    Log2 "log2" (Vector) -> Vector,
    MaxOverTime "max_over_time" (Matrix) -> Vector,
    MinOverTime "min_over_time" (Matrix) -> Vector,
    Minute "minute" (Vector) -> Vector,
    Month "month" (Vector) -> Vector,
    Pi "pi" () -> Scalar,
    PredictLinear "predict_linear" (Matrix, Scalar) -> Vector,
    PresentOverTime "present_over_time" (Matrix) -> Vector,
    QuantileOverTime "quantile_over_time" (Scalar, Matrix) -> Vector,
    Rad "rad" (Vector) -> Vector,
    Rate "rate" (Matrix) -> Vector,
    Resets "resets" (Matrix) -> Vector,
    Round "round" (Vector, Scalar) -> Vector,
    Scalar "scalar" (Vector) -> Scalar,
    Sgn "sgn" (Vector) -> Vector,
    Sin "sin" (Vector) -> Vector,
    Sinh "sinh" (Vector) -> Vector,
    Sort "sort" (Vector) -> Vector,
    SortDesc "sort_desc" (Vector) -> Vector,
    Sqrt "sqrt" (Vector) -> Vector,
    StddevOverTime "stddev_over_time" (Matrix) -> Vector,
    StdvarOverTime "stdvar_over_time" (Matrix) -> Vector,
    SumOverTime "sum_over_time" (Matrix) -> Vector,
    Tan "tan" (Vector) -> Vector,
    Tanh "tanh" (Vector) -> Vector,
    Time "time" () -> Scalar,
    Timestamp "timestamp" (Vector) -> Vector,
    Vector "vector" (Scalar) -> Vector,
    Year "year" (Vector) -> Vector,
}

impl Func {
    /// The function of that name.
    pub fn named(name: &str) -> Option<Func> {
        Func::ALL.iter().copied().find(|f| f.name() == name)
    }
}

/// Functions that Prometheus knows and we refuse, with the reason.
pub(super) fn refusal(name: &str) -> Option<&'static str> {
    Some(match name {
        "histogram_avg" | "histogram_count" | "histogram_fraction" | "histogram_stddev" | "histogram_stdvar"
        | "histogram_sum" => "native histograms are not scraped",
        "double_exponential_smoothing"
        | "holt_winters"
        | "first_over_time"
        | "histogram_quantiles"
        | "info"
        | "integral"
        | "mad_over_time"
        | "max_of"
        | "min_of"
        | "sort_by_label"
        | "sort_by_label_desc"
        | "ts_of_first_over_time"
        | "ts_of_last_over_time"
        | "ts_of_max_over_time"
        | "ts_of_min_over_time"
        | "limitk"
        | "limit_ratio"
        | "step"
        | "range" => "a stock Prometheus does not load it, or not under that name",
        _ => return None,
    })
}
