//! Runs an MLP from model.litz in Rust: `mlp MODEL BATCH < inputs > outputs`, floats of this machine.
//!
//! The bindings are the part of litz.h that this program needs, written by hand.

use std::ffi::{CStr, CString};
use std::io::{Read, Write};
use std::os::raw::{c_char, c_int, c_void};
use std::process::ExitCode;
use std::ptr::{null, null_mut};

const MAX_RANK: usize = 16;

#[repr(C)]
struct Error {
    code: c_int,
    message: [c_char; 512],
}

#[repr(C)]
struct Layout {
    dtype: c_int,
    rank: c_int,
    shape: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
    bytes: usize,
}

#[link(name = "litz_runtime")]
extern "C" {
    fn litz_open(path: *const c_char, options: *const c_void, model: *mut *mut c_void, error: *mut Error) -> c_int;
    fn litz_close(model: *mut c_void);
    fn litz_entry_named(model: *const c_void, name: *const c_char) -> *const c_void;
    fn litz_input_layout(entry: *const c_void, position: usize, symbols: *const i64, layout: *mut Layout, error: *mut Error) -> c_int;
    fn litz_output_layout(entry: *const c_void, position: usize, symbols: *const i64, layout: *mut Layout, error: *mut Error) -> c_int;
    fn litz_run(entry: *const c_void, symbols: *const i64, inputs: *const *mut c_void, outputs: *const *mut c_void, error: *mut Error) -> c_int;
}

/// Calls a function of the runtime, which writes its error to the argument of the closure.
fn check(call: impl FnOnce(*mut Error) -> c_int) -> Result<(), String> {
    let mut error = Error { code: 0, message: [0; 512] };
    if call(&mut error) == 0 {
        return Ok(());
    }
    // SAFETY: a function that fails writes a message that ends with a zero.
    let message = unsafe { CStr::from_ptr(error.message.as_ptr()) };
    Err(format!("error {}: {}", error.code, message.to_string_lossy()))
}

/// An open model, closed when it is dropped.
struct Model(*mut c_void);

impl Model {
    fn open(path: &str) -> Result<Model, String> {
        let path = CString::new(path).map_err(|error| error.to_string())?;
        let mut model = null_mut();
        // SAFETY: the path ends with a zero, and null stands for the default options.
        check(|error| unsafe { litz_open(path.as_ptr(), null(), &mut model, error) })?;
        Ok(Model(model))
    }

    /// Runs the entry point `forward` on the bytes of its only input.
    fn run(&self, batch: i64, mut input: Vec<u8>) -> Result<Vec<u8>, String> {
        let symbols = [batch];
        let layout = || Layout { dtype: 0, rank: 0, shape: [0; MAX_RANK], strides: [0; MAX_RANK], bytes: 0 };
        let (mut given, mut result) = (layout(), layout());
        // SAFETY: the model is open, the name ends with a zero, and all pointers are to live values of these types.
        let entry = unsafe { litz_entry_named(self.0, b"forward\0".as_ptr().cast()) };
        if entry.is_null() {
            return Err("the model has no entry point forward".into());
        }
        check(|error| unsafe { litz_input_layout(entry, 0, symbols.as_ptr(), &mut given, error) })?;
        check(|error| unsafe { litz_output_layout(entry, 0, symbols.as_ptr(), &mut result, error) })?;
        if input.len() < given.bytes {
            return Err(format!("the input has {} bytes, and {} are needed", input.len(), given.bytes));
        }
        let mut output = vec![0u8; result.bytes];
        let inputs = [input.as_mut_ptr().cast()];
        let outputs = [output.as_mut_ptr().cast()];
        // SAFETY: both buffers have the bytes that their layouts say.
        check(|error| unsafe { litz_run(entry, symbols.as_ptr(), inputs.as_ptr(), outputs.as_ptr(), error) })?;
        Ok(output)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: no call is running, since calls borrow the model.
        unsafe { litz_close(self.0) }
    }
}

fn run() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().collect();
    let (path, batch) = match arguments.as_slice() {
        [_, path, batch] => (path, batch),
        _ => return Err("usage: mlp MODEL BATCH".into()),
    };
    let batch = batch.parse().map_err(|_| "BATCH is no number".to_string())?;
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input).map_err(|error| error.to_string())?;
    let output = Model::open(path)?.run(batch, input)?;
    std::io::stdout().write_all(&output).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("mlp: {message}");
            ExitCode::FAILURE
        }
    }
}
