// Prints which memory of a Rust program lies in the pool, including its threads' memory.
use std::collections::HashMap;
use std::os::raw::{c_int, c_void};

extern "C" {
    fn bp_contains(pointer: *const c_void, bytes: usize) -> c_int;
}

#[repr(align(4096))]
#[derive(Clone, Copy)]
struct Page([u8; 4096]);

fn is_in_pool<T>(memory: &[T]) -> bool {
    unsafe { bp_contains(memory.as_ptr().cast(), std::mem::size_of_val(memory)) != 0 }
}

fn fill_map(number: usize) -> bool {
    let map: HashMap<usize, Vec<u8>> = (0..1000)
        .map(|key| (key, vec![key as u8; 100 + number]))
        .collect();
    map.values().all(|value| is_in_pool(value))
}

fn main() {
    let threads: Vec<_> = (0..4)
        .map(|number| std::thread::spawn(move || fill_map(number)))
        .collect();
    let are_threads_in_pool = threads.into_iter().all(|thread| thread.join().unwrap());
    let pages = vec![Page([1; 4096]); 2];
    let stack = [pages[0].0[0]; 16];
    for (name, is_pool) in [
        ("threads", are_threads_in_pool),
        ("aligned", is_in_pool(&pages)),
        ("string", is_in_pool("pool".repeat(1000).as_bytes())),
        ("stack", is_in_pool(&stack)),
    ] {
        println!("{}: {}", name, if is_pool { "pool" } else { "elsewhere" });
    }
}
