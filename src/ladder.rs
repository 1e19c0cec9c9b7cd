//! How many streams at once: climb, narrow, confirm.
