//! What to send: (seed, request index) to a prompt.
