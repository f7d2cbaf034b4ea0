//! The executable's allocator: a fixed arena that the process never gives back.
//!
//! The plugin lives for milliseconds, and musl's allocator asks the kernel for pages, and returns them, some forty times in that
//! while. Here memory comes from a part of the executable's own zeroed data, whose pages exist once they are touched; what is freed
//! is kept by its size for the next one who asks. Big blocks, and all that no longer fits, are the C library's.
//!
//! Knows nothing of the plugin. Not part of the library: a server that runs for months must not use it.
#![expect(unsafe_code, reason = "an allocator hands out raw memory")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::UnsafeCell,
    ptr::{self, NonNull},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// An ADD needs a third of it.
const SIZE: usize = 1 << 20;
/// The smallest block, and every block's alignment.
const SMALLEST: usize = 16;
/// Blocks double in size from one class to the next; the last is that of a socket's read buffer and what is said about it.
const CLASSES: usize = 14;
const BIGGEST: usize = SMALLEST << (CLASSES - 1);

/// Memory for one short life.
pub(crate) struct Arena {
    memory: UnsafeCell<Memory>,
    state: Mutex<State>,
}

#[repr(align(4096))]
struct Memory(#[expect(dead_code, reason = "reached by its address")] [u8; SIZE]);

struct State {
    /// How much of the memory was handed out at least once; the rest is as zero as it was at the start.
    used: usize,
    /// Of each class, the block that was freed last; its first bytes say where the one before is.
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

// SAFETY: `memory` is only reached through blocks, of which each byte belongs to one at a time; `state` decides which, behind a lock.
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
        if let Some(block) = state.freed[class] {
            // SAFETY: a freed block is at least as big and as aligned as `Freed`, and nobody else uses it.
            state.freed[class] = unsafe { block.read() }.before;
            return Some(Block { start: block.cast(), zero: false });
        }
        let used = state.used.checked_add(SMALLEST << class).filter(|used| *used <= SIZE)?;
        // SAFETY: `state.used` is within the memory, as the line above saw to when it was set.
        let start = unsafe { self.start().add(state.used) };
        state.used = used;
        Some(Block { start, zero: true })
    }

    /// Whether the block is one of the arena's.
    fn has(&self, block: *mut u8) -> bool {
        let start = self.start().as_ptr().addr();
        (start..start + SIZE).contains(&block.addr())
    }
}

/// The class of the blocks that have room for a layout; none if the arena has no such blocks.
fn class(layout: &Layout) -> Option<usize> {
    let size = layout.size().max(SMALLEST);
    let fits = size <= BIGGEST && layout.align() <= SMALLEST;
    fits.then(|| size.next_power_of_two().ilog2().abs_diff(SMALLEST.ilog2())).and_then(|class| class.try_into().ok())
}

// SAFETY: a block is as big as its class, which is at least the layout's size, and aligned to `SMALLEST`, which is at least the
// layout's alignment; it is handed out again only after it was freed. What is not the arena's is the system's.
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
                // SAFETY: the block is the arena's, big and aligned enough for `Freed`, and its owner has no more use for it.
                unsafe { block.write(Freed { before: state.freed[class] }) };
                state.freed[class] = Some(block);
            }
            // SAFETY: what is not the arena's came from the system.
            _ => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !self.has(block) {
            // SAFETY: what is not the arena's came from the system.
            return unsafe { System.realloc(block, layout, size) };
        }
        // SAFETY: the caller promises that the size, rounded up to the alignment, is one.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
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
