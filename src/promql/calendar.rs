//! `hour()`, `day_of_week()` and their like: the parts of a date, in UTC.

use jiff::Timestamp;
use jiff::tz::Offset;

use super::Element;
use super::func::Func;

/// Whether `func` is answered here.
pub(super) const fn is_about_dates(func: Func) -> bool {
    use Func::*;
    matches!(func, DayOfMonth | DayOfWeek | DayOfYear | DaysInMonth | Hour | Minute | Month | Year)
}

/// Maps Unix seconds to a part of their date.
pub(super) fn evaluate(func: Func, mut v: Vec<Element>) -> Vec<Element> {
    v.iter_mut().for_each(|e| e.value = part(func, e.value).unwrap_or(f64::NAN));
    v
}

/// `None` beyond the years -9999 to 9999.
fn part(func: Func, unix_s: f64) -> Option<f64> {
    if !unix_s.is_finite() {
        return None;
    }
    let at = Offset::UTC.to_datetime(Timestamp::from_second(unix_s as i64).ok()?);
    Some(match func {
        Func::Minute => f64::from(at.minute()),
        Func::Hour => f64::from(at.hour()),
        Func::DayOfWeek => f64::from(at.weekday().to_sunday_zero_offset()),
        Func::DayOfMonth => f64::from(at.day()),
        Func::DayOfYear => f64::from(at.day_of_year()),
        Func::DaysInMonth => f64::from(at.days_in_month()),
        Func::Month => f64::from(at.month()),
        _ => f64::from(at.year()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_their_parts() {
        use Func::*;
        // 2024-02-29T13:45:30Z, a Thursday in a leap year.
        for (func, n) in [
            (Year, 2024.0),
            (Month, 2.0),
            (DayOfMonth, 29.0),
            (DaysInMonth, 29.0),
            (DayOfYear, 60.0),
            (DayOfWeek, 4.0),
            (Hour, 13.0),
            (Minute, 45.0),
        ] {
            assert_eq!(part(func, 1_709_214_330.0), Some(n), "{func:?}");
        }
        assert_eq!(part(Year, -1.0), Some(1969.0));
        assert_eq!(part(Year, f64::NAN), None);
    }
}
