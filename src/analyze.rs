//! The right half on one screen: recording and rules become a verdict.
