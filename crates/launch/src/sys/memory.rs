//! The memory functions that compiled code calls by name. Nothing else provides them: there is no C library.

use core::ffi::c_char;

/// # Safety
/// As memcpy(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    let mut index = 0;
    while index < length {
        // SAFETY: the caller promises `length` readable and writable bytes. Volatile keeps the compiler from
        // turning this loop into a call to memcpy.
        unsafe { to.add(index).write_volatile(from.add(index).read()) };
        index += 1;
    }
    to
}

/// # Safety
/// As memmove(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    if (to as usize) <= (from as usize) {
        // SAFETY: copying upwards never overwrites a source byte that is still to be read.
        return unsafe { memcpy(to, from, length) };
    }
    let mut index = length;
    while index > 0 {
        index -= 1;
        // SAFETY: as in memcpy, and downwards for the overlapping case.
        unsafe { to.add(index).write_volatile(from.add(index).read()) };
    }
    to
}

/// # Safety
/// As memset(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, length: usize) -> *mut u8 {
    let mut index = 0;
    while index < length {
        // SAFETY: the caller promises `length` writable bytes; volatile as in memcpy.
        unsafe { to.add(index).write_volatile(value as u8) };
        index += 1;
    }
    to
}

/// # Safety
/// As memcmp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, length: usize) -> i32 {
    let mut index = 0;
    while index < length {
        // SAFETY: the caller promises `length` readable bytes on both sides; volatile as in memcpy.
        let (x, y) = unsafe { (a.add(index).read_volatile(), b.add(index).read_volatile()) };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
        index += 1;
    }
    0
}

/// # Safety
/// As bcmp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, length: usize) -> i32 {
    // SAFETY: the same contract.
    unsafe { memcmp(a, b, length) }
}

/// # Safety
/// As strlen(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const c_char) -> usize {
    let mut length = 0;
    // SAFETY: the caller promises a NUL-terminated string; volatile as in memcpy.
    while unsafe { text.add(length).read_volatile() } != 0 {
        length += 1;
    }
    length
}
