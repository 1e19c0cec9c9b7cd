//! The GPU beside the server, under DCGM's names.
