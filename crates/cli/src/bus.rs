//! A mapped file that is cut off while it is in use: the system reports the lost pages by SIGBUS.

/// Message for the user.
#[cfg(unix)]
const MESSAGE: &[u8] =
    b"mae: a data file (.bin or .idx) was cut off or changed while it was in use, or its disk failed: \
put the file back and start again; what was saved before is whole\n";

/// Ends the program with a message in place of the signal.
#[cfg(unix)]
#[allow(unsafe_code)]
pub fn explain_lost_pages() {
    let explain = || {
        // Nothing is left to do if this fails.
        rustix::io::write(rustix::stdio::stderr(), MESSAGE).ok();
        signal_hook::low_level::exit(1);
    };
    // SAFETY: the handler only calls `write` and `_exit`, which are safe in signal handlers; it allocates nothing, takes
    // no lock and does not return.
    unsafe { signal_hook::low_level::register(signal_hook::consts::SIGBUS, explain) }.ok();
}

/// Does nothing: there is no such signal.
#[cfg(not(unix))]
pub fn explain_lost_pages() {}
