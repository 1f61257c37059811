//! Processes of one host through mapped memory.
