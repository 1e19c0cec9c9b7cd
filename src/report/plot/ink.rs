//! The colours of the plots: those of Okabe and Ito, which people with any colour vision can
//! tell apart, and the greys around them.

use plotters::style::RGBColor;

/// Text that is to be read.
pub const TEXT: RGBColor = RGBColor(0x1b, 0x1f, 0x24);
/// Text of axes.
pub const MUTED: RGBColor = RGBColor(0x59, 0x63, 0x6e);
/// Lines of the grid.
pub const GRID: RGBColor = RGBColor(0xd8, 0xde, 0xe4);
/// Every other step's background.
pub const BAND: RGBColor = RGBColor(0xf0, 0xf3, 0xf6);
/// Paper, for what must stand off from it.
pub const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);

/// Blue: the server, and the gaps.
pub const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xb2);
/// Sky blue.
pub const SKY: RGBColor = RGBColor(0x56, 0xb4, 0xe9);
/// Vermilion: the client's first token, and what fires.
pub const VERMILION: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
/// Orange: what is pending.
pub const ORANGE: RGBColor = RGBColor(0xe6, 0x9f, 0x00);
/// Bluish green: what is clean.
pub const GREEN: RGBColor = RGBColor(0x00, 0x9e, 0x73);
/// Reddish purple: the KV cache.
pub const PURPLE: RGBColor = RGBColor(0xcc, 0x79, 0xa7);

/// Green on which paper can be read.
pub const CLEAN: RGBColor = RGBColor(0x00, 0x73, 0x4f);
/// Vermilion on which paper can be read.
pub const FIRES: RGBColor = RGBColor(0xb3, 0x47, 0x00);
