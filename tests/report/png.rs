//! The main plot as a picture: drawn without any font of the machine, the same on each.

use plimsoll::model::verdict::Verdict;
use plimsoll::report::{json, png};
use resvg::tiny_skia::Pixmap;

fn verdict(name: &str) -> Verdict {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verdicts").join(format!("{name}.json"));
    json::read(&std::fs::read_to_string(path).expect("the verdict is there")).expect("it is a verdict")
}

fn drawn(v: &Verdict) -> Pixmap {
    let bytes = png::picture(v).expect("it can be drawn").expect("there is something to draw");
    assert_eq!(Some(bytes.as_slice()), png::picture(v).expect("again").as_deref(), "not the same twice");
    Pixmap::decode_png(&bytes).expect("a PNG")
}

/// Pixels of a part of the picture, in shares of it, that are not paper.
fn inked(p: &Pixmap, (x0, x1): (f32, f32), (y0, y1): (f32, f32)) -> usize {
    let place = |share: f32, of: u32| (share * of as f32) as u32;
    let (w, h) = (p.width(), p.height());
    let dark = |x: u32, y: u32| p.pixel(x, y).is_some_and(|c| c.red() < 200 || c.green() < 200 || c.blue() < 200);
    let rows = place(y0, h)..place(y1, h);
    rows.map(|y| (place(x0, w)..place(x1, w)).filter(|x| dark(*x, y)).count()).sum()
}

#[test]
fn the_picture_has_its_words_and_its_lines() {
    let v = verdict("alert");
    let picture = drawn(&v);
    assert_eq!((picture.width(), picture.height()), (1_984, 896));
    // The answer above, the words of the axis at the left, the lines: each would be missing without its part.
    assert!(inked(&picture, (0.0, 1.0), (0.02, 0.06)) > 500, "no line of what was run");
    assert!(inked(&picture, (0.0, 1.0), (0.09, 0.16)) > 2_000, "no answer");
    assert!(inked(&picture, (0.008, 0.06), (0.32, 0.9)) > 300, "no words at the axis");
    let vermilion = |c: resvg::tiny_skia::PremultipliedColorU8| (c.red(), c.green(), c.blue()) == (0xd5, 0x5e, 0x00);
    assert!(picture.pixels().iter().any(|c| vermilion(*c)), "no line of the first token");
    // Other words, other pixels.
    let other = Verdict { scenario: "another".into(), ..v.clone() };
    assert_ne!(drawn(&other).data(), picture.data());
}

#[test]
fn hostile_names_and_letters_without_a_glyph_are_drawn_as_far_as_can_be() {
    let mut v = verdict("hostile");
    drawn(&v);
    for name in ["</text><script>alert(1)</script>", "模型 🚢 \u{202e}\u{0}", &"long ".repeat(400), ""] {
        v.target.model = name.into();
        v.scenario = name.into();
        drawn(&v);
    }
}

#[test]
fn nothing_measured_is_no_picture() {
    let v = Verdict { steps: Vec::new(), ..verdict("alert") };
    assert_eq!(png::picture(&v).expect("it can be drawn"), None);
}
