//! The allocator of the executable: a fixed arena whose memory the process never returns.
//!
//! The plugin lives for milliseconds, and musl's allocator asks the kernel for pages, and returns
//! them, some forty times in that while. The arena is a part of the executable's zeroed data; a
//! page exists once it is touched. A freed block is kept for the next allocation of its size class.
//! Blocks of more than 128 KiB, and all blocks once the arena is full, come from the C library.
//!
//! Must not know the plugin. Not part of the library: a server that runs for months must not use
//! it.
#![expect(unsafe_code, reason = "an allocator hands out raw memory")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::UnsafeCell,
    ptr::{self, NonNull},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Bytes of the arena, of which an ADD needs a third. In a smaller arena an ADD that needs more
/// than usual makes the C library's system calls again; a larger one costs nothing until its pages
/// are touched.
const SIZE: usize = 1 << 20;
/// The smallest block in bytes, and the alignment of every block.
const SMALLEST: usize = 16;
/// The number of size classes. Blocks double in size from one class to the next. The last class is
/// that of a socket's read buffer with its bookkeeping.
const CLASSES: usize = 14;
/// The largest block: 128 KiB.
const BIGGEST: usize = SMALLEST << (CLASSES - 1);

/// Memory for one short-lived process.
pub(crate) struct Arena {
    memory: UnsafeCell<Memory>,
    state: Mutex<State>,
}

#[repr(align(4096))]
struct Memory(#[expect(dead_code, reason = "reached by its address")] [u8; SIZE]);

struct State {
    /// Bytes that were handed out at least once. The rest is still zero, as it was at the start.
    used: usize,
    /// The free list of each class: the block that was freed last. Its first bytes point to the one
    /// before.
    freed: [Option<NonNull<Freed>>; CLASSES],
}

struct Freed {
    before: Option<NonNull<Freed>>,
}

/// A block, and whether all its bytes are zero.
struct Block {
    start: NonNull<u8>,
    zero: bool,
}

// SAFETY: `memory` is reached through blocks only, and each byte belongs to one block at a time.
// `state` assigns the blocks, behind a lock.
unsafe impl Sync for Arena {}
// SAFETY: the pointers lead into the arena itself, which is static.
unsafe impl Send for State {}

impl Arena {
    pub(crate) const fn new() -> Self {
        let state = State { used: 0, freed: [None; CLASSES] };
        Self { memory: UnsafeCell::new(Memory([0; SIZE])), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> NonNull<u8> {
        NonNull::from(&self.memory).cast()
    }

    fn take(&self, class: usize) -> Option<Block> {
        let mut state = self.state();
        // A freed block first: its pages have been touched already.
        if let Some(block) = state.freed[class] {
            // SAFETY: a freed block is at least as big and as aligned as `Freed`, and has no other
            // user.
            state.freed[class] = unsafe { block.read() }.before;
            return Some(Block { start: block.cast(), zero: false });
        }
        let used = state.used.checked_add(SMALLEST << class).filter(|used| *used <= SIZE)?;
        // SAFETY: `state.used` is within the memory: the line above checked it before it was set.
        let start = unsafe { self.start().add(state.used) };
        state.used = used;
        Some(Block { start, zero: true })
    }

    /// Whether the block belongs to the arena.
    fn has(&self, block: *mut u8) -> bool {
        let start = self.start().as_ptr().addr();
        (start..start + SIZE).contains(&block.addr())
    }
}

/// The class of the smallest blocks that have room for a layout; `None` if the arena has no such
/// blocks.
fn class(layout: &Layout) -> Option<usize> {
    let size = layout.size().max(SMALLEST);
    let fits = size <= BIGGEST && layout.align() <= SMALLEST;
    fits.then(|| size.next_power_of_two().ilog2().abs_diff(SMALLEST.ilog2()))
        .and_then(|class| class.try_into().ok())
}

// SAFETY: a block is as big as its class, which is at least the layout's size, and aligned to
// `SMALLEST`, which is at least the layout's alignment. It is handed out again only after it was
// freed. All other blocks are the system allocator's.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class(&layout).and_then(|class| self.take(class)) {
            Some(block) => block.start.as_ptr(),
            // SAFETY: the caller's promises are the same.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match class(&layout).and_then(|class| self.take(class)) {
            Some(Block { start, zero: true }) => start.as_ptr(),
            Some(Block { start, zero: false }) => {
                // SAFETY: the block is at least as big as the layout.
                unsafe { start.write_bytes(0, layout.size()) };
                start.as_ptr()
            }
            // SAFETY: the caller's promises are the same.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match (self.has(block), class(&layout), NonNull::new(block)) {
            (true, Some(class), Some(block)) => {
                let mut state = self.state();
                let block = block.cast::<Freed>();
                // SAFETY: the block belongs to the arena, is big and aligned enough for `Freed`,
                // and its user has given it back.
                unsafe { block.write(Freed { before: state.freed[class] }) };
                state.freed[class] = Some(block);
            }
            // SAFETY: a block outside of the arena came from the system.
            _ => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !self.has(block) {
            // SAFETY: a block outside of the arena came from the system.
            return unsafe { System.realloc(block, layout, size) };
        }
        // SAFETY: the caller promises that the size, rounded up to the alignment, does not
        // overflow.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // A block is as big as its class: within one class it grows in place.
        if class(&wanted) == class(&layout) {
            return block;
        }
        // SAFETY: both blocks are as big as their layouts, and different.
        unsafe {
            let moved = self.alloc(wanted);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests;
