use std::thread;

use super::*;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

/// Allocates a block and fills it.
fn filled(arena: &Arena, size: usize, byte: u8) -> *mut u8 {
    // SAFETY: no layout of these tests is empty, and a block has the size that was asked for.
    unsafe {
        let block = arena.alloc(layout(size));
        assert!(!block.is_null());
        block.write_bytes(byte, size);
        block
    }
}

fn is_filled(block: *mut u8, size: usize, byte: u8) -> bool {
    // SAFETY: the block has this size, and was filled.
    unsafe { std::slice::from_raw_parts(block, size) }.iter().all(|found| *found == byte)
}

#[test]
fn every_size_has_a_class_that_is_big_enough_or_is_the_systems() {
    assert_eq!(
        [1, 16, 17, 32, 33].map(|size| class(&layout(size))),
        [Some(0), Some(0), Some(1), Some(1), Some(2)]
    );
    assert_eq!(class(&layout(BIGGEST)), Some(CLASSES - 1));
    assert_eq!(class(&layout(BIGGEST + 1)), None);
    assert_eq!(class(&Layout::from_size_align(64, 64).unwrap()), None);
}

#[test]
fn blocks_do_not_overlap_and_what_is_freed_is_used_again() {
    static ARENA: Arena = Arena::new();
    let sizes = [1, 15, 16, 100, 4096, 70_000, BIGGEST];
    let blocks: Vec<_> =
        (0_u8..).zip(sizes).map(|(byte, size)| (filled(&ARENA, size, byte), size, byte)).collect();
    assert!(
        blocks
            .iter()
            .all(|(block, size, byte)| ARENA.has(*block) && is_filled(*block, *size, *byte))
    );
    let (block, size, _) = blocks[3];
    // SAFETY: it was allocated with this layout.
    unsafe { ARENA.dealloc(block, layout(size)) };
    assert_eq!(filled(&ARENA, 65, 0xff), block, "100 and 65 bytes are of one class");
    // SAFETY: as above.
    unsafe { ARENA.dealloc(block, layout(65)) };
    // SAFETY: the layout is not empty.
    let zeroed = unsafe { ARENA.alloc_zeroed(layout(128)) };
    assert!(zeroed == block && is_filled(zeroed, 128, 0));
}

#[test]
fn what_does_not_fit_comes_from_the_system_and_goes_back_there() {
    static ARENA: Arena = Arena::new();
    let blocks: Vec<_> = (0..12).map(|byte| filled(&ARENA, BIGGEST, byte)).collect();
    assert!(ARENA.has(blocks[0]) && !ARENA.has(blocks[11]));
    for (byte, block) in (0..).zip(blocks) {
        assert!(is_filled(block, BIGGEST, byte));
        // SAFETY: it was allocated with this layout.
        unsafe { ARENA.dealloc(block, layout(BIGGEST)) };
    }
}

#[test]
fn a_block_that_grows_keeps_what_is_in_it_wherever_it_goes() {
    static ARENA: Arena = Arena::new();
    let mut block = filled(&ARENA, 10, 7);
    let mut size = 10;
    for wanted in [16, 17, 1000, 200_000, 300_000, 40] {
        // SAFETY: it was allocated with this layout, and no size is 0.
        block = unsafe { ARENA.realloc(block, layout(size), wanted) };
        size = wanted;
        assert!(is_filled(block, 10, 7), "{wanted}");
    }
    // SAFETY: as above.
    unsafe { ARENA.dealloc(block, layout(size)) };
}

#[test]
fn threads_do_not_get_each_others_blocks() {
    static ARENA: Arena = Arena::new();
    thread::scope(|scope| {
        for byte in 0..4 {
            scope.spawn(move || {
                for round in 1..500 {
                    let size = round % 300 + 1;
                    let block = filled(&ARENA, size, byte);
                    thread::yield_now();
                    assert!(is_filled(block, size, byte));
                    // SAFETY: it was allocated with this layout.
                    unsafe { ARENA.dealloc(block, layout(size)) };
                }
            });
        }
    });
}
