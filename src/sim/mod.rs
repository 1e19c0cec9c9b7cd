//! A stand-in vLLM behind a socket.
