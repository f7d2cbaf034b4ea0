//! The allocator of the installed executable: jemalloc, because with musl's a start of the control
//! plane takes half as much processor time again (docs/decisions/the-allocator-of-ovnkube.md).
#![expect(unsafe_code, reason = "jemalloc reads its options from a symbol")]

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// One arena: a handful of threads, of which one allocates most, and each has a cache of its own;
/// several arenas hold more. Pages that are not used any more go back to the kernel within 200 ms,
/// and not within 10 s: the memory of a list that was read is free again before the next one. At
/// once would cost a tenth more processor time.
///
/// SAFETY: no other symbol has this name (jemalloc's own is weak), and its type is jemalloc's: a
/// pointer to a string that ends with a zero.
#[unsafe(export_name = "_rjem_malloc_conf")]
static OPTIONS: &[u8; 46] = b"narenas:1,dirty_decay_ms:200,muzzy_decay_ms:0\0";
