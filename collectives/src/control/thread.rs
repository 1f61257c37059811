//! The thread that carries a mesh: one per communicator, asleep in poll(2) when idle.

use std::thread::JoinHandle;

use vervain_transport::{Result, Time};

use super::{Handle, Mesh, Status};

/// A running control thread. Dropping it says goodbye and waits for the thread's end, at most about 50 ms.
#[derive(Debug)]
pub struct Thread {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Mesh {
    /// Carry this mesh in a thread of its own; in none if there is no peer.
    pub fn spawn(mut self) -> Result<Thread> {
        let handle = self.handle();
        if handle.ranks() == 1 {
            return Ok(Thread { handle, thread: None });
        }
        let name = format!("vervain-{}", handle.rank());
        let thread = std::thread::Builder::new().name(name).spawn(move || self.run())?;
        Ok(Thread { handle, thread: Some(thread) })
    }

    /// Step until we have left.
    fn run(&mut self) {
        while self.step(Time::now()) == Status::Running {
            self.wait(Time::now(), Time::NEVER);
        }
    }

    /// Say goodbye and wait until it is said, at most about 50 ms. For those who step the mesh themselves.
    pub fn close(mut self) {
        self.handle().leave();
        if self.handle().ranks() > 1 {
            self.run();
        }
    }
}

impl Thread {
    /// What the rest of the program holds of the mesh.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.handle.leave();
        if let Some(thread) = self.thread.take() {
            // a panic of the thread has been printed, and is no reason for another one
            let _ = thread.join();
        }
    }
}
