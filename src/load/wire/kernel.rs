//! The system calls of the timed stream, each behind a safe function.
//!
//! The only unsafe code of the program: no crate that it uses reads the control message in which the kernel's receive
//! stamp comes. Each call gets pointers into slices that live for the length of the call, and their true lengths.

#![allow(unsafe_code, reason = "system calls that nothing wraps")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use tokio::io::unix::AsyncFd;

use super::socket::Read;

/// Lets the runtime tell when the descriptor can be read or written.
pub fn watch(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` gives one and the same descriptor as long as it lives, which is open for as long; it is handed over
    // whole, and only borrowed from then on.
    let watched = unsafe { AsyncFd::register(socket) };
    Ok(watched?)
}

/// Asks for the receive stamp of whatever is read; whether that is to be had.
#[cfg(target_os = "linux")]
pub fn ask_for_stamps(socket: &impl AsFd) -> bool {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is a `c_int` that outlives the call, and the length given is its own.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            std::ptr::from_ref(&on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    done == 0
}

/// Asks for the receive stamp of whatever is read; whether that is to be had.
#[cfg(not(target_os = "linux"))]
pub fn ask_for_stamps(_: &impl AsFd) -> bool {
    false
}

/// Reads once, with the stamp of the last byte where the socket was asked for it.
#[cfg(target_os = "linux")]
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8], stamped: bool) -> io::Result<Read> {
    /// Room for a control message's header and a stamp, and then some, aligned as the header has to be.
    #[repr(C, align(8))]
    struct Control([u8; 128]);

    if !stamped {
        return receive_plain(socket, buffer);
    }
    let mut control = Control([0; 128]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeros is a message header without a name, buffers or control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the one buffer and the control data are slices borrowed for the call, with their lengths.
    let read = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let bytes = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    let mut stamp = None;
    // SAFETY: `message` is as the kernel left it, and `control` is still there; the macros stay within `msg_controllen`.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !next.is_null() {
        // SAFETY: not null, so within the control data; the header may be unaligned for its type.
        let head = unsafe { next.read_unaligned() };
        if (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS)
            && head.cmsg_len as usize >= size_of::<libc::cmsghdr>() + size_of::<libc::timespec>()
        {
            // SAFETY: the message says that it holds a `timespec` behind its header, and its length bears that out.
            let at = unsafe { libc::CMSG_DATA(next).cast::<libc::timespec>().read_unaligned() };
            stamp = wall(at);
        }
        // SAFETY: as for the first.
        next = unsafe { libc::CMSG_NXTHDR(&raw const message, next) };
    }
    Ok(Read { bytes, stamp })
}

/// Reads once; this platform has no stamps.
#[cfg(not(target_os = "linux"))]
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8], _: bool) -> io::Result<Read> {
    receive_plain(socket, buffer)
}

fn receive_plain(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Read> {
    // SAFETY: the buffer is a slice borrowed for the call, with its length.
    let read = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    let bytes = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    Ok(Read { bytes, stamp: None })
}

/// The time since the Unix epoch; the epoch itself is no stamp.
#[cfg(target_os = "linux")]
fn wall(at: libc::timespec) -> Option<Duration> {
    let s = u64::try_from(at.tv_sec).ok().filter(|s| *s > 0)?;
    Some(Duration::new(s, u32::try_from(at.tv_nsec).ok()?))
}

/// How to write to a peer that may be gone without a signal.
#[cfg(target_os = "linux")]
const NO_SIGNAL: libc::c_int = libc::MSG_NOSIGNAL;
#[cfg(not(target_os = "linux"))]
const NO_SIGNAL: libc::c_int = 0;

/// Writes as much as goes. A peer that is gone is an error, not a signal.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the bytes are a slice borrowed for the call, with its length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), NO_SIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn bytes_go_both_ways_and_come_with_stamps_where_there_are_any() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let stamped = ask_for_stamps(&near);
        assert_eq!(stamped, cfg!(target_os = "linux"));
        let mut buffer = [0; 16];
        // The kernel begins to stamp a little after it is first asked to, when one of its workers comes to it, so that the
        // first reads may lack it.
        let mut last = None;
        for _ in 0..200_000 {
            far.write_all(b"abc").unwrap();
            let read = receive(near.as_fd(), &mut buffer, stamped).unwrap();
            assert_eq!(&buffer[..read.bytes], b"abc");
            last = read.stamp;
            if last.is_some() || !stamped {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(last.is_some(), stamped);
        assert_eq!(send(near.as_fd(), b"xy").unwrap(), 2);
        let mut heard = [0; 2];
        far.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"xy");
        drop(far);
        assert_eq!(receive(near.as_fd(), &mut buffer, false).unwrap().bytes, 0);
    }
}
