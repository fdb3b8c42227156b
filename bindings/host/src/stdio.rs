//! The streams of the C library.
#![expect(unsafe_code, reason = "the streams are the C library's")]

/// What C's stdio writes is seen line by line, as in a terminal: otherwise the lines of a node would
/// appear with the end of the process.
pub fn buffer_lines() {
    unsafe extern "C" {
        static mut stdout: *mut libc::FILE;
    }
    // SAFETY: nothing else uses the stream yet, and its buffer is the library's own.
    unsafe { libc::setvbuf(stdout, std::ptr::null_mut(), libc::_IOLBF, 0) };
}

/// Writes what C's streams hold.
pub fn flush() {
    // SAFETY: null is every stream.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}
