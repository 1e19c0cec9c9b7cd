//! A page: never a panic, and a parser that remembers gives what a fresh one gives.

#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll::scrape::exposition::{Format, Parser};

fuzz_target!(|page: &[u8]| {
    for format in [Format::Text, Format::OpenMetrics] {
        let fresh = Parser::new().parse(page, format);
        let mut remembering = Parser::new();
        // The second half first, so that the memory holds lines of this page in another order.
        let _ = remembering.parse(&page[page.len() / 2..], format);
        for _ in 0..2 {
            let again = remembering.parse(page, format);
            assert_eq!(format!("{fresh:?}"), format!("{again:?}"));
        }
    }
});
